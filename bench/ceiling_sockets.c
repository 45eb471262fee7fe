/*
 * ceiling_sockets.c - the smallest tcp parameter server that does the same work.
 *
 * Chunk c of the tensor lives on server c modulo servers. A worker streams its gradient while it
 * reads the new values; a server receives a chunk from every worker, adds and applies it while it
 * is in cache, and sends it back from the parameters.
 *
 * A worker may have several threads. Each has some of its connections for itself, and all of them meet
 * before and after a round.
 *
 * One worker of one thread and one server are bound to a core each; when there are more, only a single
 * server is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "ceiling_worker.h"
#include "kernel.h"
#include "process.h"
#include "stream.h"
#include "tensor.h"

enum {
    CHUNK_BYTES = 256 * 1024, /* what was fastest; Poseidon's grid as well */
    WINDOW_BYTES = 9 * CHUNK_BYTES,
};

/* Thread: immutable. */
struct plan {
    enum ceiling_wait wait;
    uint32_t workers;
    uint32_t servers;
    uint32_t threads; /* of each worker */
    uint64_t bytes;
    int (*fds)[CEILING_SERVERS_MAX][2]; /* [worker][server]: the worker's end, the server's end */
};

/* ---- Where the bytes of one connection lie in the tensor ---- */

static uint64_t
stream_bytes(const struct plan *plan, uint32_t server)
{
    const uint64_t stride = (uint64_t)plan->servers * CHUNK_BYTES;
    const uint64_t first = (uint64_t)server * CHUNK_BYTES;
    const uint64_t full = plan->bytes / stride;
    const uint64_t rest = plan->bytes % stride;
    const uint64_t more = rest > first ? rest - first : 0;

    return full * CHUNK_BYTES + (more < CHUNK_BYTES ? more : CHUNK_BYTES);
}

/* Offset in the tensor of byte `at` of a server's stream;
 * *run_p: how far the stream goes on there. */
static uint64_t
tensor_offset(const struct plan *plan, uint32_t server, uint64_t at, uint64_t *run_p)
{
    const uint64_t chunk = at / CHUNK_BYTES * plan->servers + server;
    const uint64_t within = at % CHUNK_BYTES;
    const uint64_t offset = chunk * CHUNK_BYTES + within;
    const uint64_t rest = plan->bytes - offset;

    *run_p = rest < CHUNK_BYTES - within || plan->servers == 1 ? rest : CHUNK_BYTES - within;
    return offset;
}

/* ---- A server ---- */

/* One chunk: from every worker, into the values, to every worker. False: the workers have gone. */
static bool
serve_chunk(const struct plan *plan, uint32_t server, float *values, float *const *gradients,
            size_t bytes)
{
    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        if (!stream_receive(plan->fds[rank][server][1], gradients[rank], bytes, plan->wait)) {
            return false;
        }
    }
    kernel_apply(values, gradients, plan->workers, (float)TENSOR_RATE, 0, bytes / sizeof(float));
    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        if (!stream_send(plan->fds[rank][server][1], values, bytes, plan->wait)) {
            return false;
        }
    }
    return true;
}

static int
run_server(const struct plan *plan, uint32_t server)
{
    const uint64_t total = stream_bytes(plan, server);
    float *values = tensor_alloc(total + CHUNK_BYTES);
    float *gradients[TEAM_MAX];
    uint64_t at = 0;

    if (plan->servers == 1) {
        process_bind(1);
    }
    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        gradients[rank] = tensor_alloc(CHUNK_BYTES);
        if (gradients[rank] == NULL) {
            return 1;
        }
    }
    if (values == NULL) {
        return 1;
    }
    if (total == 0) { /* nothing for this one: it waits for the end */
        char none;

        (void)recv(plan->fds[0][server][1], &none, sizeof(none), 0);
        return 0;
    }
    while (true) {
        const uint64_t rest = total - at;
        const size_t bytes = rest < CHUNK_BYTES ? rest : CHUNK_BYTES;

        if (!serve_chunk(plan, server, values + at / sizeof(float), gradients, bytes)) {
            return 0;
        }
        at = at + bytes == total ? 0 : at + bytes;
    }
}

/* ---- A worker ---- */

/* Thread: what is of a server belongs to the thread that has its connection; the rest is immutable
 * during a round. */
struct worker {
    struct ceiling_worker base;
    const struct plan *plan;
    pthread_barrier_t begun;             /* a round, by all threads ... */
    pthread_barrier_t ended;             /* ... and so it is over */
    uint64_t whole[CEILING_SERVERS_MAX]; /* bytes of a round for each server ... */
    uint64_t sent[CEILING_SERVERS_MAX];  /* ... and how far this one is */
    uint64_t here[CEILING_SERVERS_MAX];
};

/* Whether the window lets more go to a server. */
static bool
may_send(const struct worker *worker, uint32_t server)
{
    return worker->sent[server] < worker->whole[server] &&
           worker->sent[server] - worker->here[server] < WINDOW_BYTES;
}

/* Moves what one socket takes and has; true when that was something. */
static bool
move_some(struct worker *worker, uint32_t server)
{
    const struct plan *plan = worker->plan;
    const int fd = plan->fds[worker->base.rank][server][0];
    bool moved = false;
    uint64_t run;

    if (may_send(worker, server)) {
        const uint64_t offset = tensor_offset(plan, server, worker->sent[server], &run);
        const size_t bytes = run < CHUNK_BYTES ? run : CHUNK_BYTES;
        const ssize_t sent = send(fd, (char *)worker->base.gradient + offset, bytes, MSG_NOSIGNAL);

        moved = sent > 0;
        worker->sent[server] += sent > 0 ? (uint64_t)sent : 0;
    }
    if (worker->here[server] < worker->sent[server]) {
        const uint64_t offset = tensor_offset(plan, server, worker->here[server], &run);
        const ssize_t got = recv(fd, (char *)worker->base.values + offset, run, 0);

        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            exit(1); /* a server has gone; the runner sees that this worker has too */
        }
        moved = moved || got > 0;
        worker->here[server] += got > 0 ? (uint64_t)got : 0;
    }
    return moved;
}

/* Of the connections of one thread. */
static void
wait_for_any(const struct worker *worker, uint32_t thread)
{
    const struct plan *plan = worker->plan;
    struct pollfd fds[CEILING_SERVERS_MAX];
    nfds_t count = 0;

    for (uint32_t server = thread; server < plan->servers; server += plan->threads) {
        fds[count] =
            (struct pollfd){.fd = plan->fds[worker->base.rank][server][0], .events = POLLIN};
        if (may_send(worker, server)) {
            fds[count].events |= POLLOUT;
        }
        count++;
    }
    (void)poll(fds, count, -1);
}

/* What one thread has to do with a round. */
static void
exchange_some(struct worker *worker, uint32_t thread)
{
    const struct plan *plan = worker->plan;
    bool whole;

    do {
        bool moved = false;

        whole = true;
        for (uint32_t server = thread; server < plan->servers; server += plan->threads) {
            if (worker->here[server] < worker->whole[server]) {
                moved = move_some(worker, server) || moved;
                whole = whole && worker->here[server] == worker->whole[server];
            }
        }
        if (!whole && !moved && plan->wait == CEILING_BLOCK) {
            wait_for_any(worker, thread);
        }
    } while (!whole);
}

static psd_status
exchange(void *owner, struct psd_error *err)
{
    struct worker *worker = owner;
    const struct plan *plan = worker->plan;

    (void)err;
    memset(worker->sent, 0, plan->servers * sizeof(worker->sent[0]));
    memset(worker->here, 0, plan->servers * sizeof(worker->here[0]));
    (void)pthread_barrier_wait(&worker->begun);
    exchange_some(worker, 0);
    (void)pthread_barrier_wait(&worker->ended);
    return PSD_OK;
}

/* Thread: immutable. */
struct helper {
    struct worker *worker;
    uint32_t thread;
};

/* Ends with the process. */
static void *
help(void *argument)
{
    const struct helper *helper = argument;

    while (true) {
        (void)pthread_barrier_wait(&helper->worker->begun);
        exchange_some(helper->worker, helper->thread);
        (void)pthread_barrier_wait(&helper->worker->ended);
    }
    return NULL;
}

/* All have to be there, or a round would not begin. */
static bool
start_helpers(struct worker *worker)
{
    const uint32_t threads = worker->plan->threads;
    struct helper *helpers = calloc(threads, sizeof(*helpers));
    bool all = helpers != NULL && pthread_barrier_init(&worker->begun, NULL, threads) == 0 &&
               pthread_barrier_init(&worker->ended, NULL, threads) == 0;

    for (uint32_t thread = 1; thread < threads && all; thread++) {
        pthread_t id;

        helpers[thread] = (struct helper){.worker = worker, .thread = thread};
        all = pthread_create(&id, NULL, help, &helpers[thread]) == 0;
    }
    return all; /* helpers keep theirs as long as the process lives */
}

static int
run_worker(const struct plan *plan, uint32_t rank, int control)
{
    struct worker *worker = calloc(1, sizeof(*worker));

    if (worker == NULL) {
        return 1;
    }
    if (plan->workers == 1 && plan->threads == 1) {
        process_bind(0);
    }
    worker->plan = plan;
    worker->base = (struct ceiling_worker){
        .rank = rank, .bytes = plan->bytes, .exchange = exchange, .owner = worker};
    if (!ceiling_worker_init(&worker->base, TENSOR_DESCENT, plan->workers)) {
        return 1;
    }
    for (uint32_t server = 0; server < plan->servers; server++) {
        worker->whole[server] = stream_bytes(plan, server);
        (void)fcntl(plan->fds[rank][server][0], F_SETFL, O_NONBLOCK);
    }
    if (!start_helpers(worker)) {
        return 1;
    }
    return ceiling_worker_run(&worker->base, control);
}

/* ---- Start ---- */

/* Closes the ends that are not those of `worker` or of `server` (-1: none is). */
static void
close_others(const struct plan *plan, int worker, int server)
{
    for (uint32_t i = 0; i < plan->workers; i++) {
        for (uint32_t j = 0; j < plan->servers; j++) {
            if ((int)i != worker && plan->fds[i][j][0] >= 0) {
                close(plan->fds[i][j][0]);
            }
            if ((int)j != server && plan->fds[i][j][1] >= 0) {
                close(plan->fds[i][j][1]);
            }
        }
    }
}

static bool
start_all(const struct plan *plan, struct ceiling *ceiling)
{
    int control;
    pid_t pid;

    for (uint32_t i = 0; i < plan->workers; i++) {
        for (uint32_t j = 0; j < plan->servers; j++) {
            if (!ceiling_connect(plan->fds[i][j])) {
                return false;
            }
        }
    }
    for (uint32_t server = 0; server < plan->servers; server++) {
        pid = ceiling_fork_server(ceiling);
        if (pid == 0) {
            close_others(plan, -1, (int)server);
            _exit(run_server(plan, server));
        }
        if (pid < 0) {
            return false;
        }
    }
    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        pid = ceiling_fork_worker(ceiling, &control);
        if (pid == 0) {
            close_others(plan, (int)rank, -1);
            _exit(run_worker(plan, rank, control));
        }
        if (pid < 0) {
            return false;
        }
    }
    return true;
}

psd_status
ceiling_sockets_start(const struct ceiling_shape *shape, struct ceiling *ceiling_p,
                      struct psd_error *err)
{
    struct plan plan = {.wait = shape->wait,
                        .workers = shape->workers,
                        .servers = shape->servers,
                        .threads =
                            shape->threads < shape->servers ? shape->threads : shape->servers,
                        .bytes = shape->bytes};
    psd_status status = PSD_OK;

    memset(ceiling_p, 0, sizeof(*ceiling_p));
    psi_assert(plan.workers <= TEAM_MAX);
    psi_assert(plan.servers <= CEILING_SERVERS_MAX);
    psi_assert(plan.threads > 0);
    plan.fds = malloc(plan.workers * sizeof(*plan.fds));
    if (plan.fds == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "raw sockets: no memory");
    }
    memset(plan.fds, 0xff, plan.workers * sizeof(*plan.fds)); /* all -1 */
    if (!start_all(&plan, ceiling_p)) {
        status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start %u workers and %u servers",
                                plan.workers, plan.servers);
    }
    close_others(&plan, -1, -1);
    free(plan.fds);
    if (status != PSD_OK) {
        ceiling_stop(ceiling_p);
    }
    return status;
}
