/*
 * fuzz_handshake.c - everything that is read of a peer before it has proved anything: records,
 * labels, and the handshake behind them; then the first records after it.
 *
 * Nobody can guess a key, so here nothing is checked or hidden by one: OpenSSL's library asks this
 * program whether two codes are equal, which they always are, and to decrypt, which changes
 * nothing. So inputs reach what lies behind the binder, the tags of records and Finished, and what
 * they say there is what they say on the wire. None of it is random, either: numbers that were used
 * are forgotten, and there are no session identifiers.
 *
 * The first byte says what the rest is: a label as the accepting side finds it, or the bytes of the
 * wire, to either side. The second says how many of these come at a time.
 *
 * pass.c and tls*.c are part of this file: their parsers are static.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdbool.h>
#include <stdlib.h>

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include "secure/secret.h"

/* Counts down to the call that fails; 0: none does. Thread: owned by the fuzzer. */
static unsigned calls_until_failure;

static bool
fails(void)
{
    return calls_until_failure > 0 && --calls_until_failure == 0;
}

/* What may fail for want of memory in these files. */
#define calloc(count, bytes)                (fails() ? NULL : calloc(count, bytes))
#define BIO_meth_new(type, name)            (fails() ? NULL : BIO_meth_new(type, name))
#define BIO_meth_set_ctrl(method, function) (fails() ? 0 : BIO_meth_set_ctrl(method, function))
#define BIO_new(method)                     (fails() ? NULL : BIO_new(method))
#define BIO_write(bio, bytes, count)        (fails() ? -1 : BIO_write(bio, bytes, count))
#define HMAC(type, key, key_bytes, bytes, count, mac, mac_bytes)                                   \
    (fails() ? NULL : HMAC(type, key, key_bytes, bytes, count, mac, mac_bytes))
#define SSL_CIPHER_find(ssl, id) (fails() ? NULL : SSL_CIPHER_find(ssl, id))
#define SSL_CTX_new(method)      (fails() ? NULL : SSL_CTX_new(method))
#define SSL_CTX_set_num_tickets(context, count)                                                    \
    (fails() ? 0 : SSL_CTX_set_num_tickets(context, count))
#define SSL_SESSION_new() (fails() ? NULL : SSL_SESSION_new())
#define SSL_SESSION_set_cipher(session, cipher)                                                    \
    (fails() ? 0 : SSL_SESSION_set_cipher(session, cipher))
#define SSL_new(context) (fails() ? NULL : SSL_new(context))
static int compare_codes(const void *one, const void *other, size_t count);
#define CRYPTO_memcmp       compare_codes
#define PSI_TLS_RECORDS_MAX 3 /* so that keys are replaced */

#define psi_secret_derive(secret, label, key, err)                                                 \
    (fails() ? PSD_ERR_INTERNAL : psi_secret_derive(secret, label, key, err))

#include "../../src/secure/pass.c"
#include "../../src/secure/tls.c"
#include "../../src/secure/tls_label.c"
#include "../../src/secure/tls_records.c"

#undef CRYPTO_memcmp
#undef SSL_CTX_new

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

enum {
    WHAT_LABEL = 1,
    WHAT_CONNECTING = 2,
    WHAT_LOOPBACK = 4,
    WHAT_ALWAYS_SEALED = 8,
    WHAT_ENDS = 16,    /* the connection has two ends with addresses */
    WHAT_FAILURE = 32, /* ... and the second byte, before the others, says which call fails */
};

static const char ends[] = "tcp://127.0.0.1:40312 tcp://127.0.0.1:5555";

/* ---- what libssl asks this program instead of libcrypto ---- */

/* libcrypto asks itself through the same names, and must get the truth. */
static bool
is_for_libssl(void *caller)
{
    static Dl_info libssl;
    Dl_info asks;

    if (libssl.dli_fbase == NULL) {
        psi_assert(dladdr((void *)(uintptr_t)SSL_CTX_new, &libssl) != 0);
    }
    return dladdr(caller, &asks) != 0 && asks.dli_fbase == libssl.dli_fbase;
}

static void *
find_real(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);

    psi_assert(function != NULL);
    return function;
}

__attribute__((visibility("default"))) int
CRYPTO_memcmp(const void *one, const void *other, size_t count)
{
    return is_for_libssl(__builtin_return_address(0)) ? 0 : memcmp(one, other, count);
}

/* Runs the cipher, which keeps its state right, and lets the bytes be what they were. */
__attribute__((visibility("default"))) int
EVP_CipherUpdate(EVP_CIPHER_CTX *context, unsigned char *out, int *out_bytes,
                 const unsigned char *in, int in_bytes)
{
    static int (*update)(EVP_CIPHER_CTX *, unsigned char *, int *, const unsigned char *, int);
    static uint8_t plain[RECORD_MAX];
    int code;

    if (update == NULL) {
        *(void **)&update = find_real("EVP_CipherUpdate");
    }
    if (out == NULL || !is_for_libssl(__builtin_return_address(0))) {
        return update(context, out, out_bytes, in, in_bytes);
    }
    psi_assert(in_bytes >= 0 && (size_t)in_bytes <= sizeof(plain));
    memcpy(plain, in, (size_t)in_bytes);
    code = update(context, out, out_bytes, in, in_bytes);
    memcpy(out, plain, (size_t)in_bytes);
    *out_bytes = in_bytes;
    return code;
}

__attribute__((visibility("default"))) int
EVP_CipherFinal_ex(EVP_CIPHER_CTX *context, unsigned char *out, int *out_bytes)
{
    static int (*final)(EVP_CIPHER_CTX *, unsigned char *, int *);

    if (final == NULL) {
        *(void **)&final = find_real("EVP_CipherFinal_ex");
    }
    if (!is_for_libssl(__builtin_return_address(0))) {
        return final(context, out, out_bytes);
    }
    ERR_set_mark();
    (void) final(context, out, out_bytes);
    ERR_pop_to_mark();
    *out_bytes = 0;
    return 1;
}

/* The pass, too, is always right: its code is compared by the same function. */
static int
compare_codes(const void *one, const void *other, size_t count)
{
    (void)one;
    (void)other;
    (void)count;
    return 0;
}

/* ---- the target ---- */

/* Made at the first input and kept: a fuzz target has no other place for it. */
static struct {
    struct psi_secret *secret;
    struct psi_tls *tls[2]; /* [always sealed] */
} job;

static void
make_job(void)
{
    psd_status status = PSD_ERR_NO_MEMORY;

    psi_assert(psi_secret_create(&job.secret, NULL) == PSD_OK);
    for (unsigned i = 1; status != PSD_OK; i++) { /* one call after the other fails */
        calls_until_failure = i;
        status = psi_tls_create(job.secret, NULL, &job.tls[0], NULL);
        psi_assert(status == PSD_OK || calls_until_failure == 0);
    }
    calls_until_failure = 0;
    psi_tls_destroy(job.tls[0]);
    for (size_t i = 0; i < 2; i++) {
        psi_assert(psi_tls_create(job.secret, "server:0.1", &job.tls[i], NULL) == PSD_OK);
        psi_assert(psi_tls_admit_readers(job.tls[i], NULL) == PSD_OK);
    }
    psi_tls_seal_always(job.tls[1]);
}

/* Whoever is taken for a member asked for this door, under another name, in an allowed mode,
 * through this connection. */
static void
expect_member(const struct session *session)
{
    psi_assert(session->passed);
    psi_assert(tls_recognised(session) == (strcmp(tls_peer(session), PSI_TLS_READER) != 0));
    psi_assert(strncmp(session->label, "psd1 ", 5) == 0);
    psi_assert(session->sealed || !psi_tls_must_seal(session));
    psi_assert(session->sealed || strstr(session->label, session->ends) != NULL);
    psi_assert(!is_same_member(tls_peer(session), "server:0.1"));
    psi_assert(tls_peer(session)[0] != '\0');
}

static void
fuzz_label(struct session *session, const uint8_t *data, size_t size)
{
    const bool failing = calls_until_failure > 0;
    SSL_SESSION *made = NULL;

    if (psi_tls_find_session(session->ssl, data, size, &made) == 1) {
        calls_until_failure = 0;
        psi_assert(made != NULL);
        psi_assert(strlen(session->label) == size);
        expect_member(session);
        SSL_SESSION_free(made); /* once more in the same handshake, but in no other */
        psi_assert(psi_tls_find_session(session->ssl, data, size, &made) == 1);
        SSL_SESSION_free(made);
        session->passed = false;
        psi_assert(psi_tls_find_session(session->ssl, data, size, &made) == 0);
    } else {
        psi_assert(made == NULL);
        psi_assert(session->refusal[0] != '\0' || !session->passed || failing);
    }
    SSL_SESSION_free(made);
}

static ssize_t
receive_all(struct session *session, int fd)
{
    static uint8_t into[PSI_PREFIX_BYTES + RECORD_PLAIN];
    ssize_t got;

    do {
        struct iovec iov[2] = {{.iov_base = into, .iov_len = PSI_PREFIX_BYTES},
                               {.iov_base = into + PSI_PREFIX_BYTES, .iov_len = RECORD_PLAIN}};

        got = psi_tls_receive(session, fd, iov, 2);
        psi_assert(got <= (ssize_t)sizeof(into));
    } while (got > 0);
    return got;
}

/* Until the socket is full. */
static void
send_all(struct session *session, int fd)
{
    static uint8_t from[PSI_PREFIX_BYTES + 2 * RECORD_PLAIN];
    ssize_t sent;

    do {
        struct iovec iov[3] = {{.iov_base = from, .iov_len = PSI_PREFIX_BYTES},
                               {.iov_base = from, .iov_len = 0},
                               {.iov_base = from, .iov_len = 2 * RECORD_PLAIN}};

        sent = psi_tls_send(session, fd, iov, 3);
        psi_assert(sent <= (ssize_t)sizeof(from));
    } while (sent > 0);
    psi_assert(sent == -1 && errno != 0);
}

/* What comes behind the handshake, from a socket; and an answer. */
static void
fuzz_records(struct session *session, const uint8_t *data, size_t size)
{
    ssize_t got;
    int fds[2];

    psi_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    (void)!write(fds[1], data, size);
    got = receive_all(session, fds[0]);
    psi_assert(got == 0 || errno != 0);
    shutdown(fds[1], SHUT_WR);
    (void)receive_all(session, fds[0]);
    send_all(session, fds[0]);
    close(fds[1]);
    send_all(session, fds[0]);
    close(fds[0]);
}

static void
fuzz_wire(struct session *session, size_t most, const uint8_t *data, size_t size)
{
    uint8_t out[PSI_AUTH_BYTES_MAX];
    psd_status status = PSD_PENDING;
    size_t made_total = 0;

    (void)tls_recognises((void *)(uintptr_t)session->tls, data, size);
    while (status == PSD_PENDING && size > 0 && made_total < sizeof(out)) {
        size_t here = size < most ? size : most;
        size_t consumed = 0;
        size_t made = 0;
        struct psd_error err = {0};

        here = here < tls_wants(session) ? here : tls_wants(session);
        status =
            tls_step(session, data, here, &consumed, out, sizeof(out) - made_total, &made, &err);
        psi_assert(consumed <= here);
        psi_assert(made <= sizeof(out) - made_total);
        if (status == PSD_PENDING) {
            psi_assert(consumed > 0);
            psi_assert(tls_wants(session) > 0);
            psi_assert(tls_wants(session) <= RECORD_MAX);
        } else if (status != PSD_OK) {
            psi_assert(err.status == status);
        }
        made_total += made;
        data += consumed;
        size -= consumed;
    }
    if (status == PSD_OK && !session->connecting) {
        expect_member(session);
    }
    if (status == PSD_OK && tls_seals(session)) {
        fuzz_records(session, data, size);
    }
}

/* A caller speaks first. */
static psd_status
greet(struct session *session)
{
    uint8_t out[PSI_AUTH_BYTES_MAX];
    size_t used;
    size_t made;

    return tls_step(session, NULL, 0, &used, out, sizeof(out), &made, NULL);
}

static void
fuzz_session(struct session *session, uint8_t what, const uint8_t *data, size_t size)
{
    SSL_clear_options(session->ssl, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    if ((what & (WHAT_LABEL | WHAT_CONNECTING)) == WHAT_LABEL) {
        fuzz_label(session, data, size);
    } else if (size > 0 && (!session->connecting || greet(session) == PSD_PENDING)) {
        fuzz_wire(session, data[0] == UINT8_MAX ? SIZE_MAX : (size_t)data[0] + 1, data + 1,
                  size - 1);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t head = size > 0 && (data[0] & WHAT_FAILURE) != 0 ? 2 : 1;
    struct session *session;
    struct psi_auth_args args;
    struct psi_tls *tls;
    uint8_t what;

    if (size < head) {
        return 0;
    }
    if (job.secret == NULL) {
        make_job();
    }
    what = data[0];
    tls = job.tls[(what & WHAT_ALWAYS_SEALED) != 0];
    memset(tls->passes->used, 0, sizeof(tls->passes->used));
    args = (struct psi_auth_args){.connecting = (what & WHAT_CONNECTING) != 0,
                                  .loopback = (what & WHAT_LOOPBACK) != 0,
                                  .identity = "worker:3 server:0.1",
                                  .ends = (what & WHAT_ENDS) != 0 ? ends : NULL};
    calls_until_failure = head == 2 ? data[1] : 0;
    session = tls_create(tls, &args);
    if (session != NULL) {
        fuzz_session(session, what, data + head, size - head);
        tls_destroy(session);
    } else {
        psi_assert(head == 2);
    }
    calls_until_failure = 0;
    return 0;
}
