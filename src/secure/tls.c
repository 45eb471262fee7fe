/*
 * tls.c - who is at the other end, proved by TLS 1.3 with a pre-shared key.
 *
 * The handshake runs over memory: the stream hands in the bytes of one record at a time, so that
 * not a byte behind the handshake is taken. In the middle of it OpenSSL asks for the key that belongs
 * to a label (tls_label.c). Then the stream either goes on with plain bytes, or OpenSSL gets the
 * socket itself (tls_records.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/tls.h"

#include <stdio.h>
#include <stdlib.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/fail.h"
#include "secure/plain.h"
#include "secure/tls_session.h"

enum { RECORD_MAX = 16384 + 256 };

static const char cipher_name[] = "TLS_AES_128_GCM_SHA256";
static const char group_names[] = "X25519:P-256";

/* ---- contexts ---------------------------------------------------------------------------- */

static SSL_CTX *
make_context(const SSL_METHOD *method)
{
    SSL_CTX *context = SSL_CTX_new(method);

    if (context == NULL) {
        return NULL;
    }
    if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, cipher_name) != 1 ||
        SSL_CTX_set1_groups_list(context, group_names) != 1 ||
        SSL_CTX_set_num_tickets(context, 0) != 1) {
        SSL_CTX_free(context);
        return NULL;
    }
    SSL_CTX_set_options(context,
                        SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    return context;
}

psd_status
psi_tls_create(const struct psi_secret *secret, const char *self, struct psi_tls **tls_p,
               struct psd_error *err)
{
    struct psi_tls *tls = calloc(1, sizeof(*tls));

    psd_status status;

    if (tls == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for TLS");
    }
    status = psi_passes_create(secret, &tls->passes, err);
    if (status != PSD_OK) {
        psi_tls_destroy(tls);
        return status;
    }
    tls->secret = secret;
    snprintf(tls->self, sizeof(tls->self), "%s", self != NULL ? self : "");
    tls->accept = make_context(TLS_server_method());
    tls->connect = make_context(TLS_client_method());
    tls->socket = psi_tls_socket_method();
    if (tls->accept == NULL || tls->connect == NULL || tls->socket == NULL) {
        psi_tls_destroy(tls);
        return psi_fail(err, PSD_ERR_INTERNAL, "set up TLS 1.3: OpenSSL refused");
    }
    SSL_CTX_set_psk_find_session_callback(tls->accept, psi_tls_find_session);
    SSL_CTX_set_psk_use_session_callback(tls->connect, psi_tls_use_session);
    *tls_p = tls;
    return PSD_OK;
}

void
psi_tls_seal_always(struct psi_tls *tls)
{
    tls->always_sealed = true;
}

psd_status
psi_tls_admit_readers(struct psi_tls *tls, struct psd_error *err)
{
    psd_status status = psi_secret_for_readers(tls->secret, &tls->readers, err);

    if (status == PSD_OK) {
        status = psi_passes_create(tls->readers, &tls->reader_passes, err);
    }
    return status;
}

void
psi_tls_name(struct psi_tls *tls, const char *self)
{
    snprintf(tls->self, sizeof(tls->self), "%s", self);
}

void
psi_tls_destroy(struct psi_tls *tls)
{
    if (tls != NULL) {
        SSL_CTX_free(tls->accept);
        SSL_CTX_free(tls->connect);
        BIO_meth_free(tls->socket);
        psi_passes_destroy(tls->passes);
        psi_passes_destroy(tls->reader_passes);
        psi_secret_destroy(tls->readers);
        free(tls);
    }
}

/* ---- the handshake ----------------------------------------------------------------------- */

static void
tls_destroy(void *object)
{
    struct session *session = object;

    SSL_free(session->ssl);
    free(session);
}

static void *
tls_create(void *credentials, const struct psi_auth_args *args)
{
    const struct psi_tls *tls = credentials;
    struct session *session = calloc(1, sizeof(*session));
    bool made = true;

    if (session == NULL) {
        return NULL;
    }
    session->tls = tls;
    session->connecting = args->connecting;
    session->loopback = args->loopback;
    snprintf(session->ends, sizeof(session->ends), "%s", args->ends != NULL ? args->ends : "");
    session->fd = -1;
    session->ssl = SSL_new(args->connecting ? tls->connect : tls->accept);
    session->in = BIO_new(BIO_s_mem());
    session->out = BIO_new(BIO_s_mem());
    if (args->connecting) {
        session->sealed = psi_tls_must_seal(session);
        made = psi_tls_make_label(session, args->identity != NULL ? args->identity : "",
                                  session->label) &&
               psi_pass_write(tls->passes, session->label);
    }
    if (!made || session->ssl == NULL || session->in == NULL || session->out == NULL) {
        BIO_free(session->in);
        BIO_free(session->out);
        tls_destroy(session);
        return NULL;
    }
    SSL_set_bio(session->ssl, session->in, session->out);
    SSL_set_app_data(session->ssl, session);
    if (args->connecting) {
        SSL_set_connect_state(session->ssl);
    } else {
        SSL_set_accept_state(session->ssl);
    }
    return session;
}

/* The rest of the record's head, then the rest of its body; never a byte of the next. */
static size_t
tls_wants(const void *object)
{
    const struct session *session = object;

    return session->head_here < RECORD_HEAD ? RECORD_HEAD - session->head_here : session->body_left;
}

/* Change of cipher, alert, handshake or data, of TLS: a browser or a scanner is told at once. */
static bool
is_record_head(const uint8_t head[RECORD_HEAD], size_t *body_p)
{
    *body_p = (size_t)head[3] << 8 | head[4];
    return head[0] >= 20 && head[0] <= 23 && head[1] == 3 && *body_p > 0 && *body_p <= RECORD_MAX;
}

static psd_status
take_record_bytes(struct session *session, const uint8_t *in, size_t bytes, size_t *used_p,
                  struct psd_error *err)
{
    size_t used = 0;

    while (used < bytes && session->head_here < RECORD_HEAD) {
        session->head[session->head_here++] = in[used++];
        if (session->head_here == RECORD_HEAD &&
            !is_record_head(session->head, &session->body_left)) {
            return psi_fail(err, PSD_ERR_REFUSED, "authentication refused: not a TLS record");
        }
    }
    if (session->head_here == RECORD_HEAD) {
        const size_t body = bytes - used < session->body_left ? bytes - used : session->body_left;

        used += body;
        session->body_left -= body;
        if (session->body_left == 0) {
            session->head_here = 0;
        }
    }
    if (used > 0 && BIO_write(session->in, in, (int)used) != (int)used) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a handshake");
    }
    *used_p = used;
    return PSD_OK;
}

/* Both ends of a wrong secret: our proof was refused (an alert), theirs does not fit our key. */
static bool
is_wrong_secret(int reason)
{
    return reason > SSL_AD_REASON_OFFSET || reason == SSL_R_BINDER_DOES_NOT_VERIFY;
}

static psd_status
refused(const struct session *session, struct psd_error *err)
{
    const unsigned long code = ERR_get_error();
    const char *words = code != 0 ? ERR_reason_error_string(code) : NULL;

    ERR_clear_error();
    if (session->refusal[0] != '\0') {
        return psi_fail(err, PSD_ERR_REFUSED, "authentication refused: %s", session->refusal);
    }
    if (session->unproved || is_wrong_secret(ERR_GET_REASON(code))) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "authentication failed: %s; do both have the secret of the same job?",
                        session->connecting ? "the proof was refused" : "the proof is wrong");
    }
    return psi_fail(err, PSD_ERR_REFUSED,
                    "authentication failed: not the handshake of a member (%s)",
                    words != NULL ? words : "no reason given");
}

/* The peer's first bytes are a frame's: it does without a secret. Only on loopback can it be a
 * member of ours that is told so; elsewhere nobody learns what listens here. */
static bool
meets_plain(const struct session *session)
{
    return session->loopback && session->head_here == RECORD_HEAD &&
           BIO_number_written(session->in) < RECORD_HEAD && psi_plain_is_frame(session->head);
}

static psd_status
refuse_plain(const struct session *session, uint8_t *out, size_t out_capacity, size_t *out_bytes_p,
             struct psd_error *err)
{
    if (session->connecting) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "authentication refused: that job runs --insecure, and this process has a "
                        "secret: start all of them with the same one");
    }
    *out_bytes_p = psi_plain_refusal(out, out_capacity);
    return psi_fail(err, PSD_ERR_REFUSED,
                    "authentication refused: it does without a secret (--insecure, PSD_INSECURE), "
                    "and this job has one");
}

static psd_status
tls_step(void *object, const uint8_t *in, size_t in_bytes, size_t *consumed_p, uint8_t *out,
         size_t out_capacity, size_t *out_bytes_p, struct psd_error *err)
{
    struct session *session = object;
    psd_status status = take_record_bytes(session, in, in_bytes, consumed_p, err);
    int code;
    int made;

    if (status != PSD_OK) {
        return meets_plain(session) ? refuse_plain(session, out, out_capacity, out_bytes_p, err)
                                    : status;
    }
    ERR_clear_error();
    code = SSL_do_handshake(session->ssl);
    made = BIO_read(session->out, out, (int)out_capacity);
    *out_bytes_p = made > 0 ? (size_t)made : 0;
    if (code == 1 && SSL_session_reused(session->ssl) == 1) {
        return PSD_OK;
    }
    if (code == 1) { /* a certificate instead of our key: whoever that is, it is no member */
        return psi_fail(err, PSD_ERR_REFUSED,
                        "authentication refused: the peer did not use the job's secret");
    }
    if (SSL_get_error(session->ssl, code) == SSL_ERROR_WANT_READ) {
        return PSD_PENDING;
    }
    return refused(session, err);
}

static bool
tls_recognises(void *credentials, const uint8_t *first, size_t bytes)
{
    return psi_pass_find(((const struct psi_tls *)credentials)->passes, first, bytes);
}

static bool
tls_recognised(const void *object)
{
    return ((const struct session *)object)->recognised;
}

static const char *
tls_peer(const void *object)
{
    return ((const struct session *)object)->peer;
}

static bool
tls_seals(const void *object)
{
    return ((const struct session *)object)->sealed;
}

const struct psi_auth_ops psi_tls_auth = {
    .listens_first = RECORD_HEAD,
    .recognises = tls_recognises,
    .create = tls_create,
    .recognised = tls_recognised,
    .wants = tls_wants,
    .step = tls_step,
    .peer = tls_peer,
    .seals = tls_seals,
    .receive = psi_tls_receive,
    .send = psi_tls_send,
    .destroy = tls_destroy,
};
