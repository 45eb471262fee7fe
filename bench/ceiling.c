/*
 * ceiling.c - the smallest tcp parameter server that does the same work, one process per part.
 *
 * Servers block; a worker reads and writes as its sockets allow and polls when none does. As in
 * Poseidon, no process is bound to a core.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "ceiling.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fail.h"
#include "tensor.h"
#include "timer.h"

enum {
    CHUNK_BYTES = 256 * 1024, /* what was fastest; Poseidon's grid as well */
    WINDOW_BYTES = 8 * CHUNK_BYTES,
    BLOCK = 1024, /* floats added at a time: they stay in the first-level cache */
};

#if defined(__x86_64__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define CLONES
#endif

/* Thread: immutable. */
struct plan {
    uint32_t workers;
    uint32_t servers;
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

/* Offset in the tensor of byte `at` of a server's stream; *run_p: how far the stream goes on there.
 */
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

CLONES static void
apply(float *values, float *const *gradients, uint32_t workers, size_t count)
{
    const float rate = (float)TENSOR_RATE;
    float sum[BLOCK];

    for (size_t first = 0; first < count; first += BLOCK) {
        const size_t here = count - first < BLOCK ? count - first : BLOCK;
        float *value = values + first;

        memcpy(sum, gradients[0] + first, here * sizeof(*sum));
        for (uint32_t rank = 1; rank < workers; rank++) {
            const float *gradient = gradients[rank] + first;

            for (size_t i = 0; i < here; i++) {
                sum[i] += gradient[i];
            }
        }
        for (size_t i = 0; i < here; i++) {
            value[i] = value[i] - rate * sum[i];
        }
    }
}

static bool
receive_all(int fd, void *into, size_t bytes)
{
    size_t here = 0;

    while (here < bytes) {
        const ssize_t got = recv(fd, (char *)into + here, bytes - here, MSG_WAITALL);

        if (got <= 0) {
            return false;
        }
        here += (size_t)got;
    }
    return true;
}

static bool
send_all(int fd, const void *from, size_t bytes)
{
    size_t gone = 0;

    while (gone < bytes) {
        const ssize_t sent = send(fd, (const char *)from + gone, bytes - gone, MSG_NOSIGNAL);

        if (sent <= 0) {
            return false;
        }
        gone += (size_t)sent;
    }
    return true;
}

/* One chunk: from every worker, into the values, to every worker. False: the workers have gone. */
static bool
serve_chunk(const struct plan *plan, uint32_t server, float *values, float *const *gradients,
            size_t bytes)
{
    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        if (!receive_all(plan->fds[rank][server][1], gradients[rank], bytes)) {
            return false;
        }
    }
    apply(values, gradients, plan->workers, bytes / sizeof(float));
    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        if (!send_all(plan->fds[rank][server][1], values, bytes)) {
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
    float *gradients[CREW_MAX];
    uint64_t at = 0;

    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        gradients[rank] = tensor_alloc(CHUNK_BYTES);
        if (gradients[rank] == NULL) {
            return 1;
        }
    }
    if (values == NULL) {
        return 1;
    }
    if (total == 0) {
        (void)receive_all(plan->fds[0][server][1], gradients[0], CHUNK_BYTES);
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

/* Thread: owned by the worker's process. */
struct worker {
    const struct plan *plan;
    uint32_t rank;
    float *gradient;
    float *values;
    struct tensor_model model;
    uint64_t sent[CEILING_SERVERS_MAX]; /* of this round */
    uint64_t here[CEILING_SERVERS_MAX];
};

/* Whether the window lets more go to a server. */
static bool
may_send(const struct worker *worker, uint32_t server)
{
    return worker->sent[server] < stream_bytes(worker->plan, server) &&
           worker->sent[server] - worker->here[server] < WINDOW_BYTES;
}

/* Moves what one socket takes and has; true when that was something. */
static bool
move_some(struct worker *worker, uint32_t server)
{
    const struct plan *plan = worker->plan;
    const int fd = plan->fds[worker->rank][server][0];
    bool moved = false;
    uint64_t run;

    if (may_send(worker, server)) {
        const uint64_t offset = tensor_offset(plan, server, worker->sent[server], &run);
        const size_t bytes = run < CHUNK_BYTES ? run : CHUNK_BYTES;
        const ssize_t sent = send(fd, (char *)worker->gradient + offset, bytes, MSG_NOSIGNAL);

        moved = sent > 0;
        worker->sent[server] += sent > 0 ? (uint64_t)sent : 0;
    }
    if (worker->here[server] < worker->sent[server]) {
        const uint64_t offset = tensor_offset(plan, server, worker->here[server], &run);
        const ssize_t got = recv(fd, (char *)worker->values + offset, run, 0);

        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            exit(1); /* a server has gone; the runner sees that this worker has too */
        }
        moved = moved || got > 0;
        worker->here[server] += got > 0 ? (uint64_t)got : 0;
    }
    return moved;
}

static void
wait_for_any(const struct worker *worker)
{
    const struct plan *plan = worker->plan;
    struct pollfd fds[CEILING_SERVERS_MAX];

    for (uint32_t server = 0; server < plan->servers; server++) {
        fds[server] = (struct pollfd){.fd = plan->fds[worker->rank][server][0], .events = POLLIN};
        if (may_send(worker, server)) {
            fds[server].events |= POLLOUT;
        }
    }
    (void)poll(fds, plan->servers, -1);
}

static void
push_pull(struct worker *worker)
{
    bool whole;

    memset(worker->sent, 0, sizeof(worker->sent));
    memset(worker->here, 0, sizeof(worker->here));
    do {
        bool moved = false;

        whole = true;
        for (uint32_t server = 0; server < worker->plan->servers; server++) {
            if (worker->here[server] < stream_bytes(worker->plan, server)) {
                moved = move_some(worker, server) || moved;
                whole = whole && worker->here[server] == stream_bytes(worker->plan, server);
            }
        }
        if (!whole && !moved) {
            wait_for_any(worker);
        }
    } while (!whole);
}

static psd_status
follow(void *owner, const struct crew_order *order, uint64_t *elapsed_ns_p, struct psd_error *err)
{
    struct worker *worker = owner;
    uint64_t start_ns;

    tensor_spoil(worker->values, worker->plan->bytes);
    start_ns = timer_now_ns();

    for (uint64_t round = 0; round < order->rounds; round++) {
        push_pull(worker);
    }
    *elapsed_ns_p = timer_now_ns() - start_ns;
    tensor_model_advance(&worker->model, order->rounds);
    return tensor_check(&worker->model, worker->values, worker->plan->bytes / sizeof(float), err);
}

static int
run_worker(const struct plan *plan, uint32_t rank, int control)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    struct psd_error err = {0};

    if (worker == NULL) {
        return 1;
    }
    worker->plan = plan;
    worker->rank = rank;
    worker->gradient = tensor_alloc(plan->bytes);
    worker->values = tensor_alloc(plan->bytes);
    if (worker->gradient == NULL || worker->values == NULL) {
        return 1;
    }
    tensor_gradient(rank, worker->gradient, plan->bytes / sizeof(float));
    tensor_model_init(&worker->model, plan->workers);
    for (uint32_t server = 0; server < plan->servers; server++) {
        (void)fcntl(plan->fds[rank][server][0], F_SETFL, O_NONBLOCK);
    }
    return crew_follow(control, follow, worker, &err) == PSD_OK ? 0 : 1;
}

/* ---- Processes and connections ---- */

/* Loopback has no bottleneck to model: a pacing default (bbr) would halve the speed. */
static void
tune(int fd)
{
    const int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    }
}

bool
ceiling_connect(int pair_p[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *any = (struct sockaddr *)&address;
    socklen_t bytes = sizeof(address);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good;

    pair_p[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pair_p[1] = -1;
    good = listener >= 0 && pair_p[0] >= 0 && bind(listener, any, bytes) == 0 &&
           listen(listener, 1) == 0 && getsockname(listener, any, &bytes) == 0 &&
           connect(pair_p[0], any, bytes) == 0;
    if (good) {
        pair_p[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    }
    if (listener >= 0) {
        close(listener);
    }
    if (pair_p[1] < 0) {
        return false;
    }
    tune(pair_p[0]);
    tune(pair_p[1]);
    return true;
}

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

/* The runner's ends of control sockets are closed in the child: only the runner may hold them. */
static pid_t
start_process(const struct plan *plan, int worker, int server, int control, struct crew *crew)
{
    const pid_t parent = getpid();
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid != 0) {
        return pid;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    close_others(plan, worker, server);
    crew_dismiss(crew);
    _exit(worker >= 0 ? run_worker(plan, (uint32_t)worker, control)
                      : run_server(plan, (uint32_t)server));
}

static bool
start_workers(const struct plan *plan, struct ceiling *ceiling)
{
    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        int control[2];
        pid_t pid;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) != 0) {
            return false;
        }
        ceiling->crew.fds[ceiling->crew.count++] = control[0];
        pid = start_process(plan, (int)rank, -1, control[1], &ceiling->crew);
        close(control[1]);
        if (pid < 0) {
            return false;
        }
        ceiling->pids[ceiling->pid_count++] = pid;
    }
    return true;
}

static bool
start_all(const struct plan *plan, struct ceiling *ceiling)
{
    for (uint32_t i = 0; i < plan->workers; i++) {
        for (uint32_t j = 0; j < plan->servers; j++) {
            if (!ceiling_connect(plan->fds[i][j])) {
                return false;
            }
        }
    }
    for (uint32_t server = 0; server < plan->servers; server++) {
        const pid_t pid = start_process(plan, -1, (int)server, -1, &ceiling->crew);

        if (pid < 0) {
            return false;
        }
        ceiling->pids[ceiling->pid_count++] = pid;
    }
    return start_workers(plan, ceiling);
}

psd_status
ceiling_start(uint32_t workers, uint32_t servers, uint64_t bytes, struct ceiling *ceiling_p,
              struct psd_error *err)
{
    struct plan plan = {.workers = workers, .servers = servers, .bytes = bytes};
    psd_status status = PSD_OK;

    memset(ceiling_p, 0, sizeof(*ceiling_p));
    psi_assert(workers <= CREW_MAX);
    psi_assert(servers <= CEILING_SERVERS_MAX);
    plan.fds = malloc(workers * sizeof(*plan.fds));
    if (plan.fds == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "raw sockets: no memory");
    }
    memset(plan.fds, 0xff, workers * sizeof(*plan.fds)); /* all -1 */
    if (!start_all(&plan, ceiling_p)) {
        status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start %u workers and %u servers", workers,
                                servers);
    }
    close_others(&plan, -1, -1);
    free(plan.fds);
    if (status != PSD_OK) {
        ceiling_stop(ceiling_p);
    }
    return status;
}

void
ceiling_stop(struct ceiling *ceiling)
{
    crew_dismiss(&ceiling->crew);
    for (uint32_t i = 0; i < ceiling->pid_count; i++) {
        while (waitpid(ceiling->pids[i], NULL, 0) < 0 && errno == EINTR) {
        }
    }
    ceiling->pid_count = 0;
}
