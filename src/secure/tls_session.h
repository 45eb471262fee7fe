/*
 * tls_session.h - a connection that TLS proves, from inside. For tls*.c only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_SECURE_TLS_SESSION_H
#define PSI_SECURE_TLS_SESSION_H

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "secure/pass.h"
#include "secure/secret.h"
#include "transport/transport.h"

enum { RECORD_HEAD = 5 };

#define PSI_TLS_READER "reader" /* who says so proves it with the secret of readers */

struct psi_tls {
    const struct psi_secret *secret;
    struct psi_passes *passes;
    struct psi_secret *readers; /* owned, as are their passes; NULL: readers are not admitted */
    struct psi_passes *reader_passes;
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
    bool passed;     /* accepting: the label has a pass that was not used before */
    bool recognised; /* ... and it is a member's */
    char refusal[2 * PSI_LABEL_BYTES]; /* why this side said no */
};

/* ---- tls_label.c */

/* Plain bytes may follow the proof only where nobody else can reach them. */
bool psi_tls_must_seal(const struct session *session);

/* All of a label but its pass; pair: "FROM TO". Returns whether it fits. */
bool psi_tls_make_label(const struct session *session, const char *pair,
                        char label_p[PSI_LABEL_BYTES]);

/* What OpenSSL asks for the key of a label: who connects ... */
int psi_tls_use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_bytes,
                        SSL_SESSION **made_p);

/* ... and who accepts. */
int psi_tls_find_session(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **made_p);

/* ---- tls_records.c */

/* How OpenSSL reaches the descriptor of a session. NULL: no memory. */
BIO_METHOD *psi_tls_socket_method(void);

/* As in struct psi_auth_ops. */
ssize_t psi_tls_receive(void *object, int fd, struct iovec *iov, int count);
ssize_t psi_tls_send(void *object, int fd, struct iovec *iov, int count);

#endif
