/*
 * bed.c - a whole job in one test process.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bed.h"
#include "base/monotonic.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "base/log.h"
#include "client/api/context.h"
#include "client/core/state.h"
#include "master/master.h"
#include "rpc/identity.h"
#include "secure/tls.h"
#include "server/lane.h"
#include "store/half.h"
#include "transport/loop/loop.h"

#define MS_NS UINT64_C(1000000)

enum {
    LOOK_MS = 200,     /* a loop looks up at least that often */
    LINGER_MS = 500,   /* for the last frames to leave */
    FINISH_MS = 10000, /* for daemons to leave by themselves */
    ROUTE_MS = 20000,  /* to find the others of a host */
    WATCHDOG_S = 240,  /* for all tests of an executable, sanitizers included */
    OPEN_TIMEOUT_MS = 20000,
    SPIN_US = 50,
};

enum order { ORDER_RUN, ORDER_TERMINATE, ORDER_KILL };

/*
 * A master or a lane on its own thread.
 *
 * Thread: owned by its thread once started, but for `order` (atomic), `loop` (psi_loop_wake) and
 * what is guarded by the bed's lock.
 */
struct node {
    struct bed *bed;
    struct psi_tls *tls;   /* NULL: insecure */
    struct psi_loop *loop; /* NULL under bed->lock: it has ended */
    struct master *master; /* either ... */
    struct lane *lane;     /* ... or */
    pthread_t thread;
    bool started;
    _Atomic enum order order;
    bool ended; /* guarded by bed->lock, as are the next two */
    int exit_code;
    char text[512];
};

struct worker_thread {
    struct worker worker;
    worker_fn run;
    pthread_t thread;
};

struct bed {
    struct bed_config config;  /* immutable, defaults filled in */
    struct psi_log log;        /* immutable */
    struct psi_secret *secret; /* immutable; NULL: insecure */
    char secret_fd[16];        /* PSD_SECRET_FD while there is no bed */
    char address[PSI_ADDRESS_BYTES];
    struct node master;
    struct node lanes[BED_SERVERS_MAX][BED_LANES_MAX];
    struct worker_thread workers[BED_WORKERS_MAX];
    bool workers_started;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t turn;     /* guarded by lock */
    uint32_t here;     /* guarded by lock: workers at the meeting */
    uint64_t meetings; /* guarded by lock */
    bool failed;       /* guarded by lock: nobody waits for anybody any more */
};

uint64_t
bed_now_ms(void)
{
    return psi_monotonic_ms();
}

bool
bed_is_routed(const struct worker *worker, const psd_table *table)
{
    bool routed;

    pthread_mutex_lock(&worker->context->lock);
    routed = table->route_from != PSI_STEP_NEVER;
    pthread_mutex_unlock(&worker->context->lock);
    return routed;
}

void
bed_cut(const struct worker *worker, uint32_t place)
{
    psd_context *context = worker->context;
    struct psd_error reason;

    psi_fail(&reason, PSD_ERR_PEER_LOST, "cut by the test");
    pthread_mutex_lock(&context->lock);
    psi_assert(place < context->client->lane_count);
    if (context->client->lanes[place]->peer.state == PSI_PEER_UP) {
        psi_peer_reset(&context->client->lanes[place]->peer, &reason);
    }
    pthread_mutex_unlock(&context->lock);
}

bool
bed_await_route(const struct worker *worker, const psd_table *table)
{
    const uint64_t deadline_ms = bed_now_ms() + ROUTE_MS;

    while (!bed_is_routed(worker, table) && bed_now_ms() < deadline_ms) {
        (void)poll(NULL, 0, 1);
    }
    return bed_is_routed(worker, table);
}

void
bed_begin(void)
{
    struct psi_secret *secret = NULL;
    char number[16];

    alarm(WATCHDOG_S);
    if (psi_secret_create(&secret, NULL) == PSD_OK) {
        snprintf(number, sizeof(number), "%d", psi_secret_to_fd(secret, NULL));
        setenv("PSD_SECRET_FD", number, 1);
    }
    psi_secret_destroy(secret);
}

/* ---- daemons ------------------------------------------------------------------------------ */

static bool
node_finished(const struct node *node, int *exit_code_p, const char **text_p)
{
    return node->master != NULL ? master_finished(node->master, exit_code_p, text_p)
                                : lane_finished(node->lane, exit_code_p, text_p);
}

static int
node_wait_ms(const struct node *node)
{
    const uint64_t now_ns = psi_now_ns(psi_loop_env(node->loop));
    const uint64_t loop_ns = psi_loop_next_ns(node->loop);
    uint64_t next_ns =
        node->master != NULL ? master_next_ns(node->master) : lane_next_ns(node->lane);

    next_ns = loop_ns < next_ns ? loop_ns : next_ns;
    if (next_ns <= now_ns) {
        return 0;
    }
    return next_ns - now_ns > LOOK_MS * MS_NS ? LOOK_MS
                                              : (int)((next_ns - now_ns + MS_NS - 1) / MS_NS);
}

static void
node_tick(struct node *node)
{
    if (node->master != NULL) {
        master_tick(node->master);
    } else {
        lane_tick(node->lane);
    }
}

static void
node_terminate(struct node *node)
{
    if (node->master != NULL) {
        master_stop(node->master, PSI_EXIT_SIGTERM, "stopped by SIGTERM");
    } else {
        lane_stop(node->lane, PSI_EXIT_SIGTERM, "stopped by SIGTERM");
    }
}

static void
node_linger(struct node *node)
{
    const uint64_t until_ns = psi_now_ns(psi_loop_env(node->loop)) + LINGER_MS * MS_NS;

    while (psi_loop_next_ns(node->loop) != UINT64_MAX &&
           psi_now_ns(psi_loop_env(node->loop)) < until_ns &&
           psi_loop_run_once(node->loop, 10, NULL) == PSD_OK) {
    }
}

/* Closes all it had, as the end of a process does. */
static void
node_die(struct node *node, int exit_code, const char *text)
{
    pthread_mutex_lock(&node->bed->lock);
    snprintf(node->text, sizeof(node->text), "%s", text);
    node->exit_code = exit_code;
    node->ended = true;
    master_destroy(node->master);
    lane_destroy(node->lane);
    psi_loop_destroy(node->loop);
    psi_tls_destroy(node->tls);
    node->loop = NULL;
    node->tls = NULL;
    pthread_cond_broadcast(&node->bed->changed);
    pthread_mutex_unlock(&node->bed->lock);
}

static void *
node_run(void *argument)
{
    struct node *node = argument;
    struct psd_error err;
    const char *text = "";
    int exit_code = PSI_EXIT_INTERNAL;
    enum order order = ORDER_RUN;

    node_tick(node);
    while (order != ORDER_KILL && !node_finished(node, &exit_code, &text)) {
        if (psi_loop_run_once(node->loop, node_wait_ms(node), &err) != PSD_OK) {
            text = err.text;
            break;
        }
        order = atomic_load(&node->order);
        if (order == ORDER_TERMINATE) {
            node_terminate(node);
        }
        node_tick(node);
    }
    if (order != ORDER_KILL) {
        node_linger(node);
    }
    node_die(node, exit_code, text);
    return NULL;
}

static void
node_start(struct node *node)
{
    assert_int_equal(pthread_create(&node->thread, NULL, node_run, node), 0);
    node->started = true;
}

static void
node_end(struct node *node, enum order order)
{
    if (!node->started) {
        return;
    }
    atomic_store(&node->order, order);
    pthread_mutex_lock(&node->bed->lock);
    if (node->loop != NULL) {
        psi_loop_wake(node->loop);
    }
    pthread_mutex_unlock(&node->bed->lock);
    pthread_join(node->thread, NULL);
    node->started = false;
}

/* Waits until it ended by itself; false: it did not in time. */
static bool
node_wait(struct node *node)
{
    struct timespec until;
    bool ended;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += FINISH_MS / 1000;
    pthread_mutex_lock(&node->bed->lock);
    while (!node->ended &&
           pthread_cond_timedwait(&node->bed->changed, &node->bed->lock, &until) == 0) {
    }
    ended = node->ended;
    pthread_mutex_unlock(&node->bed->lock);
    return ended;
}

/* ---- the bed ------------------------------------------------------------------------------ */

static void
default_to(uint32_t *value, uint32_t fallback)
{
    if (*value == 0) {
        *value = fallback;
    }
}

static void
fill_in(struct bed_config *config)
{
    default_to(&config->workers, 1);
    default_to(&config->servers, 1);
    default_to(&config->lanes, 1);
    default_to(&config->heartbeat_ms, 100);
    default_to(&config->dead_heartbeats, 150);
    default_to(&config->lost_grace_ms, 100);
    default_to(&config->start_timeout_ms, 60000);
    default_to(&config->replacement_timeout_ms, 30000);
    default_to(&config->op_timeout_ms, 20000);
    config->memory_max = config->memory_max != 0 ? config->memory_max : UINT64_C(1) << 30;
    config->pool_bytes = config->pool_bytes != 0 ? config->pool_bytes : UINT64_C(48) << 20;
    assert_true(config->workers <= BED_WORKERS_MAX);
    assert_true(config->servers <= BED_SERVERS_MAX);
    assert_true(config->lanes <= BED_LANES_MAX);
}

/* What psd_open() of this process and the daemons prove. No worker runs yet. */
static void
begin_security(struct bed *bed)
{
    const char *fd = getenv("PSD_SECRET_FD");

    assert_non_null(fd);
    snprintf(bed->secret_fd, sizeof(bed->secret_fd), "%s", fd);
    if (bed->config.security == BED_INSECURE) {
        setenv("PSD_INSECURE", "1", 1);
        unsetenv("PSD_SECRET_FD");
        return;
    }
    assert_int_equal(psi_secret_from_fd(atoi(fd), &bed->secret, NULL), PSD_OK);
    if (bed->config.security == BED_SEALED) {
        setenv("PSD_FORCE_TLS", "1", 1);
    }
}

static void
set_hierarchy(const struct bed *bed)
{
    setenv("PSD_HIERARCHY", bed->config.flat ? "off" : "auto", 1);
}

static void
end_security(struct bed *bed)
{
    psi_secret_destroy(bed->secret);
    setenv("PSD_SECRET_FD", bed->secret_fd, 1);
    unsetenv("PSD_INSECURE");
    unsetenv("PSD_FORCE_TLS");
}

/* As workers do: shared memory, unless the environment says tcp. */
bool
bed_lends(void)
{
    const char *transport = getenv("PSD_TRANSPORT");

    return transport == NULL || strcmp(transport, "tcp") != 0;
}

static void
create_loop(struct node *node, const char *name, struct psi_loop_config config)
{
    struct bed *bed = node->bed;
    struct psd_error err;

    if (bed->secret != NULL) {
        assert_int_equal(psi_tls_create(bed->secret, name, &node->tls, &err), PSD_OK);
        if (bed->config.security == BED_SEALED) {
            psi_tls_seal_always(node->tls);
        }
        config.auth = &psi_tls_auth;
        config.credentials = node->tls;
    }
    assert_int_equal(psi_loop_create(&config, &node->loop, &err), PSD_OK);
}

static void
create_master(struct bed *bed)
{
    const struct bed_config *config = &bed->config;
    const struct master_config master_config = {
        .workers = config->max_workers > 0 ? config->max_workers : config->workers,
        .start_workers = config->max_workers > 0 ? config->workers : 0,
        .size = config->workers,
        .servers = config->servers,
        .heartbeat_ms = config->heartbeat_ms,
        .dead_heartbeats = config->dead_heartbeats,
        .lost_grace_ms = config->lost_grace_ms,
        .server_grace_ms = config->lost_grace_ms,
        .start_timeout_ms = config->start_timeout_ms,
        .replacement_timeout_ms = config->replacement_timeout_ms,
        .policy = config->policy,
        .listen_address = "tcp://127.0.0.1:0",
    };
    struct psd_error err;

    bed->master.bed = bed;
    create_loop(&bed->master, PSI_IDENTITY_MASTER, (struct psi_loop_config){0});
    assert_int_equal(master_create(psi_loop_env(bed->master.loop), &master_config, &bed->log,
                                   &bed->master.master, &err),
                     PSD_OK);
    snprintf(bed->address, sizeof(bed->address), "%s", master_address(bed->master.master));
}

static void
create_lane(struct bed *bed, uint32_t server, uint32_t index)
{
    const struct bed_config *config = &bed->config;
    const struct lane_config lane_config = {
        .server = server,
        .lane = index,
        .lanes = config->lanes,
        .master_address = bed->address,
        .listen_address = "tcp://127.0.0.1:0",
        .memory_max = config->memory_max / config->lanes,
        .pool_bytes = config->pool_bytes / config->lanes,
        .start_timeout_ms = config->start_timeout_ms,
        .kernel = config->scalar ? KERNEL_SCALAR : psi_kernel_level_best(),
        .lends = bed_lends() && !config->elsewhere,
    };
    struct node *node = &bed->lanes[server][index];
    char name[PSI_IDENTITY_BYTES];
    struct psd_error err;

    node->bed = bed;
    psi_identity_server(name, server, index);
    create_loop(node, name,
                (struct psi_loop_config){.lends = lane_config.lends, .spin_us = SPIN_US});
    assert_int_equal(
        lane_create(psi_loop_env(node->loop), &lane_config, &bed->log, &node->lane, &err), PSD_OK);
}

struct bed *
bed_start(const struct bed_config *config)
{
    struct bed *bed = calloc(1, sizeof(*bed));

    assert_non_null(bed);
    bed->config = *config;
    fill_in(&bed->config);
    if (getenv("PSD_TEST_LOG") != NULL) {
        psi_log_to_stderr(&bed->log, "bed", PSI_LOG_DEBUG);
    }
    pthread_mutex_init(&bed->lock, NULL);
    pthread_cond_init(&bed->changed, NULL);
    begin_security(bed);
    set_hierarchy(bed);
    create_master(bed);
    node_start(&bed->master);
    for (uint32_t i = 0; i < bed->config.servers - bed->config.servers_absent; i++) {
        for (uint32_t j = 0; j < bed->config.lanes; j++) {
            create_lane(bed, i, j);
            node_start(&bed->lanes[i][j]);
        }
    }
    return bed;
}

static void
each_node(struct bed *bed, enum order order)
{
    for (uint32_t i = 0; i < bed->config.servers; i++) {
        for (uint32_t j = 0; j < bed->config.lanes; j++) {
            node_end(&bed->lanes[i][j], order);
        }
    }
    node_end(&bed->master, order);
}

void
bed_stop(struct bed *bed)
{
    each_node(bed, ORDER_KILL);
    end_security(bed);
    pthread_cond_destroy(&bed->changed);
    pthread_mutex_destroy(&bed->lock);
    free(bed);
}

/* Frees the bed first: a failing assertion leaves the test, not its threads. */
static void
finish(struct bed *bed, int exit_code)
{
    char problem[640] = "";

    if (!node_wait(&bed->master)) {
        snprintf(problem, sizeof(problem), "the master did not leave");
    } else if (bed->master.exit_code != exit_code) {
        snprintf(problem, sizeof(problem), "the master's exit code is %d: %s",
                 bed->master.exit_code, bed->master.text);
    }
    for (uint32_t i = 0; i < bed->config.servers; i++) {
        for (uint32_t j = 0; j < bed->config.lanes; j++) {
            struct node *node = &bed->lanes[i][j];

            if (problem[0] != '\0' || !node->started) {
                continue;
            }
            if (!node_wait(node)) {
                snprintf(problem, sizeof(problem), "server %u lane %u did not leave", i, j);
            } else if (exit_code == PSI_EXIT_OK && node->exit_code != PSI_EXIT_OK) {
                snprintf(problem, sizeof(problem), "server %u lane %u: exit code %d: %s", i, j,
                         node->exit_code, node->text);
            }
        }
    }
    bed_stop(bed);
    if (problem[0] != '\0') {
        fail_msg("%s", problem);
    }
}

void
bed_finish(struct bed *bed)
{
    finish(bed, PSI_EXIT_OK);
}

void
bed_finish_failed(struct bed *bed, int exit_code)
{
    finish(bed, exit_code);
}

const char *
bed_address(const struct bed *bed)
{
    return bed->address;
}

void
bed_kill_server(struct bed *bed, uint32_t server)
{
    for (uint32_t j = 0; j < bed->config.lanes; j++) {
        node_end(&bed->lanes[server][j], ORDER_KILL);
    }
}

void
bed_kill_master(struct bed *bed)
{
    node_end(&bed->master, ORDER_KILL);
}

void
bed_terminate_server(struct bed *bed, uint32_t server)
{
    for (uint32_t j = 0; j < bed->config.lanes; j++) {
        node_end(&bed->lanes[server][j], ORDER_TERMINATE);
    }
}

/* ---- workers ------------------------------------------------------------------------------ */

psd_status
bed_open(struct bed *bed, const char *rank, psd_context **context_p)
{
    const struct psd_open_args args = {
        .struct_size = sizeof(args),
        .master_address = bed->address,
        .rank = rank,
        .open_timeout_ms = OPEN_TIMEOUT_MS,
        .op_timeout_ms = bed->config.op_timeout_ms,
    };

    return psd_open(&args, context_p);
}

void
worker_fail(struct worker *worker, const char *file, int line, const char *format, ...)
{
    va_list args;
    int used;

    if (worker->failure[0] != '\0') {
        return;
    }
    used = snprintf(worker->failure, sizeof(worker->failure), "worker %u at %s:%d: ", worker->rank,
                    file, line);
    va_start(args, format);
    vsnprintf(worker->failure + used, sizeof(worker->failure) - (size_t)used, format, args);
    va_end(args);
    pthread_mutex_lock(&worker->bed->lock);
    worker->bed->failed = true;
    pthread_cond_broadcast(&worker->bed->changed);
    pthread_mutex_unlock(&worker->bed->lock);
}

static void
leave(struct worker *worker)
{
    if (worker->context == NULL) {
        return;
    }
    if (worker->failure[0] != '\0') {
        psd_abandon(worker->context);
    } else if (psd_close(worker->context) != PSD_OK) {
        worker_fail(worker, __FILE__, __LINE__, "psd_close: %s", psd_last_error()->text);
    }
    worker->context = NULL;
}

bool
bed_run_one(struct bed *bed, uint32_t rank, worker_fn run, void *user, struct worker *worker)
{
    char text[12];

    *worker = (struct worker){.bed = bed, .rank = rank, .user = user};
    snprintf(text, sizeof(text), "%u", rank);
    if (bed_open(bed, text, &worker->context) != PSD_OK) {
        worker_fail(worker, __FILE__, __LINE__, "psd_open: %s", psd_last_error()->text);
        return false;
    }
    run(worker);
    leave(worker);
    return worker->failure[0] == '\0';
}

static void *
run_worker(void *argument)
{
    struct worker_thread *self = argument;

    (void)bed_run_one(self->worker.bed, self->worker.rank, self->run, self->worker.user,
                      &self->worker);
    return NULL;
}

void
bed_start_workers(struct bed *bed, worker_fn run, void *user)
{
    assert_false(bed->workers_started);
    bed->workers_started = true;
    for (uint32_t rank = 0; rank < bed->config.workers; rank++) {
        struct worker_thread *self = &bed->workers[rank];

        self->worker = (struct worker){.bed = bed, .rank = rank, .user = user};
        self->run = run;
        assert_int_equal(pthread_create(&self->thread, NULL, run_worker, self), 0);
    }
}

void
bed_join_workers(struct bed *bed)
{
    char failure[sizeof(bed->workers[0].worker.failure)] = "";

    for (uint32_t rank = 0; rank < bed->config.workers; rank++) {
        pthread_join(bed->workers[rank].thread, NULL);
        if (failure[0] == '\0') {
            memcpy(failure, bed->workers[rank].worker.failure, sizeof(failure));
        }
    }
    bed->workers_started = false;
    if (failure[0] != '\0') {
        bed_stop(bed);
        fail_msg("%s", failure);
    }
}

void
bed_run(struct bed *bed, worker_fn run, void *user)
{
    bed_start_workers(bed, run, user);
    bed_join_workers(bed);
}

void
bed_meet(struct bed *bed)
{
    uint64_t meeting;

    pthread_mutex_lock(&bed->lock);
    meeting = bed->meetings;
    if (++bed->here == bed->config.workers) {
        bed->here = 0;
        bed->meetings++;
        pthread_cond_broadcast(&bed->changed);
    }
    while (bed->meetings == meeting && !bed->failed) {
        pthread_cond_wait(&bed->changed, &bed->lock);
    }
    pthread_mutex_unlock(&bed->lock);
}

void
bed_wait_turn(struct bed *bed, uint64_t turn)
{
    pthread_mutex_lock(&bed->lock);
    while (bed->turn < turn && !bed->failed) {
        pthread_cond_wait(&bed->changed, &bed->lock);
    }
    pthread_mutex_unlock(&bed->lock);
}

void
bed_next_turn(struct bed *bed)
{
    pthread_mutex_lock(&bed->lock);
    bed->turn++;
    pthread_cond_broadcast(&bed->changed);
    pthread_mutex_unlock(&bed->lock);
}

/* ---- shorthand ---------------------------------------------------------------------------- */

static psd_status
finish_op(psd_status status, psd_op *op)
{
    if (status == PSD_OK) {
        status = psd_wait(op, PSD_FOREVER);
        psd_op_release(op);
    }
    return status;
}

psd_status
push(psd_table *table, uint64_t step, const void *gradient)
{
    psd_op *op = NULL;
    const psd_status status = psd_push(table, TRANSFER(step, .gradient = gradient), &op);

    return finish_op(status, op);
}

psd_status
pull(psd_table *table, uint64_t step, void *values)
{
    psd_op *op = NULL;
    const psd_status status = psd_pull(table, TRANSFER(step, .values = values), &op);

    return finish_op(status, op);
}

psd_status
push_pull(psd_table *table, uint64_t step, const void *gradient, void *values)
{
    psd_op *op = NULL;
    const psd_status status =
        psd_push_pull(table, TRANSFER(step, .gradient = gradient, .values = values), &op);

    return finish_op(status, op);
}

uint64_t
mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) ^ (b + 1) * UINT64_C(0xbf58476d1ce4e5b9) ^
                 (c + 1) * UINT64_C(0x94d049bb133111eb);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static double
awkward_number(uint64_t bits)
{
    const double fraction = 1.0 + (double)(bits >> 12) * 0x1p-52;
    const int exponent = (int)(bits % 25) - 12;
    double power = 1.0;

    if (bits % 97 == 0) {
        return (bits & 1024) != 0 ? 0.0 : -0.0;
    }
    for (int i = 0; i < exponent; i++) {
        power *= 2;
    }
    for (int i = 0; i > exponent; i--) {
        power /= 2;
    }
    return (bits & 2048) != 0 ? fraction * power : -fraction * power;
}

void
awkward(psd_dtype dtype, uint32_t rank, uint64_t step, uint64_t first, uint64_t count, void *to)
{
    uint8_t *out = to;

    for (uint64_t i = 0; i < count; i++) {
        const double number = awkward_number(mix(rank, step, first + i));
        const float single = (float)number;
        const uint16_t half = dtype == PSD_F16 ? f16_from_float(single) : bf16_from_float(single);

        switch (dtype) {
        case PSD_F64:
            memcpy(out + 8 * i, &number, 8);
            break;
        case PSD_F32:
            memcpy(out + 4 * i, &single, 4);
            break;
        case PSD_F16:
        case PSD_BF16:
            memcpy(out + 2 * i, &half, 2);
            break;
        }
    }
}
