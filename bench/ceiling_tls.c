/*
 * ceiling_tls.c - what bare TLS reaches: two processes, SSL_write and SSL_read, nothing else.
 *
 * One connection over loopback tcp, TLS 1.3 with the cipher that Poseidon uses between hosts. The
 * worker writes the tensor in pieces of 256 KiB and meanwhile reads it back; the server reads a
 * piece and writes it back. Nothing is added up or applied.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "base/fail.h"
#include "ceiling.h"
#include "rounds.h"
#include "tensor.h"

enum { PIECE_BYTES = 256 * 1024, WINDOW_BYTES = 8 * PIECE_BYTES };

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

    while (ssl != NULL && piece != NULL) {
        const size_t here = left < PIECE_BYTES ? left : PIECE_BYTES;

        if (!move_all(ssl, piece, here, true) || !move_all(ssl, piece, here, false)) {
            break; /* the worker has gone */
        }
        left = left == here ? bytes : left - here;
    }
    return 0;
}

/* ---- The worker: writes and reads as the socket allows ---- */

/* Thread: owned by the worker's process. */
struct worker {
    SSL *ssl;
    int fd;
    uint64_t bytes;
    uint8_t *gradient;
    uint8_t *values;
    struct tensor_model model;
};

/* Writes or reads what goes at once; false: nothing did. */
static bool
move_some(const struct worker *worker, uint64_t *at, uint64_t end, bool in)
{
    const uint64_t left = end - *at;
    const size_t most = left < PIECE_BYTES ? left : PIECE_BYTES;
    size_t moved = 0;
    int code;

    if (most == 0) {
        return false;
    }
    code = in ? SSL_read_ex(worker->ssl, worker->values + *at, most, &moved)
              : SSL_write_ex(worker->ssl, worker->gradient + *at, most, &moved);
    if (code != 1) {
        const int why = SSL_get_error(worker->ssl, code);

        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
            exit(1); /* the server has gone; the runner sees that this worker has too */
        }
    }
    *at += moved;
    return moved > 0;
}

static psd_status
exchange(void *owner, struct psd_error *err)
{
    const struct worker *worker = owner;
    uint64_t sent = 0;
    uint64_t here = 0;

    (void)err;
    while (here < worker->bytes) {
        const uint64_t window =
            here + WINDOW_BYTES < worker->bytes ? here + WINDOW_BYTES : worker->bytes;
        const bool wrote = move_some(worker, &sent, window, false);
        const bool got = move_some(worker, &here, sent, true);

        if (!wrote && !got) {
            struct pollfd poll_fd = {.fd = worker->fd, .events = POLLIN};

            poll_fd.events |= sent < window ? POLLOUT : 0;
            (void)poll(&poll_fd, 1, -1);
        }
    }
    return PSD_OK;
}

static psd_status
follow(void *owner, const struct team_order *order, struct team_times *times, struct psd_error *err)
{
    struct worker *worker = owner;
    const struct rounds rounds = {
        .gradient = (float *)(void *)worker->gradient,
        .values = (const float *)(const void *)worker->values,
        .model = &worker->model,
        .exchange = exchange,
        .owner = worker,
    };

    tensor_spoil(worker->values, worker->bytes);
    return rounds_run(&rounds, order, times, err);
}

static int
run_worker(int fd, uint64_t bytes, int control)
{
    struct worker worker = {.ssl = open_tls(fd, false),
                            .fd = fd,
                            .bytes = bytes,
                            .gradient = tensor_alloc(bytes),
                            .values = tensor_alloc(bytes)};
    struct psd_error err = {0};

    if (worker.ssl == NULL || worker.gradient == NULL || worker.values == NULL) {
        return 1;
    }
    tensor_model_init(&worker.model, TENSOR_SUM, 1, bytes / sizeof(float)); /* an echo */
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    return team_follow(control, follow, &worker, &err) == PSD_OK ? 0 : 1;
}

/* ---- Start ---- */

static bool
start_both(const int pair[2], uint64_t bytes, struct ceiling *ceiling)
{
    int control;
    pid_t pid = ceiling_fork_server(ceiling);

    if (pid == 0) {
        close(pair[0]);
        _exit(run_server(pair[1], bytes));
    }
    if (pid < 0) {
        return false;
    }
    pid = ceiling_fork_worker(ceiling, &control);
    if (pid == 0) {
        close(pair[1]);
        _exit(run_worker(pair[0], bytes, control));
    }
    return pid > 0;
}

psd_status
ceiling_tls_start(uint64_t bytes, struct ceiling *ceiling_p, struct psd_error *err)
{
    psd_status status = PSD_OK;
    int pair[2];

    memset(ceiling_p, 0, sizeof(*ceiling_p));
    if (!ceiling_connect(pair)) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start a TLS pair");
    }
    if (!start_both(pair, bytes, ceiling_p)) {
        status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start a TLS pair");
        ceiling_stop(ceiling_p);
    }
    close(pair[0]);
    close(pair[1]);
    return status;
}
