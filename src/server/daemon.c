/*
 * daemon.c - the lanes of a server in the real world: one thread and one loop each.
 *
 * The main thread waits for a signal or for the first lane to end. Lanes share nothing but the stop
 * request, which each reads when its loop is woken.
 *
 * As many lanes again stand by, for the places of a server that is lost (standby.c). They listen
 * from the start: a hardened process cannot begin to.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "base/cores.h"
#include "base/descriptors.h"
#include "base/exit_code.h"
#include "base/fail.h"
#include "base/monotonic.h"
#include "base/resident.h"
#include "base/signals.h"
#include "checkpoint/read.h"
#include "metric/metric.h"
#include "rpc/identity.h"
#include "secure/harden.h"
#include "server/files.h"
#include "server/lane.h"
#include "server/source.h"
#include "shard/shard.h"
#include "store/sparse/cold.h"
#include "transport/address.h"
#include "transport/loop/loop.h"

#define MS_NS UINT64_C(1000000)

enum {
    WAIT_MS_MAX = 1000,
    FAREWELL_MS = 500, /* for the last frames to leave */
    LOOKERS_LEAST = 2, /* lanes that may look for work at once; else half of them */
};

struct process;

/* Thread: owned by its thread, but for `loop` (psi_loop_wake from anywhere). */
struct lane_thread {
    struct process *process;
    pthread_t thread;
    bool started;
    struct psi_tls *tls; /* NULL: insecure */
    struct psi_loop *loop;
    struct lane_files *files;       /* of checkpoints; NULL: none are written */
    struct psi_checkpoint *resumed; /* NULL: the job begins anew */
    struct lane_source source;      /* ... from that */
    struct cold_place *cold;        /* for rows that memory does not hold */
    struct lane *lane;
    bool is_standby; /* has no place in the job yet */
    bool is_guest;   /* ... and has one since: that of another server's lane */
    bool settled;    /* keeps to cores of its own */
    int exit_code;   /* read by the main thread after the join, as is the next */
    bool first_bad;  /* this lane ended badly before any other did */
    char text[512];
};

/* Thread: immutable while lanes run, but for what is atomic. */
struct process {
    const struct psi_log *log;
    int ended;                /* eventfd: how many lanes have ended */
    _Atomic uint32_t running; /* lanes with a place that have not ended */
    _Atomic int bad_code;     /* of the first lane that ended badly */
    _Atomic bool is_over;     /* a lane has seen the job through to a good end */
    _Atomic int stop_code;    /* != 0: lanes, stop; a signal's exit code */
    const char *_Atomic stop_text;
    int signal;                /* that has come; 0: none */
    bool may_leave;            /* servers come and go in this job */
    _Atomic bool shares_cores; /* no core is left for lanes alone */
    struct psi_address master;
    bool master_found;      /* false: a name that nobody knows yet */
    uint32_t strangers_max; /* of each lane */
    uint32_t segments_max;  /* of each lane; half of all descriptors, the rest is for connections */
    uint32_t cores;         /* that the process may use */
    uint32_t lanes;         /* with a place from the start */
    uint32_t threads;       /* ... and those that stand by, which come behind them */
    uint64_t number;        /* drawn at random: which process this is */
    struct psi_lookers lookers;
    struct lane_budget budget;
    struct psi_resident resident;
    struct lane_thread *lane;
};

static int
timeout_ms(const struct lane_thread *self)
{
    const uint64_t now_ns = psi_now_ns(psi_loop_env(self->loop));
    const uint64_t loop_ns = psi_loop_next_ns(self->loop);
    uint64_t next_ns = lane_next_ns(self->lane);

    next_ns = loop_ns < next_ns ? loop_ns : next_ns;
    if (next_ns <= now_ns) {
        return 0;
    }
    return next_ns - now_ns > WAIT_MS_MAX * MS_NS ? WAIT_MS_MAX
                                                  : (int)((next_ns - now_ns + MS_NS - 1) / MS_NS);
}

/* The last frames (END to the master) leave before the connections are closed. */
static void
linger(struct lane_thread *self)
{
    const uint64_t until_ns = psi_now_ns(psi_loop_env(self->loop)) + FAREWELL_MS * MS_NS;

    while (psi_loop_next_ns(self->loop) != UINT64_MAX &&
           psi_now_ns(psi_loop_env(self->loop)) < until_ns &&
           psi_loop_run_once(self->loop, 10, NULL) == PSD_OK) {
    }
}

/*
 * With a worker here for every core, no core is left for lanes alone. Threads that look before they
 * sleep seem busy to the scheduler, so it would leave two lanes on one core for long: from now on,
 * and for good, each lane keeps to its share of the cores, and tells its copy of many changes at once. With
 * fewer workers it is better to roam. Nor does a lane look for what cannot come soon: it would keep its copy, or
 * its owner, from that core.
 */
static void
settle_down(struct lane_thread *self)
{
    struct process *process = self->process;

    if (!self->settled && psi_loop_neighbours(self->loop) >= process->cores) {
        self->settled = true;
        atomic_store(&process->shares_cores, true);
        lane_share_cores(self->lane);
        psi_cores_keep_to_share((uint32_t)(self - process->lane) % process->lanes, process->lanes);
    }
    psi_loop_look_first(self->loop,
                        !(lane_waits_long(self->lane) && atomic_load(&process->shares_cores)));
}

/* From now on workers know it by another name. */
static void
follow_place(struct lane_thread *self)
{
    char name[PSI_IDENTITY_BYTES];
    uint32_t server;
    uint32_t lane;

    if (lane_stands_by_now(self->lane, &server, &lane) && self->tls != NULL) {
        psi_identity_standby(name, server, lane);
        psi_tls_name(self->tls, name);
    }
    if (!lane_took_place(self->lane, &server, &lane)) {
        return;
    }
    atomic_fetch_add(&self->process->running, self->is_standby);
    self->is_standby = false;
    self->is_guest = true;
    psi_identity_server(name, server, lane);
    if (self->tls != NULL) {
        psi_tls_name(self->tls, name);
    }
}

/* Does its end mean anything to the others? Nobody misses one that stood by. */
static bool
ended_badly(const struct lane_thread *self)
{
    const bool is_over = atomic_load(&self->process->is_over);
    const bool is_no_loss = self->is_guest && lane_guest_is_no_loss(self->lane, is_over);

    return self->exit_code != PSI_EXIT_OK && !self->is_standby && !is_no_loss;
}

static void *
run_lane(void *argument)
{
    struct lane_thread *self = argument;
    struct process *process = self->process;
    const uint64_t one = 1;
    struct psd_error err;
    const char *text = "";
    ssize_t written;

    (void)psi_arithmetic_enter(); /* whatever started this process, or was linked into it */
    lane_tick(self->lane);
    while (!lane_finished(self->lane, &self->exit_code, &text)) {
        const int stop = atomic_load(&process->stop_code);

        if (stop != 0) {
            lane_leave(self->lane, stop, atomic_load(&process->stop_text));
        }
        if (psi_loop_run_once(self->loop, timeout_ms(self), &err) != PSD_OK) {
            lane_stop(self->lane, PSI_EXIT_INTERNAL, err.text);
            continue;
        }
        follow_place(self);
        lane_tick(self->lane);
        settle_down(self);
    }
    snprintf(self->text, sizeof(self->text), "%s", text);
    if (lane_saw_it_through(self->lane)) {
        atomic_store(&process->is_over, true);
    }
    if (ended_badly(self)) {
        int none = PSI_EXIT_OK;

        self->first_bad =
            atomic_compare_exchange_strong(&process->bad_code, &none, self->exit_code);
    } else if (self->is_guest && self->exit_code != PSI_EXIT_OK &&
               !lane_left_with_nothing(self->lane)) {
        psi_log(process->log, PSI_LOG_WARN, "SENT-AWAY",
                "a lane that had the place of another server's ends: %s", text);
    }
    linger(self);
    lane_hang_up(self->lane);
    if (!self->is_standby) {
        atomic_fetch_sub(&process->running, 1);
    }
    written = write(process->ended, &one, sizeof(one));
    (void)written; /* an eventfd takes 2^64 - 2 of them */
    return NULL;
}

static void
wake(void *owner)
{
    const struct lane_thread *self = owner;

    psi_loop_wake(self->loop);
}

/* Where its checkpoints go, and where its tables come from. Opened before the process is hardened. */
static psd_status
open_checkpoints(struct lane_thread *self, const struct server_options *options,
                 struct lane_config *config, struct psd_error *err)
{
    struct psi_directory directory;
    psd_status status = PSD_OK;

    if (options->checkpoint != NULL) { /* what is not there now cannot be allowed for later */
        status = psi_directory_make(&directory, &psi_disk_system, options->checkpoint, err);
        if (status != PSD_OK) {
            return status;
        }
        psi_directory_close(&directory);
        self->files = lane_files_create(&psi_disk_system, options->checkpoint, wake, self);
        if (self->files == NULL) {
            return psi_fail(err, PSD_ERR_NO_MEMORY, "checkpoints: no memory");
        }
        config->disk = lane_files_disk(self->files);
    }
    if (options->resume != NULL) {
        status = options->generation != 0
                     ? psi_checkpoint_open_one(&psi_disk_system, options->resume,
                                               options->generation, false, &self->resumed, err)
                     : psi_checkpoint_open(&psi_disk_system, options->resume, &self->resumed, err);
    }
    if (status == PSD_OK && self->resumed != NULL) {
        self->source = lane_source_of(self->resumed);
        config->source = &self->source;
    }
    return status;
}

/* A lane that listens but does not run yet. */
static psd_status
make_lane(struct process *process, const struct server_options *options, uint32_t index,
          struct psd_error *err)
{
    struct psi_loop_config loop_config = {.strangers_max = process->strangers_max,
                                          .lends = options->lends,
                                          .spin_us = options->spin_us,
                                          .lookers = &process->lookers,
                                          .master_file = options->master_file};
    char master_address[PSI_ADDRESS_BYTES];
    const bool is_standby = index >= options->lanes;
    struct lane_config config = {
        .server = options->index,
        .lane = index % options->lanes,
        .lanes = options->lanes,
        .is_standby = is_standby,
        .process = process->number,
        .master_address = master_address,
        .listen_address = options->security.listen_address,
        .memory_max = options->memory_max / options->lanes,
        .budget = &process->budget,
        .pool_bytes = options->pool_bytes / options->lanes,
        .start_timeout_ms = options->start_timeout_ms,
        .kernel = options->kernel,
        .cpu_ns = psi_thread_cpu_ns,
        .resident = index == 0 ? &process->resident : NULL, /* once */
        .checksum = options->checksum,
        .lends = options->lends,
        .lends_state = options->replicas > 0,
        .segments_max = process->segments_max,
    };
    struct lane_thread *self = &process->lane[index];
    char name[PSI_IDENTITY_BYTES];
    psd_status status = psi_address_format(&process->master, master_address, err);

    self->process = process;
    self->is_standby = is_standby;
    if (is_standby) {
        psi_identity_standby(name, options->index, config.lane); /* until it has a place */
    } else {
        psi_identity_server(name, options->index, config.lane);
    }
    if (status == PSD_OK) {
        status = daemon_security_apply(&options->security, name, &loop_config, &self->tls, err);
    }
    if (status == PSD_OK) {
        status = psi_loop_create(&loop_config, &self->loop, err);
    }
    if (status == PSD_OK) {
        status = open_checkpoints(self, options, &config, err);
    }
    if (status == PSD_OK) {
        self->cold =
            cold_place_create(options->cold); /* before the process is hardened, likewise */
        config.cold = self->cold;
        status = self->cold != NULL ? PSD_OK
                                    : psi_fail(err, PSD_ERR_NO_MEMORY, "lane %u: no memory", index);
    }
    if (status == PSD_OK) {
        status = lane_create(psi_loop_env(self->loop), &config, process->log, &self->lane, err);
    }
    return status;
}

static psd_status
start_lane(struct lane_thread *self, uint32_t index, struct psd_error *err)
{
    atomic_fetch_add(&self->process->running, !self->is_standby);
    errno = pthread_create(&self->thread, NULL, run_lane, self);
    if (errno != 0) {
        atomic_fetch_sub(&self->process->running, !self->is_standby);
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start the thread of lane %u", index);
    }
    self->started = true;
    return PSD_OK;
}

/* The master's name is looked up here and, where that succeeds, never again: a master that moves is at a
 * number (base/master_file.h), and a hardened process that needs no name services has fewer ways out. */
static psd_status
find_master(struct process *process, const struct server_options *options, struct psd_error *err)
{
    struct psi_address named;
    psd_status status = psi_address_parse(options->master_address, &named, err);

    if (status != PSD_OK) {
        return status;
    }
    process->master = named;
    process->master_found = named.scheme != PSI_SCHEME_TCP ||
                            psi_address_resolve(&named, &process->master, err) == PSD_OK;
    if (!process->master_found) {
        psi_log(process->log, PSI_LOG_WARN, "MASTER-UNKNOWN", "%s; it will be looked up again",
                err->text);
    }
    return PSD_OK;
}

static void
harden(const struct process *process, const struct server_options *options)
{
    psi_harden(
        &(struct psi_harden_args){.on = options->harden,
                                  .role = PSI_HARDEN_SERVER,
                                  .connect_port = process->master.port,
                                  .connects_to_servers = options->replicas > 0 || options->moves,
                                  .master_file = options->master_file,
                                  .shares_with_servers =
                                      (options->replicas > 0 || options->moves) && options->lends,
                                  .checkpoint = options->checkpoint,
                                  .resume = options->resume,
                                  .lookup = process->master_found ? NULL : process->master.host},
        process->log);
}

/* If nothing else is said, as many stand by as there are places. Where they are copies as well, twice as
 * many: when one of three servers is gone, each of the others has half of its places, and of its copies. */
static uint32_t
count_threads(const struct server_options *options)
{
    return options->lanes + options->standby_lanes;
}

/* Every lane listens before the first one runs: between the two the process is hardened, and its
 * threads inherit that. */
static psd_status
start_lanes(struct process *process, const struct server_options *options, struct psd_error *err)
{
    const uint32_t descriptors = psi_descriptors_raise();
    const uint32_t threads = count_threads(options);
    psd_status status = find_master(process, options, err);

    process->cores = psi_usable_cores();
    process->lanes = options->lanes;
    process->lookers.most = options->lanes > 2 * LOOKERS_LEAST ? options->lanes / 2 : LOOKERS_LEAST;
    process->budget.max = options->memory_max;
    process->strangers_max = psi_descriptors_for_strangers(descriptors, threads);
    process->segments_max = descriptors / 2 / threads + 1;
    while (status == PSD_OK && process->threads < threads) {
        process->threads++;
        status = make_lane(process, options, process->threads - 1, err);
    }
    if (status == PSD_OK) {
        harden(process, options);
    }
    for (uint32_t i = 0; status == PSD_OK && i < process->threads; i++) {
        status = start_lane(&process->lane[i], i, err);
    }
    return status;
}

static void
stop_lanes(struct process *process, int exit_code, const char *text)
{
    atomic_store(&process->stop_text, text);
    atomic_store(&process->stop_code, exit_code);
    for (uint32_t i = 0; i < process->threads; i++) {
        if (process->lane[i].loop != NULL) {
            psi_loop_wake(process->lane[i].loop);
        }
    }
}

/* A lane that ended badly takes the others along; until then signals are listened to. Lanes that
 * stand by leave with the last one that has a place. */
static void
wait_for_end(struct process *process, int signals)
{
    struct pollfd fds[2] = {{.fd = signals, .events = POLLIN},
                            {.fd = process->ended, .events = POLLIN}};

    while (atomic_load(&process->running) > 0) {
        uint64_t ended = 0;

        if (poll(fds, 2, -1) < 0) {
            continue; /* interrupted */
        }
        if ((fds[0].revents & POLLIN) != 0) {
            process->signal = psi_signals_read(signals);
            stop_lanes(process, psi_signals_exit_code(process->signal),
                       psi_signals_text(process->signal));
        }
        if ((fds[1].revents & POLLIN) != 0 &&
            read(process->ended, &ended, sizeof(ended)) == (ssize_t)sizeof(ended) &&
            atomic_load(&process->bad_code) != PSI_EXIT_OK) {
            stop_lanes(process, atomic_load(&process->bad_code), "another lane ended");
        }
    }
    stop_lanes(process, PSI_EXIT_INTERNAL, "all others have ended");
    for (uint32_t i = 0; i < process->threads; i++) {
        if (process->lane[i].started) {
            pthread_join(process->lane[i].thread, NULL);
        }
    }
}

static void
destroy_lanes(struct process *process)
{
    for (uint32_t i = 0; i < process->threads; i++) {
        lane_destroy(process->lane[i].lane);
        cold_place_destroy(process->lane[i].cold);
        lane_files_destroy(process->lane[i].files); /* it wakes the loop */
        psi_checkpoint_destroy(process->lane[i].resumed);
        if (process->lane[i].loop != NULL) {
            psi_loop_destroy(process->lane[i].loop);
        }
        psi_tls_destroy(process->lane[i].tls);
    }
    free(process->lane);
}

/* What its lanes have done, all together. */
static void
tell_counts(const struct process *process)
{
    for (uint32_t metric = 0; metric < PSI_METRICS; metric++) {
        const struct psi_metric_info *info = &psi_metric_info[metric];
        uint64_t sum = 0;

        for (uint32_t i = 0; i < process->threads; i++) {
            sum += psi_metric_get(lane_metrics(process->lane[i].lane), (enum psi_metric)metric);
        }
        if ((info->who & PSI_METRIC_LANE) != 0) {
            psi_log(process->log, PSI_LOG_DEBUG, "COUNTED", "%s: %" PRIu64 " %s: %s", info->name,
                    sum, info->unit, info->text);
        }
    }
}

/* Was it told to end when it had nothing of a job that had begun, because that had moved to others, say? */
static bool
was_free_to_go(const struct process *process)
{
    bool has_begun = false;

    for (uint32_t i = 0; i < process->threads; i++) {
        if (!lane_left_with_nothing(process->lane[i].lane)) {
            return false;
        }
        has_begun = has_begun || lane_was_not_needed(process->lane[i].lane);
    }
    return has_begun && process->may_leave && process->signal == SIGTERM;
}

/* The first lane that ended badly speaks for all; all ended well: so did the server. */
static int
verdict(const struct process *process)
{
    const struct lane_thread *speaker = &process->lane[0];

    if (was_free_to_go(process)) {
        psi_log(process->log, PSI_LOG_INFO, "JOB-END",
                "%s: it had nothing of the job, which goes on (exit code 0)",
                psi_signals_text(process->signal));
        return PSI_EXIT_OK;
    }
    for (uint32_t i = 0; i < process->threads; i++) {
        speaker = process->lane[i].first_bad ? &process->lane[i] : speaker;
    }
    psi_log(process->log, speaker->exit_code == PSI_EXIT_OK ? PSI_LOG_INFO : PSI_LOG_ERROR,
            "JOB-END", "%s (exit code %d)", speaker->text, speaker->exit_code);
    return speaker->exit_code;
}

int
server_daemon_run(const struct server_options *options, const struct psi_log *log)
{
    struct process process = {.log = log, .ended = -1, .may_leave = options->moves};
    struct psd_error err = {0};
    psd_status status;
    int signals = -1;
    int exit_code;

    process.lane = calloc(count_threads(options), sizeof(*process.lane));
    process.ended = eventfd(0, EFD_CLOEXEC);
    psi_resident_init(&process.resident);
    status = psi_signals_open(&signals, &err);
    if (getrandom(&process.number, sizeof(process.number), 0) != (ssize_t)sizeof(process.number)) {
        process.number = psi_monotonic_ns() << 16 | (uint64_t)getpid();
    }
    process.number = process.number << PSI_PROCESS_INDEX_BITS | options->index;
    if (status == PSD_OK && (process.lane == NULL || process.ended < 0)) {
        status = psi_fail_errno(&err, PSD_ERR_NO_MEMORY, "start %u lanes", options->lanes);
    }
    if (status == PSD_OK) {
        status = start_lanes(&process, options, &err);
    }
    if (status != PSD_OK) {
        stop_lanes(&process, PSI_EXIT_CANNOT_START, err.text);
    }
    wait_for_end(&process, signals);
    if (status != PSD_OK) {
        exit_code = PSI_EXIT_CANNOT_START;
        psi_log(log, PSI_LOG_ERROR, "JOB-END", "%s (exit code %d)", err.text, exit_code);
    } else {
        tell_counts(&process);
        exit_code = verdict(&process);
    }
    destroy_lanes(&process);
    psi_resident_fini(&process.resident);
    close(signals);
    close(process.ended);
    return exit_code;
}
