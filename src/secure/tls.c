/*
 * tls.c - who is at the other end, proved by TLS 1.3 with a pre-shared key.
 *
 * The handshake runs over memory: the stream hands in the bytes of one record at a time, so that
 * not a byte behind the handshake is taken. Then the stream either goes on with plain bytes, or
 * OpenSSL gets the socket itself and every byte goes through SSL_read and SSL_write.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/tls.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/fail.h"
#include "secure/pass.h"
#include "secure/plain.h"

enum {
    RECORD_HEAD = 5,
    RECORD_MAX = 16384 + 256,
    RECORD_PLAIN = 16384,
    READ_AHEAD = 128 * 1024, /* sealed: what one recv() takes, several records */
};

/* After so many records of a sender its key is replaced. AES-GCM is good for 2^24.5 of them. */
#ifndef PSI_TLS_RECORDS_MAX
#define PSI_TLS_RECORDS_MAX (UINT64_C(1) << 23)
#endif

static const char cipher_name[] = "TLS_AES_128_GCM_SHA256";
static const unsigned char cipher_id[] = {0x13, 0x01};
static const char group_names[] = "X25519:P-256";

struct psi_tls {
    const struct psi_secret *secret;
    struct psi_passes *passes;
    SSL_CTX *accept;
    SSL_CTX *connect;
    BIO_METHOD *socket; /* how OpenSSL reaches a descriptor */
    bool always_sealed;
    char self[PSI_IDENTITY_BYTES];
};

/* Thread: owned by the connection's loop. */
struct session {
    const struct psi_tls *tls;
    SSL *ssl;
    BIO *in; /* owned by ssl, as is out */
    BIO *out;
    bool connecting;
    bool loopback;
    bool sealed;      /* TLS records follow the handshake */
    int fd;           /* ... through this descriptor; -1: still over memory */
    uint64_t records; /* ... so many sent with the present key */
    size_t head_here; /* of the record being received */
    uint8_t head[RECORD_HEAD];
    size_t body_left;
    char ends[PSI_ENDS_BYTES];
    char label[PSI_LABEL_BYTES]; /* the identity that the key was derived from */
    char peer[PSI_IDENTITY_BYTES];
    bool unproved;   /* accepting: the label's pass is of another secret */
    bool recognised; /* accepting: the label has a pass that was not used before */
    char refusal[2 * PSI_LABEL_BYTES]; /* why this side said no */
};

/* ---- identities -------------------------------------------------------------------------- */

/* All of a label but its pass; pair: "FROM TO". Returns whether it fits. */
static bool
make_label(const struct session *session, const char *pair, char label_p[PSI_LABEL_BYTES])
{
    const bool bound = !session->sealed && session->ends[0] != '\0';
    const int bytes =
        snprintf(label_p, PSI_LABEL_BYTES, "psd1 %s %s%s%s", session->sealed ? "tls" : "plain",
                 pair, bound ? " " : "", bound ? session->ends : "");

    return bytes < PSI_LABEL_BYTES;
}

/* What a label says. */
struct claim {
    char mode[8];
    char from[PSI_IDENTITY_BYTES];
    char to[PSI_IDENTITY_BYTES];
    char ends[PSI_LABEL_BYTES]; /* all between the names and the pass: "", or " FROM TO" */
};

/* Whether it is written in just this way: sscanf() is generous with blanks. */
static bool
parse_label(const char *label, struct claim *claim_p)
{
    const size_t bytes = strlen(label);
    char exact[PSI_LABEL_BYTES];
    const char *pass;
    const char *rest;
    int used = 0;

    if (bytes <= PSI_PASS_DIGITS || sscanf(label, "psd1 %7s %39s %39s%n", claim_p->mode,
                                           claim_p->from, claim_p->to, &used) != 3) {
        return false;
    }
    pass = label + bytes - PSI_PASS_DIGITS - 1;
    rest = label + used;
    snprintf(exact, sizeof(exact), "psd1 %s %s %s", claim_p->mode, claim_p->from, claim_p->to);
    if (strlen(exact) != (size_t)used || strncmp(label, exact, (size_t)used) != 0 || rest > pass ||
        *rest != ' ' || *pass != ' ') {
        return false;
    }
    snprintf(claim_p->ends, sizeof(claim_p->ends), "%.*s", (int)(pass - rest), rest);
    return true;
}

static SSL_SESSION *
session_for(const struct psi_tls *tls, SSL *ssl, const char *label)
{
    uint8_t key[PSI_KEY_BYTES];
    SSL_SESSION *made = NULL;
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, cipher_id);

    if (cipher == NULL || psi_secret_derive(tls->secret, label, key, NULL) != PSD_OK) {
        return NULL;
    }
    made = SSL_SESSION_new();
    if (made != NULL && (SSL_SESSION_set1_master_key(made, key, sizeof(key)) != 1 ||
                         SSL_SESSION_set_cipher(made, cipher) != 1 ||
                         SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION) != 1)) {
        SSL_SESSION_free(made);
        made = NULL;
    }
    OPENSSL_cleanse(key, sizeof(key));
    return made;
}

static int
use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_bytes,
            SSL_SESSION **made_p)
{
    struct session *session = SSL_get_app_data(ssl);

    (void)md; /* SHA-256 is the hash of the only cipher we offer */
    *made_p = session_for(session->tls, ssl, session->label);
    *id = (const unsigned char *)session->label;
    *id_bytes = strlen(session->label);
    return *made_p != NULL;
}

/* Plain bytes may follow the proof only where nobody else can reach them. */
static bool
must_seal(const struct session *session)
{
    return !session->loopback || session->tls->always_sealed;
}

static int
refuse(struct session *session, const char *why, const char *what)
{
    snprintf(session->refusal, sizeof(session->refusal), "%s%s", why, what);
    return 0;
}

/* A pass tells who has the secret from who has not, and a recording from what is said now. When the
 * peer is asked for another key share, the same label comes twice. */
static int
check_pass(struct session *session)
{
    uint64_t number;

    if (session->recognised) {
        return 1;
    }
    if (!psi_pass_check(session->tls->passes, session->label, &number)) {
        session->unproved = true;
        return 0;
    }
    if (!psi_pass_use(session->tls->passes, number)) {
        return refuse(session, "a recorded greeting, said again", "");
    }
    session->recognised = true;
    return 1;
}

/* The same ends as the peer's? Otherwise somebody passes its bytes on, and would own those behind
 * the handshake. */
static int
check_ends(struct session *session, const struct claim *claim)
{
    char expected[PSI_ENDS_BYTES + 1] = "";

    if (!session->sealed && session->ends[0] != '\0') {
        snprintf(expected, sizeof(expected), " %s", session->ends);
    }
    if (strcmp(claim->ends, expected) == 0) {
        return 1;
    }
    if (claim->ends[0] == '\0' || expected[0] == '\0') {
        return refuse(session, "an identity that is not ours", "");
    }
    return refuse(session,
                  "somebody relays this connection; through a forwarder set PSD_FORCE_TLS=1 at "
                  "every process of the job. The peer connected",
                  claim->ends);
}

/* A name may say more behind an @: which life of the member it is. */
static bool
is_same_member(const char *from, const char *to)
{
    const size_t bytes = strlen(to);

    return strncmp(from, to, bytes) == 0 && (from[bytes] == '\0' || from[bytes] == '@');
}

/* Everything a stranger can choose: looked at before any key is derived. */
static int
find_session(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **made_p)
{
    struct session *session = SSL_get_app_data(ssl);
    struct claim claim;

    *made_p = NULL;
    if (id_bytes == 0 || id_bytes >= sizeof(session->label) || memchr(id, 0, id_bytes) != NULL) {
        return refuse(session, "an identity of impossible length", "");
    }
    memcpy(session->label, id, id_bytes);
    session->label[id_bytes] = '\0';
    if (!parse_label(session->label, &claim)) {
        return refuse(session, "an identity that is not ours", "");
    }
    if (check_pass(session) == 0) {
        return 0;
    }
    if (strcmp(claim.to, session->tls->self) != 0) {
        return refuse(session, "this is not ", claim.to);
    }
    if (is_same_member(claim.from, claim.to)) {
        return refuse(session, "it claims to be this very process, ", claim.from);
    }
    session->sealed = strcmp(claim.mode, "tls") == 0;
    if (!session->sealed && (strcmp(claim.mode, "plain") != 0 || must_seal(session))) {
        return refuse(session, "not allowed here: mode ", claim.mode);
    }
    if (check_ends(session, &claim) == 0) {
        return 0;
    }
    snprintf(session->peer, sizeof(session->peer), "%s", claim.from);
    *made_p = session_for(session->tls, ssl, session->label);
    return *made_p != NULL;
}

/* ---- the socket, once the handshake is over ----------------------------------------------- */

/* OpenSSL's own way to a socket is write(), and SIGPIPE would end a program that is not ours. */
static int
socket_write(BIO *bio, const char *data, int bytes)
{
    const struct session *session = BIO_get_data(bio);
    const ssize_t sent = send(session->fd, data, (size_t)bytes, MSG_DONTWAIT | MSG_NOSIGNAL);

    BIO_clear_retry_flags(bio);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
        BIO_set_retry_write(bio);
    }
    return (int)sent;
}

static int
socket_read(BIO *bio, char *data, int bytes)
{
    const struct session *session = BIO_get_data(bio);
    const ssize_t got = recv(session->fd, data, (size_t)bytes, MSG_DONTWAIT);

    BIO_clear_retry_flags(bio);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        BIO_set_retry_read(bio);
    }
    return (int)got;
}

static long
socket_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH; /* nothing is kept back; all the rest means nothing here */
}

static BIO_METHOD *
make_socket_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "psd socket");

    if (method != NULL && (BIO_meth_set_write(method, socket_write) != 1 ||
                           BIO_meth_set_read(method, socket_read) != 1 ||
                           BIO_meth_set_ctrl(method, socket_control) != 1)) {
        BIO_meth_free(method);
        method = NULL;
    }
    return method;
}

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
    tls->socket = make_socket_method();
    if (tls->accept == NULL || tls->connect == NULL || tls->socket == NULL) {
        psi_tls_destroy(tls);
        return psi_fail(err, PSD_ERR_INTERNAL, "set up TLS 1.3: OpenSSL refused");
    }
    SSL_CTX_set_psk_find_session_callback(tls->accept, find_session);
    SSL_CTX_set_psk_use_session_callback(tls->connect, use_session);
    *tls_p = tls;
    return PSD_OK;
}

void
psi_tls_seal_always(struct psi_tls *tls)
{
    tls->always_sealed = true;
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
        session->sealed = must_seal(session);
        made = make_label(session, args->identity != NULL ? args->identity : "", session->label) &&
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

/* ---- after the handshake ----------------------------------------------------------------- */

static bool
tls_seals(const void *object)
{
    return ((const struct session *)object)->sealed;
}

/* From memory to the descriptor. The handshake took whole records, so nothing is left behind in
 * memory, and from now on reading ahead can only meet bytes that are OpenSSL's to open. */
static bool
take_socket(struct session *session, int fd)
{
    BIO *bio;

    if (session->fd >= 0) {
        return true;
    }
    bio = BIO_new(session->tls->socket);
    if (bio == NULL) {
        return false;
    }
    session->fd = fd;
    BIO_set_data(bio, session);
    BIO_set_init(bio, 1);
    SSL_set_bio(session->ssl, bio, bio);
    SSL_clear_mode(session->ssl, SSL_MODE_RELEASE_BUFFERS); /* a busy connection wants them again */
    SSL_set_read_ahead(session->ssl, 1);
    SSL_set_default_read_buffer_len(session->ssl, READ_AHEAD);
    return true;
}

/* Translates OpenSSL's answer into that of recvmsg() and sendmsg(). */
static ssize_t
outcome(struct session *session, int code)
{
    switch (SSL_get_error(session->ssl, code)) {
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_SYSCALL: /* errno 0: the peer closed without a word; frames know their length */
        return errno == 0 ? 0 : -1;
    default:
        ERR_clear_error();
        errno = EBADMSG; /* a record that was not made with our keys */
        return -1;
    }
}

static ssize_t
tls_receive(void *object, int fd, struct iovec *iov, int count)
{
    struct session *session = object;
    ssize_t total = 0;

    if (!take_socket(session, fd)) {
        errno = ENOMEM;
        return -1;
    }
    for (int i = 0; i < count; i++) {
        size_t filled = 0;

        while (filled < iov[i].iov_len) {
            size_t got = 0;
            int code;

            ERR_clear_error(); /* what others left there would be taken for our failure */
            errno = 0;
            code = SSL_read_ex(session->ssl, (uint8_t *)iov[i].iov_base + filled,
                               iov[i].iov_len - filled, &got);
            if (code != 1) {
                const ssize_t why = outcome(session, code);

                return total > 0 ? total : why;
            }
            filled += got;
            total += (ssize_t)got;
        }
    }
    return total;
}

/*
 * What the next record holds: straight from the first piece when that fills one, else the pieces
 * collected in `scratch`, so that a frame's head shares a record with what follows. When the socket
 * was full, the same bytes come again, perhaps with more behind them: OpenSSL allows just that.
 */
static size_t
next_record(const struct iovec *iov, int count, size_t taken, uint8_t *scratch,
            const uint8_t **from_p)
{
    size_t bytes = 0;

    if (count == 1 || iov[0].iov_len - taken >= RECORD_PLAIN) {
        *from_p = (const uint8_t *)iov[0].iov_base + taken;
        return iov[0].iov_len - taken;
    }
    for (int i = 0; i < count && bytes < RECORD_PLAIN; i++) {
        const size_t skip = i == 0 ? taken : 0;
        const size_t room = RECORD_PLAIN - bytes;
        const size_t more = iov[i].iov_len - skip < room ? iov[i].iov_len - skip : room;

        if (more > 0) {
            memcpy(scratch + bytes, (const uint8_t *)iov[i].iov_base + skip, more);
            bytes += more;
        }
    }
    *from_p = scratch;
    return bytes;
}

static bool
is_writable(int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLOUT};

    return poll(&polled, 1, 0) == 1 && (polled.revents & POLLOUT) != 0;
}

/*
 * Counts what was sent, and sends the news of a new key when it is due. A message of OpenSSL's own
 * that the socket does not take whole would stop receiving, too, until somebody sends again; so it
 * waits for a moment when the socket has room, for as many records again at most. Returns whether
 * the connection can go on.
 */
static bool
renew_key(struct session *session, size_t sent)
{
    session->records += (sent + RECORD_PLAIN - 1) / RECORD_PLAIN;
    if (session->records < PSI_TLS_RECORDS_MAX ||
        (session->records < 2 * PSI_TLS_RECORDS_MAX && !is_writable(session->fd))) {
        return true;
    }
    session->records = 0;
    ERR_clear_error();
    return SSL_key_update(session->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 &&
           SSL_do_handshake(session->ssl) == 1;
}

static ssize_t
tls_send(void *object, int fd, struct iovec *iov, int count)
{
    struct session *session = object;
    uint8_t scratch[RECORD_PLAIN];
    ssize_t total = 0;
    size_t taken = 0; /* of iov[0] */

    if (!take_socket(session, fd)) {
        errno = ENOMEM;
        return -1;
    }
    for (;;) {
        const uint8_t *from;
        size_t bytes;
        size_t sent = 0;
        int code;

        while (count > 0 && taken >= iov[0].iov_len) {
            taken -= iov[0].iov_len;
            iov++;
            count--;
        }
        if (count == 0) {
            return total;
        }
        bytes = next_record(iov, count, taken, scratch, &from);
        ERR_clear_error(); /* as in tls_receive() */
        errno = 0;
        code = SSL_write_ex(session->ssl, from, bytes, &sent);
        if (code != 1) {
            const ssize_t why = outcome(session, code);

            errno = why == 0 ? EPIPE : errno;
            return total > 0 ? total : -1;
        }
        if (!renew_key(session, sent)) {
            errno = EPROTO;
            return -1;
        }
        total += (ssize_t)sent;
        taken += sent;
    }
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
    .receive = tls_receive,
    .send = tls_send,
    .destroy = tls_destroy,
};
