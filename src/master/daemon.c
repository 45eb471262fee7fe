/*
 * daemon.c - the master's core in the real world: a loop, signals, somebody who waits to hear.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/exit_code.h"
#include "base/fail.h"
#include "base/monotonic.h"
#include "base/resident.h"
#include "base/signals.h"
#include "checkpoint/read.h"
#include "master/files.h"
#include "master/life_journal.h"
#include "master/master.h"
#include "rpc/identity.h"
#include "secure/harden.h"
#include "transport/address.h"
#include "transport/loop/loop.h"

/* A deadline further away than this is looked at again. */
enum { WAIT_MS_MAX = 60000 };

/* Thread: owned by the main thread. */
struct process {
    const struct psi_log *log;
    struct psi_loop *loop;
    struct psi_tls *tls;            /* NULL: insecure */
    struct life_journal *journal;   /* NULL: who started this counts lives, or there is one only */
    struct master_files *files;     /* of checkpoints; NULL: none are written */
    struct psi_checkpoint *resumed; /* NULL: the job begins anew */
    struct master *master;
    struct psi_resident resident;
    int signals;
    int ready_fd;                /* -1: nobody listens, or no more */
    int heed_fd;                 /* where it is told what psd_run has seen; -1: nowhere */
    char heard[PSI_TIDING_LINE]; /* of a line that is not complete */
    size_t heard_bytes;
};

static void
on_signal(void *owner)
{
    const struct process *process = owner;
    const int number = psi_signals_read(process->signals);

    if (number != 0) {
        master_stop(process->master, psi_signals_exit_code(number), psi_signals_text(number));
    }
}

static void
close_ready(struct process *process)
{
    if (process->ready_fd >= 0) {
        close(process->ready_fd);
    }
    process->ready_fd = -1;
}

/* Of a line that is too long, the rest is one that means nothing. */
static void
heed(struct process *process, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct psi_word word;

        process->heard[process->heard_bytes] = bytes[i] == '\n' ? '\0' : bytes[i];
        if (bytes[i] != '\n' && process->heard_bytes < sizeof(process->heard) - 1) {
            process->heard_bytes++;
            continue;
        }
        process->heard[process->heard_bytes] = '\0';
        process->heard_bytes = 0;
        if (psi_word_parse(process->heard, &word)) {
            master_heed(process->master, &word);
        }
    }
}

static void
on_word(void *owner)
{
    struct process *process = owner;
    char bytes[PSI_TIDING_LINE];
    const ssize_t count = read(process->heed_fd, bytes, sizeof(bytes));

    if (count > 0) {
        heed(process, bytes, (size_t)count);
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(process->heed_fd); /* or the loop would be woken for ever */
        process->heed_fd = -1;
    }
}

/* stdin itself becomes /dev/null, as daemons have it. */
static psd_status
watch_stdin(struct process *process, struct psd_error *err)
{
    const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    process->heed_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (null_fd < 0 || process->heed_fd < 0 || dup2(null_fd, STDIN_FILENO) != STDIN_FILENO) {
        return psi_fail_errno(err, PSD_ERR_IO, "--heed_stdin");
    }
    close(null_fd);
    fcntl(process->heed_fd, F_SETFL, fcntl(process->heed_fd, F_GETFL) | O_NONBLOCK);
    return psi_loop_watch(process->loop, process->heed_fd, on_word, process, err);
}

/* psd_run waits for this line before it starts anybody else. */
static psd_status
tell_ready(struct process *process, bool more, struct psd_error *err)
{
    char line[PSI_ADDRESS_BYTES + 1];
    const int bytes = snprintf(line, sizeof(line), "%s\n", master_address(process->master));
    const int fd = process->ready_fd;

    if (fd < 0) {
        return PSD_OK;
    }
    if (write(fd, line, (size_t)bytes) != (ssize_t)bytes) {
        return psi_fail_errno(err, PSD_ERR_IO, "write to --ready_fd %d", fd);
    }
    if (more) { /* one who does not listen must not hold the job up */
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    } else {
        close_ready(process);
    }
    return PSD_OK;
}

/* Shorter than PIPE_BUF: it is written whole or not at all. */
static void
tell(void *context, const struct psi_tiding *tiding)
{
    struct process *process = context;
    char line[PSI_TIDING_LINE];
    const size_t bytes = psi_tiding_format(tiding, line);

    if (process->ready_fd >= 0 && write(process->ready_fd, line, bytes) < 0) {
        psi_log(process->log, PSI_LOG_WARN, "UNHEARD",
                "whoever started this master does not read --ready_fd %d (%s), and hears nothing "
                "more of its members",
                process->ready_fd, strerror(errno));
        close_ready(process);
    }
}

/* Members look for the next life where the last one was. */
static psd_status
find_address(const struct master_options *options, const struct life_journal *journal,
             char address_p[PSI_ADDRESS_BYTES], struct psd_error *err)
{
    struct psi_address address;
    psd_status status;

    snprintf(address_p, PSI_ADDRESS_BYTES, "%s", options->security.listen_address);
    if (journal == NULL || !options->any_port || life_journal_port(journal) == 0) {
        return PSD_OK;
    }
    status = psi_address_parse(address_p, &address, err);
    address.port = life_journal_port(journal);
    return status == PSD_OK ? psi_address_format(&address, address_p, err) : status;
}

/* It is on the disk which life this is before anybody is let in. */
static psd_status
begin_life(const struct process *process, struct psd_error *err)
{
    struct psi_address address;
    psd_status status;

    if (process->journal == NULL) {
        return PSD_OK;
    }
    status = psi_address_parse(master_address(process->master), &address, err);
    return status == PSD_OK ? life_journal_begin(process->journal, address.port, err) : status;
}

static void
wake(void *owner)
{
    const struct process *process = owner;

    psi_loop_wake(process->loop);
}

static bool
are_same(const char *path, const char *other)
{
    struct stat here;
    struct stat there;

    return stat(path, &here) == 0 && stat(other, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

/* The generation that the job goes on from, if it is where its own are written: each server or master that lives
 * again needs it. 0: none. */
static uint64_t
spared(const struct process *process, const struct master_options *options)
{
    return process->resumed != NULL && are_same(options->checkpoint, options->resume)
               ? process->resumed->manifest.generation
               : 0;
}

/* The directory is ours before anybody is let in. */
static psd_status
open_checkpoints(struct process *process, const struct master_options *options,
                 struct master_config *config, struct psd_error *err)
{
    psd_status status = PSD_OK;

    if (options->resume != NULL) {
        status =
            options->generation != 0
                ? psi_checkpoint_open_one(&psi_disk_system, options->resume, options->generation,
                                          false, &process->resumed, err)
                : psi_checkpoint_open(&psi_disk_system, options->resume, &process->resumed, err);
        config->resumed = process->resumed;
    }
    if (status != PSD_OK || options->checkpoint == NULL) {
        return status;
    }
    status = master_files_create(options->checkpoint, options->kept, spared(process, options),
                                 config->term > 1, wake, process, &process->files, err);
    if (status == PSD_OK) {
        config->disk = master_files_disk(process->files);
        config->checkpoint_ms = options->every.ms;
        config->checkpoint_steps = options->every.steps;
        config->checkpoint_epochs = options->every.epoch;
        config->checkpoint_path = options->checkpoint;
    }
    return status;
}

/* All but where it listens, its journal and its checkpoints. */
static struct master_config
configure(struct process *process, const struct master_options *options)
{
    return (struct master_config){
        .term = options->term,
        .master_grace_ms = options->master_grace_ms,
        .workers = options->max_workers,
        .start_workers = options->min_workers != 0 ? options->min_workers : options->workers,
        .min_workers = options->min_workers,
        .size = options->workers,
        .servers = options->servers,
        .heartbeat_ms = options->heartbeat_ms,
        .dead_heartbeats = options->dead_heartbeats,
        .lost_grace_ms = options->lost_grace_ms,
        .server_grace_ms = options->server_grace_ms,
        .server_silence_ms = options->server_silence_ms,
        .server_wait_ms = options->server_wait_ms,
        .server_return_ms = options->server_return_ms,
        .replicas = options->replicas,
        .max_servers = options->max_servers,
        .move_bytes_per_s = options->move_bytes_per_s,
        .start_timeout_ms = options->start_timeout_ms,
        .late_workers = options->late_workers,
        .replacement_timeout_ms = options->replacement_timeout_ms,
        .policy = (enum psi_death_policy)options->policy,
        .tell = options->tell_joins ? tell : NULL,
        .tell_context = process,
        .heeds = options->heed_stdin,
        .cpu_ns = psi_process_cpu_ns,
        .resident = &process->resident,
    };
}

/* What it opens, finish() closes, also when it fails half-way. */
static psd_status
start(struct process *process, const struct master_options *options, struct psd_error *err)
{
    struct psi_loop_config loop_config = {
        .strangers_max = psi_descriptors_for_strangers(psi_descriptors_raise(), 1)};
    char listen_address[PSI_ADDRESS_BYTES];
    struct master_config config = configure(process, options);
    const struct psi_harden_args harden = {
        .on = options->harden, .role = PSI_HARDEN_MASTER, .checkpoint = options->checkpoint};
    psd_status status = psi_signals_open(&process->signals, err);

    config.listen_address = listen_address;
    if (status == PSD_OK && options->journal != NULL) {
        status = life_journal_open(options->journal, options->max_workers, options->servers,
                                   process->log, &process->journal, err);
    }
    if (status == PSD_OK && process->journal != NULL) {
        config.term = life_journal_term(process->journal);
    }
    if (status == PSD_OK) {
        status = find_address(options, process->journal, listen_address, err);
    }
    if (status == PSD_OK) {
        status = daemon_security_apply(&options->security, PSI_IDENTITY_MASTER, &loop_config,
                                       &process->tls, err);
    }
    if (status == PSD_OK) {
        status = psi_loop_create(&loop_config, &process->loop, err);
    }
    if (status == PSD_OK) {
        status = open_checkpoints(process, options, &config, err);
    }
    if (status == PSD_OK) {
        status = master_create(psi_loop_env(process->loop), &config, process->log, &process->master,
                               err);
    }
    if (status == PSD_OK) {
        status = begin_life(process, err);
    }
    if (status == PSD_OK) {
        status = psi_loop_watch(process->loop, process->signals, on_signal, process, err);
    }
    if (status == PSD_OK && options->heed_stdin) {
        status = watch_stdin(process, err);
    }
    if (status == PSD_OK) {
        psi_harden(&harden, process->log);
        psi_log(process->log, PSI_LOG_INFO, "LISTENING", "%s: waiting for %u worker%s, %u server%s",
                master_address(process->master), options->workers, psi_plural(options->workers),
                options->servers, psi_plural(options->servers));
        status = tell_ready(process, options->tell_joins, err);
    }
    return status;
}

static void
finish(struct process *process)
{
    master_destroy(process->master);
    master_files_destroy(process->files); /* it wakes the loop */
    psi_checkpoint_destroy(process->resumed);
    if (process->loop != NULL) {
        psi_loop_destroy(process->loop);
    }
    psi_tls_destroy(process->tls);
    if (process->signals >= 0) {
        close(process->signals);
    }
    if (process->heed_fd >= 0) {
        close(process->heed_fd);
    }
    psi_resident_fini(&process->resident);
    close_ready(process);
    life_journal_close(process->journal);
}

/* Milliseconds until the master wants to run, rounded up so that it never spins. */
static int
timeout_ms(const struct process *process)
{
    const uint64_t next_ns = master_next_ns(process->master);
    const uint64_t now_ns = psi_now_ns(psi_loop_env(process->loop));
    const uint64_t wait_ms = next_ns <= now_ns ? 0 : (next_ns - now_ns) / 1000000 + 1;

    return wait_ms < WAIT_MS_MAX ? (int)wait_ms : WAIT_MS_MAX;
}

/* The job is over, or another life goes on with it. */
static void
close_journal(const struct process *process)
{
    const uint32_t later_term = master_later_term(process->master);

    if (process->journal != NULL && later_term > 0) {
        life_journal_catch_up(process->journal, later_term);
    } else if (process->journal != NULL) {
        life_journal_over(process->journal);
    }
}

static int
run(struct process *process, struct psd_error *err)
{
    const char *text;
    int exit_code;

    master_tick(process->master);
    while (!master_finished(process->master, &exit_code, &text)) {
        if (psi_loop_run_once(process->loop, timeout_ms(process), err) != PSD_OK) {
            psi_log(process->log, PSI_LOG_ERROR, "JOB-END", "%s (exit code %d)", err->text,
                    PSI_EXIT_INTERNAL);
            return PSI_EXIT_INTERNAL;
        }
        master_tick(process->master);
    }
    close_journal(process);
    return exit_code;
}

int
master_daemon_run(const struct master_options *options, const struct psi_log *log)
{
    struct process process = {
        .log = log, .signals = -1, .ready_fd = options->ready_fd, .heed_fd = -1};
    struct psd_error err = {0};
    int exit_code;

    psi_resident_init(&process.resident);
    if (start(&process, options, &err) == PSD_OK) {
        exit_code = run(&process, &err);
    } else {
        exit_code = PSI_EXIT_CANNOT_START;
        psi_log(log, PSI_LOG_ERROR, "JOB-END", "%s (exit code %d)", err.text, exit_code);
    }
    finish(&process);
    return exit_code;
}
