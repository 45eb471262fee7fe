/*
 * tls_pair.c - what bare TLS reaches: two processes, SSL_write and SSL_read, nothing else.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tls_pair.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "base/fail.h"
#include "tensor.h"
#include "timer.h"

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

static void
send_and_receive(const struct worker *worker)
{
    uint64_t sent = 0;
    uint64_t here = 0;

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
}

static psd_status
follow(void *owner, const struct crew_order *order, uint64_t *elapsed_ns_p, struct psd_error *err)
{
    const struct worker *worker = owner;
    uint64_t start_ns;

    memset(worker->values, 0, worker->bytes);
    start_ns = timer_now_ns();
    for (uint64_t round = 0; round < order->rounds; round++) {
        send_and_receive(worker);
    }
    *elapsed_ns_p = timer_now_ns() - start_ns;
    if (memcmp(worker->gradient, worker->values, worker->bytes) != 0) {
        return psi_fail(err, PSD_ERR_CORRUPT, "TLS pair: what came back is not what was sent");
    }
    return PSD_OK;
}

static int
run_worker(int fd, uint64_t bytes, int control)
{
    struct worker worker = {.ssl = open_tls(fd, false),
                            .fd = fd,
                            .bytes = bytes,
                            .gradient = (uint8_t *)tensor_alloc(bytes),
                            .values = (uint8_t *)tensor_alloc(bytes)};
    struct psd_error err = {0};

    if (worker.ssl == NULL || worker.gradient == NULL || worker.values == NULL) {
        return 1;
    }
    tensor_gradient(0, (float *)(void *)worker.gradient, bytes / sizeof(float));
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    return crew_follow(control, follow, &worker, &err) == PSD_OK ? 0 : 1;
}

/* ---- Processes ---- */

/* The runner's ends stay with the runner alone. */
static pid_t
start_process(struct crew *crew, const int pair[2], uint64_t bytes, int control)
{
    const bool server = control < 0;
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
    (void)signal(SIGPIPE, SIG_IGN);
    crew_dismiss(crew);
    close(pair[server ? 0 : 1]);
    _exit(server ? run_server(pair[1], bytes) : run_worker(pair[0], bytes, control));
}

psd_status
tls_pair_start(uint64_t bytes, struct ceiling *pair_p, struct psd_error *err)
{
    int pair[2];
    int control[2];
    pid_t pids[2] = {-1, -1};

    memset(pair_p, 0, sizeof(*pair_p));
    if (!ceiling_connect(pair)) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start a TLS pair");
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) == 0) {
        pair_p->crew.fds[pair_p->crew.count++] = control[0];
        pids[0] = start_process(&pair_p->crew, pair, bytes, -1);
        pids[1] = start_process(&pair_p->crew, pair, bytes, control[1]);
        close(control[1]);
    }
    close(pair[0]);
    close(pair[1]);
    for (size_t i = 0; i < 2; i++) {
        if (pids[i] > 0) {
            pair_p->pids[pair_p->pid_count++] = pids[i];
        }
    }
    if (pair_p->pid_count < 2) {
        psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start a TLS pair");
        ceiling_stop(pair_p);
        return err->status;
    }
    return PSD_OK;
}
