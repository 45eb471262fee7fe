/*
 * fuzz_handshake.c - everything that is read of a peer before it has proved anything: records,
 * identities, and the handshake behind them.
 *
 * The first byte says what the rest is: an identity as the accepting side finds it, or pieces
 * (a length, then so many bytes) that come from the wire, to either side. The secret is 00..1f, so
 * that kept inputs can hold first flights whose proof is right: OpenSSL checks them, as it must.
 * What follows cannot be right, because our answer is new every time.
 *
 * tls.c is part of this file: its parsers are static.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "../../src/secure/tls.c"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

enum { WHAT_IDENTITY = 1, WHAT_CONNECTING = 2, WHAT_LOOPBACK = 4, WHAT_ALWAYS_SEALED = 8 };

/* Made at the first input and kept: a fuzz target has no other place for it. */
static struct {
    struct psi_secret *secret;
    struct psi_tls *tls[2]; /* [always sealed] */
} job;

static void
make_job(void)
{
    const int fd = memfd_create("secret", MFD_ALLOW_SEALING);
    uint8_t bytes[PSI_SECRET_BYTES];

    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)i;
    }
    psi_assert(write(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes));
    psi_assert(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) ==
               0);
    psi_assert(psi_secret_from_fd(fd, &job.secret, NULL) == PSD_OK);
    close(fd);
    for (size_t i = 0; i < 2; i++) {
        psi_assert(psi_tls_create(job.secret, "server:0.1", &job.tls[i], NULL) == PSD_OK);
    }
    psi_tls_seal_always(job.tls[1]);
}

/* Whoever gets a key for a name asked for this door, under another name, in an allowed mode. */
static void
fuzz_identity(struct session *session, const uint8_t *data, size_t size)
{
    SSL_SESSION *made = NULL;

    if (find_session(session->ssl, data, size, &made) == 1) {
        psi_assert(made != NULL);
        psi_assert(strlen(session->label) == size);
        psi_assert(strncmp(session->label, "psd1 ", 5) == 0);
        psi_assert(session->sealed || !must_seal(session));
        psi_assert(strcmp(session->peer, "server:0.1") != 0);
        psi_assert(session->peer[0] != '\0');
    } else {
        psi_assert(made == NULL);
        psi_assert(session->refusal[0] != '\0');
    }
    SSL_SESSION_free(made);
}

static void
fuzz_step(struct session *session, const uint8_t *data, size_t size)
{
    uint8_t out[PSI_AUTH_BYTES_MAX];
    psd_status status = PSD_PENDING;
    size_t made_total = 0;

    while (status == PSD_PENDING && size > 0 && made_total < sizeof(out)) {
        const size_t piece = (size_t)data[0] + 1;
        size_t here = size - 1 < piece ? size - 1 : piece;
        size_t consumed = 0;
        size_t made = 0;
        struct psd_error err = {0};

        data++;
        size--;
        here = here < tls_wants(session) ? here : tls_wants(session);
        status =
            tls_step(session, data, here, &consumed, out, sizeof(out) - made_total, &made, &err);
        psi_assert(consumed <= here);
        psi_assert(made <= sizeof(out) - made_total);
        if (status == PSD_PENDING) {
            psi_assert(tls_wants(session) > 0);
            psi_assert(tls_wants(session) <= RECORD_MAX);
        } else {
            psi_assert(err.status == status);
        }
        made_total += made;
        data += consumed;
        size -= consumed;
    }
    psi_assert(status != PSD_OK); /* nobody can know the answer to what we say */
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct session *session;
    struct psi_auth_args args;
    uint8_t what;

    if (size == 0) {
        return 0;
    }
    if (job.secret == NULL) {
        make_job();
    }
    what = data[0];
    args = (struct psi_auth_args){.connecting = (what & WHAT_CONNECTING) != 0,
                                  .loopback = (what & WHAT_LOOPBACK) != 0,
                                  .identity = "worker:3 server:0.1"};
    session = tls_create(job.tls[(what & WHAT_ALWAYS_SEALED) != 0], &args);
    psi_assert(session != NULL);
    if ((what & WHAT_IDENTITY) != 0 && !args.connecting) {
        fuzz_identity(session, data + 1, size - 1);
    } else {
        fuzz_step(session, data + 1, size - 1);
    }
    tls_destroy(session);
    return 0;
}
