/*
 * tls_records.c - sealed bytes: after the handshake every byte goes through SSL_read and SSL_write.
 *
 * OpenSSL gets the socket itself, in a way of ours. Nothing here knows who the peer is: that was
 * proved before; here keys are replaced in time, and a frame shares records with its neighbours.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/err.h>

#include "secure/tls_session.h"

enum {
    RECORD_PLAIN = 16384,
    READ_AHEAD = 128 * 1024, /* what one recv() takes, several records */
};

/* After so many records of a sender its key is replaced. AES-GCM is good for 2^24.5 of them. */
#ifndef PSI_TLS_RECORDS_MAX
#define PSI_TLS_RECORDS_MAX (UINT64_C(1) << 23)
#endif

/* ---- the socket -------------------------------------------------------------------------- */

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

BIO_METHOD *
psi_tls_socket_method(void)
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

/* ---- its bytes --------------------------------------------------------------------------- */

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

ssize_t
psi_tls_receive(void *object, int fd, struct iovec *iov, int count)
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

ssize_t
psi_tls_send(void *object, int fd, struct iovec *iov, int count)
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
        ERR_clear_error(); /* as in psi_tls_receive() */
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
