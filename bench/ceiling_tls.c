/*
 * ceiling_tls.c - what bare TLS reaches: pairs of processes, SSL_write and SSL_read, nothing else.
 *
 * Each thread of a worker has one connection over loopback tcp, TLS 1.3 with the cipher that Poseidon
 * uses between hosts, to a server of its own, and a part of the tensor. It writes that in pieces of
 * 256 KiB and meanwhile reads it back; the server reads a piece and writes it back. Nothing is added up
 * or applied.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "base/fail.h"
#include "ceiling_worker.h"
#include "tensor.h"

enum { PIECE_BYTES = 256 * 1024, WINDOW_BYTES = 8 * PIECE_BYTES, THREADS_MAX = 64 };

static const unsigned char key[32] = "both processes know it: a key";
static const unsigned char name[] = "pair";

/* ---- The connection ---- */

static SSL_SESSION *
make_session(SSL *ssl)
{
    static const unsigned char cipher_id[] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */
    SSL_SESSION *session = SSL_SESSION_new();

    if (session != NULL) {
        SSL_SESSION_set1_master_key(session, key, sizeof(key));
        SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, cipher_id));
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
    }
    return session;
}

static int
use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_bytes,
            SSL_SESSION **session_p)
{
    (void)md;
    *id = name;
    *id_bytes = sizeof(name);
    *session_p = make_session(ssl);
    return *session_p != NULL;
}

static int
find_session(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session_p)
{
    (void)id;
    (void)id_bytes;
    *session_p = make_session(ssl);
    return *session_p != NULL;
}

/* Shakes hands over fd; NULL: that failed. */
static SSL *
open_tls(int fd, bool server)
{
    SSL_CTX *context = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    SSL *ssl;

    if (context == NULL) {
        return NULL;
    }
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_psk_use_session_callback(context, use_session);
    SSL_CTX_set_psk_find_session_callback(context, find_session);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE);
    ssl = SSL_new(context);
    SSL_CTX_free(context);
    SSL_set_fd(ssl, fd);
    return (server ? SSL_accept(ssl) : SSL_connect(ssl)) == 1 ? ssl : NULL;
}

/* ---- The server: a piece in, a piece out ---- */

static bool
move_all(SSL *ssl, uint8_t *piece, size_t bytes, bool in)
{
    size_t done = 0;

    while (done < bytes) {
        size_t moved = 0;
        const int code = in ? SSL_read_ex(ssl, piece + done, bytes - done, &moved)
                            : SSL_write_ex(ssl, piece + done, bytes - done, &moved);

        if (code != 1) {
            return false;
        }
        done += moved;
    }
    return true;
}

static int
run_server(int fd, uint64_t bytes)
{
    SSL *ssl = open_tls(fd, true);
    uint8_t *piece = malloc(PIECE_BYTES);
    uint64_t left = bytes;

    if (bytes == 0 && ssl != NULL &&
        piece != NULL) { /* nothing for this one: it waits for the end */
        (void)move_all(ssl, piece, 1, true);
        return 0;
    }
    while (ssl != NULL && piece != NULL) {
        const size_t here = left < PIECE_BYTES ? left : PIECE_BYTES;

        if (!move_all(ssl, piece, here, true) || !move_all(ssl, piece, here, false)) {
            break; /* the worker has gone */
        }
        left = left == here ? bytes : left - here;
    }
    return 0;
}

/* ---- A worker: writes and reads as the sockets allow ---- */

struct worker;

/* A connection and its part of the tensor. Thread: owned by the thread that has it. */
struct side {
    struct worker *worker;
    SSL *ssl;
    int fd;
    uint64_t bytes;
    uint8_t *gradient;
    uint8_t *values;
};

/* Thread: immutable during a round, but for sides. */
struct worker {
    struct ceiling_worker base;
    uint32_t threads;
    pthread_barrier_t begun; /* a round, by all threads ... */
    pthread_barrier_t ended; /* ... and so it is over */
    struct side sides[THREADS_MAX];
};

/* Writes or reads what goes at once; false: nothing did. */
static bool
move_some(const struct side *side, uint64_t *at, uint64_t end, bool in)
{
    const uint64_t left = end - *at;
    const size_t most = left < PIECE_BYTES ? left : PIECE_BYTES;
    size_t moved = 0;
    int code;

    if (most == 0) {
        return false;
    }
    code = in ? SSL_read_ex(side->ssl, side->values + *at, most, &moved)
              : SSL_write_ex(side->ssl, side->gradient + *at, most, &moved);
    if (code != 1) {
        const int why = SSL_get_error(side->ssl, code);

        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
            exit(1); /* the server has gone; the runner sees that this worker has too */
        }
    }
    *at += moved;
    return moved > 0;
}

static void
exchange_side(const struct side *side)
{
    uint64_t sent = 0;
    uint64_t here = 0;

    while (here < side->bytes) {
        const uint64_t window =
            here + WINDOW_BYTES < side->bytes ? here + WINDOW_BYTES : side->bytes;
        const bool wrote = move_some(side, &sent, window, false);
        const bool got = move_some(side, &here, sent, true);

        if (!wrote && !got) {
            struct pollfd poll_fd = {.fd = side->fd, .events = POLLIN};

            poll_fd.events |= sent < window ? POLLOUT : 0;
            (void)poll(&poll_fd, 1, -1);
        }
    }
}

static psd_status
exchange(void *owner, struct psd_error *err)
{
    struct worker *worker = owner;

    (void)err;
    (void)pthread_barrier_wait(&worker->begun);
    exchange_side(&worker->sides[0]);
    (void)pthread_barrier_wait(&worker->ended);
    return PSD_OK;
}

/* Ends with the process. */
static void *
help(void *argument)
{
    const struct side *side = argument;

    while (true) {
        (void)pthread_barrier_wait(&side->worker->begun);
        exchange_side(side);
        (void)pthread_barrier_wait(&side->worker->ended);
    }
    return NULL;
}

/* Elements are whole in every part; the last one has what is left. */
static uint64_t
part_begin(uint64_t bytes, uint32_t threads, uint32_t thread)
{
    return thread == threads ? bytes : bytes / sizeof(float) / threads * thread * sizeof(float);
}

static bool
start_side(struct worker *worker, uint32_t thread, int fd)
{
    struct side *side = &worker->sides[thread];
    const uint64_t bytes = worker->base.bytes;
    const uint64_t first = part_begin(bytes, worker->threads, thread);
    pthread_t id;

    *side = (struct side){
        .worker = worker,
        .ssl = open_tls(fd, false),
        .fd = fd,
        .bytes = part_begin(bytes, worker->threads, thread + 1) - first,
        .gradient = (uint8_t *)worker->base.gradient + first,
        .values = (uint8_t *)worker->base.values + first,
    };
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    return side->ssl != NULL && (thread == 0 || pthread_create(&id, NULL, help, side) == 0);
}

static int
run_worker(const struct ceiling_shape *shape, int (*pairs)[2], int control)
{
    struct worker *worker = calloc(1, sizeof(*worker));

    if (worker == NULL || pthread_barrier_init(&worker->begun, NULL, shape->threads) != 0 ||
        pthread_barrier_init(&worker->ended, NULL, shape->threads) != 0) {
        return 1;
    }
    worker->threads = shape->threads;
    worker->base =
        (struct ceiling_worker){.bytes = shape->bytes, .exchange = exchange, .owner = worker};
    if (!ceiling_worker_init(&worker->base, TENSOR_SUM, 1)) { /* an echo */
        return 1;
    }
    for (uint32_t thread = 0; thread < shape->threads; thread++) {
        if (!start_side(worker, thread, pairs[thread][0])) {
            return 1;
        }
    }
    return ceiling_worker_run(&worker->base, control);
}

/* ---- Start ---- */

/* Ends of the workers (0) or of the servers (1), but for one of them (-1: all). */
static void
close_ends(int (*pairs)[2], uint32_t threads, int end, int but)
{
    for (uint32_t thread = 0; thread < threads; thread++) {
        if ((int)thread != but && pairs[thread][end] >= 0) {
            close(pairs[thread][end]);
            pairs[thread][end] = -1;
        }
    }
}

/* One worker and its servers. What a worker before it had is closed here already. */
static bool
start_worker(const struct ceiling_shape *shape, int (*pairs)[2], struct ceiling *ceiling)
{
    int control;
    pid_t pid;

    for (uint32_t thread = 0; thread < shape->threads; thread++) {
        const uint64_t first = part_begin(shape->bytes, shape->threads, thread);
        const uint64_t bytes = part_begin(shape->bytes, shape->threads, thread + 1) - first;

        if (!ceiling_connect(pairs[thread])) {
            return false;
        }
        pid = ceiling_fork_server(ceiling);
        if (pid == 0) {
            close_ends(pairs, thread + 1, 0, -1);
            close_ends(pairs, thread + 1, 1, (int)thread);
            _exit(run_server(pairs[thread][1], bytes));
        }
        if (pid < 0) {
            return false;
        }
    }
    pid = ceiling_fork_worker(ceiling, &control);
    if (pid == 0) {
        close_ends(pairs, shape->threads, 1, -1);
        _exit(run_worker(shape, pairs, control));
    }
    return pid > 0;
}

psd_status
ceiling_tls_start(const struct ceiling_shape *shape, struct ceiling *ceiling_p,
                  struct psd_error *err)
{
    psd_status status = PSD_OK;

    memset(ceiling_p, 0, sizeof(*ceiling_p));
    psi_assert(shape->threads > 0 && shape->threads <= THREADS_MAX);
    for (uint32_t i = 0; i < shape->workers && status == PSD_OK; i++) {
        int pairs[THREADS_MAX][2];

        memset(pairs, 0xff, sizeof(pairs)); /* all -1 */
        if (!start_worker(shape, pairs, ceiling_p)) {
            status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start %u TLS pairs", shape->threads);
        }
        close_ends(pairs, shape->threads, 0, -1);
        close_ends(pairs, shape->threads, 1, -1);
    }
    if (status != PSD_OK) {
        ceiling_stop(ceiling_p);
    }
    return status;
}
