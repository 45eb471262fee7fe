/*
 * tls_label.c - the label of a connection: written by who connects, checked by who accepts, and the
 * key that belongs to it. tls.h says what a label is.
 *
 * All that a stranger can choose before it has proved anything is read here, and refused with a
 * reason, before any key is derived.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "secure/tls_session.h"

/* TLS_AES_128_GCM_SHA256, the only one that tls.c offers. */
static const unsigned char cipher_id[] = {0x13, 0x01};

bool
psi_tls_make_label(const struct session *session, const char *pair, char label_p[PSI_LABEL_BYTES])
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
session_for(const struct psi_secret *secret, SSL *ssl, const char *label)
{
    uint8_t key[PSI_KEY_BYTES];
    SSL_SESSION *made = NULL;
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, cipher_id);

    if (cipher == NULL || psi_secret_derive(secret, label, key, NULL) != PSD_OK) {
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

int
psi_tls_use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_bytes,
                    SSL_SESSION **made_p)
{
    struct session *session = SSL_get_app_data(ssl);

    (void)md; /* SHA-256 is the hash of the only cipher we offer */
    *made_p = session_for(session->tls->secret, ssl, session->label);
    *id = (const unsigned char *)session->label;
    *id_bytes = strlen(session->label);
    return *made_p != NULL;
}

bool
psi_tls_must_seal(const struct session *session)
{
    return !session->loopback || session->tls->always_sealed;
}

static int
refuse(struct session *session, const char *why, const char *what)
{
    snprintf(session->refusal, sizeof(session->refusal), "%s%s", why, what);
    return 0;
}

/* The secret that belongs to a name is another one for readers. */
static bool
is_reader(const struct claim *claim)
{
    return strcmp(claim->from, PSI_TLS_READER) == 0;
}

/* A pass tells who has the secret from who has not, and a recording from what is said now. When the
 * peer is asked for another key share, the same label comes twice. A reader is told apart from others
 * who have no secret, but goes by their limits: no number of readers keeps a member out. */
static int
check_pass(struct session *session, bool reader)
{
    struct psi_passes *passes = reader ? session->tls->reader_passes : session->tls->passes;
    uint64_t number;

    if (session->passed) {
        return 1;
    }
    if (passes == NULL) {
        return refuse(session, "readers are not admitted here", "");
    }
    if (!psi_pass_check(passes, session->label, &number)) {
        session->unproved = true;
        return 0;
    }
    if (!psi_pass_use(passes, number)) {
        return refuse(session, "a recorded greeting, said again", "");
    }
    session->passed = true;
    session->recognised = !reader;
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
int
psi_tls_find_session(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **made_p)
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
    if (check_pass(session, is_reader(&claim)) == 0) {
        return 0;
    }
    if (strcmp(claim.to, session->tls->self) != 0) {
        return refuse(session, "this is not ", claim.to);
    }
    if (is_same_member(claim.from, claim.to)) {
        return refuse(session, "it claims to be this very process, ", claim.from);
    }
    session->sealed = strcmp(claim.mode, "tls") == 0;
    if (!session->sealed && (strcmp(claim.mode, "plain") != 0 || psi_tls_must_seal(session))) {
        return refuse(session, "not allowed here: mode ", claim.mode);
    }
    if (check_ends(session, &claim) == 0) {
        return 0;
    }
    snprintf(session->peer, sizeof(session->peer), "%s", claim.from);
    *made_p = session_for(is_reader(&claim) ? session->tls->readers : session->tls->secret, ssl,
                          session->label);
    return *made_p != NULL;
}
