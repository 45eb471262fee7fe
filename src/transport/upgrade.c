/*
 * upgrade.c - finding out whether the peer is on this host, and if so, sharing memory with it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/upgrade.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/descriptors.h"
#include "transport/stream_state.h"

enum message_kind { MESSAGE_ASK = 1, MESSAGE_OFFER, MESSAGE_NONE, MESSAGE_TAKEN, MESSAGE_DECLINED };

/* As long as the prefix of a frame, so that the same parser reads it. */
struct message {
    uint8_t magic[8];
    uint8_t kind;
    uint8_t reserved[7];
    uint8_t name[PSI_HATCH_NAME_BYTES];
    uint8_t token[PSI_HATCH_TOKEN_BYTES];
    uint8_t unused[16];
};

_Static_assert(sizeof(struct message) == PSI_PREFIX_BYTES, "read by the parser of frames");

static const uint8_t magic[8] = {'P', 'S', 'D', 'n', 'e', 'a', 'r', 1};

/* Between the OFFER and its end on either side. */
struct psi_upgrade {
    const struct psi_conn_events *events; /* the owner's, kept back */
    void *owner;
    bool accepted;
    uint8_t token[PSI_HATCH_TOKEN_BYTES]; /* accepted: what was offered */
    bool offered;
    struct psi_segment ring; /* connected: ours, until it is used */
    int socket_fd;           /* connected: introduced; the stream's old descriptor until then */
    bool introduced;
};

static const struct psi_conn_events upgrade_events;

static bool
install(struct psi_stream *stream, bool accepted)
{
    struct psi_upgrade *upgrade = calloc(1, sizeof(*upgrade));

    if (upgrade == NULL) {
        return false;
    }
    upgrade->events = stream->conn.events;
    upgrade->owner = stream->conn.owner;
    upgrade->accepted = accepted;
    upgrade->socket_fd = -1;
    stream->upgrade = upgrade;
    stream->conn.events = &upgrade_events;
    stream->conn.owner = stream;
    return true;
}

void
psi_upgrade_end(struct psi_stream *stream)
{
    struct psi_upgrade *upgrade = stream->upgrade;

    if (upgrade == NULL) {
        return;
    }
    stream->conn.events = upgrade->events;
    stream->conn.owner = upgrade->owner;
    stream->upgrade = NULL;
    psi_segment_destroy(&upgrade->ring);
    if (upgrade->socket_fd >= 0) {
        close(upgrade->socket_fd);
    }
    free(upgrade);
}

static void
say(struct psi_stream *stream, struct message *message, enum message_kind kind)
{
    memcpy(message->magic, magic, sizeof(magic));
    message->kind = (uint8_t)kind;
    psi_stream_say(stream, message);
}

static void
say_only(struct psi_stream *stream, enum message_kind kind)
{
    struct message message = {0};

    say(stream, &message, kind);
}

/* ---- Connected ---- */

bool
psi_upgrade_ask(struct psi_stream *stream)
{
    if (!stream->loop->config.lends || !install(stream, false)) {
        return false;
    }
    say_only(stream, MESSAGE_ASK);
    return true;
}

bool
psi_upgrade_holds(const struct psi_stream *stream)
{
    return stream->upgrade != NULL && !stream->upgrade->accepted;
}

static psd_status
introduce(struct psi_stream *stream, const struct message *offer, int *socket_p,
          struct psd_error *err)
{
    struct psi_upgrade *upgrade = stream->upgrade;
    struct psi_introduction introduction = {.bell_fd = stream->loop->bell.fd};
    int pair[2];
    psd_status status = psi_segment_create(&upgrade->ring, sizeof(struct psi_ring_side), err);

    if (status != PSD_OK) {
        return status;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "open a pair of sockets");
    }
    memcpy(introduction.token, offer->token, sizeof(introduction.token));
    introduction.socket_fd = pair[1];
    introduction.ring_fd = upgrade->ring.fd;
    status = psi_hatch_introduce(offer->name, &introduction, err);
    close(pair[1]);
    if (status != PSD_OK) {
        close(pair[0]);
        return status;
    }
    *socket_p = pair[0];
    return PSD_OK;
}

/* The old descriptor stays open until the answer has come: what we said must arrive. */
static psd_status
hear_offer(struct psi_stream *stream, const struct message *offer, struct psd_error *err)
{
    struct psi_upgrade *upgrade = stream->upgrade;
    const int old_fd = stream->source.fd;
    int fd = -1;
    psd_status status;

    if (stream->word_unsent > 0) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: an answer before the question",
                        stream->conn.peer);
    }
    if (introduce(stream, offer, &fd, NULL) != PSD_OK) {
        say_only(stream, MESSAGE_DECLINED);
        psi_stream_tell_open(stream);
        return PSD_OK;
    }
    say_only(stream, MESSAGE_TAKEN);
    if (stream->word_unsent > 0) { /* although nothing else is on its way */
        status = psi_fail(err, PSD_ERR_PEER_LOST, "send to %s: share memory", stream->conn.peer);
    } else {
        status = psi_loop_swap(stream->loop, &stream->source, fd, EPOLLIN, err);
    }
    if (status != PSD_OK) {
        close(fd);
        return status;
    }
    upgrade->socket_fd = old_fd;
    upgrade->introduced = true;
    return PSD_OK;
}

/* ---- Both: the ring and the bell of the other are here ---- */

/* Takes mine and the descriptors. fd is the new socket, not taken on an error. */
static psd_status
make_shm(struct psi_stream *stream, struct psi_segment *mine, int ring_fd, int bell_fd, int fd,
         struct psi_shm **shm_p, struct psd_error *err)
{
    struct psi_shm_args args = {
        .loop = stream->loop,
        .conn = &stream->conn,
        .fd = fd,
        .mine = *mine,
        .keep_descriptors = !stream->upgrade->accepted,
        .ready = psi_stream_ring_ready,
        .object = stream,
    };
    psd_status status =
        psi_segment_attach(&args.theirs, ring_fd, sizeof(struct psi_ring_side), err);

    *mine = (struct psi_segment){.fd = -1};
    if (status != PSD_OK) {
        close(bell_fd);
    } else {
        status = psi_segment_attach(&args.bell, bell_fd, sizeof(struct psi_bell), err);
    }
    if (status == PSD_OK) {
        *shm_p = psi_shm_create(&args);
        if (*shm_p == NULL) {
            status = psi_fail(err, PSD_ERR_NO_MEMORY, "%s: no memory", stream->conn.peer);
        }
    }
    if (status != PSD_OK) {
        psi_segment_destroy(&args.mine);
        psi_segment_destroy(&args.theirs);
        psi_segment_destroy(&args.bell);
    }
    return status;
}

/* ---- Connected, introduced: the answer over the new socket ---- */

static psd_status
hear_answer(struct psi_stream *stream, struct psd_error *err)
{
    struct psi_upgrade *upgrade = stream->upgrade;
    uint8_t byte;
    struct psi_unix_message answer = {.bytes = &byte, .size = sizeof(byte)};
    const int fd = stream->source.fd;
    const int got = psi_unix_receive(fd, &answer);
    struct psi_shm *shm = NULL;
    psd_status status;

    if (got < 0 && errno == EAGAIN) {
        return PSD_PENDING;
    }
    if (got <= 0) {
        return psi_fail(err, PSD_ERR_PEER_LOST, "%s: closed before it shared its memory",
                        stream->conn.peer);
    }
    if (answer.fd_count != 2) {
        psi_unix_close(&answer);
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: shared no memory", stream->conn.peer);
    }
    status = make_shm(stream, &upgrade->ring, answer.fds[0], answer.fds[1], fd, &shm, err);
    if (status == PSD_OK) {
        const int old_fd = upgrade->socket_fd;

        upgrade->socket_fd = -1;
        psi_stream_switch(stream, shm, old_fd);
    }
    return status;
}

bool
psi_upgrade_is_introduced(const struct psi_stream *stream)
{
    return stream->upgrade != NULL && stream->upgrade->introduced;
}

bool
psi_upgrade_ready(struct psi_stream *stream)
{
    struct psd_error err;
    psd_status status;

    if (!psi_upgrade_is_introduced(stream)) {
        return false;
    }
    status = hear_answer(stream, &err);
    if (status == PSD_OK) {
        psi_stream_tell_open(stream);
    } else if (status != PSD_PENDING) {
        psi_stream_end(stream, &err);
    }
    return true;
}

/* ---- Accepted ---- */

void
psi_upgrade_await(struct psi_stream *stream)
{
    (void)install(stream, true); /* without memory for it the question is a bad frame */
}

static psd_status
hear_question(struct psi_stream *stream)
{
    struct psi_upgrade *upgrade = stream->upgrade;
    struct psi_loop *loop = stream->loop;
    struct message offer = {0};

    if (!loop->config.lends ||
        getrandom(upgrade->token, sizeof(upgrade->token), 0) != (ssize_t)sizeof(upgrade->token)) {
        psi_upgrade_end(stream);
        say(stream, &offer, MESSAGE_NONE);
        return PSD_OK;
    }
    psi_hatch_listen(&loop->hatch); /* makes room for the one to come */
    upgrade->offered = true;
    memcpy(offer.name, loop->hatch.name, sizeof(offer.name));
    memcpy(offer.token, upgrade->token, sizeof(offer.token));
    say(stream, &offer, MESSAGE_OFFER);
    return PSD_OK;
}

/* Shares our side, and goes over to the new socket. */
static psd_status
hear_taken(struct psi_stream *stream, struct psd_error *err)
{
    struct psi_loop *loop = stream->loop;
    struct psi_introduction introduction;
    struct psi_segment mine;
    struct psi_shm *shm = NULL;
    const int old_fd = stream->source.fd;
    uint8_t byte = 0;
    struct psi_unix_message answer = {.bytes = &byte, .size = sizeof(byte), .fd_count = 2};
    psd_status status;

    if (!psi_hatch_take(&loop->hatch, stream->upgrade->token, &introduction)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: did not introduce itself on this host",
                        stream->conn.peer);
    }
    status = psi_segment_create(&mine, sizeof(struct psi_ring_side), err);
    if (status != PSD_OK) {
        psi_introduction_close(&introduction);
        return status;
    }
    answer.fds[0] = mine.fd;
    answer.fds[1] = loop->bell.fd;
    if (psi_unix_send(introduction.socket_fd, &answer, NULL, 0) != 0) {
        status = psi_fail_errno(err, PSD_ERR_PEER_LOST, "%s: share memory", stream->conn.peer);
        psi_segment_destroy(&mine);
        psi_introduction_close(&introduction);
        return status;
    }
    status = make_shm(stream, &mine, introduction.ring_fd, introduction.bell_fd,
                      introduction.socket_fd, &shm, err);
    if (status == PSD_OK) {
        status = psi_loop_swap(loop, &stream->source, introduction.socket_fd, EPOLLIN, err);
        if (status != PSD_OK) {
            psi_shm_close(shm);
        }
    }
    if (status != PSD_OK) {
        close(introduction.socket_fd);
        return status;
    }
    psi_stream_switch(stream, shm, old_fd);
    psi_upgrade_end(stream);
    return PSD_OK;
}

/* ---- What is heard meanwhile ---- */

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    struct psi_stream *stream = owner;

    if (memcmp(prefix, magic, sizeof(magic)) == 0) {
        *size_p = (struct psi_frame_size){0};
        return PSD_OK;
    }
    if (!stream->upgrade->accepted || stream->upgrade->offered) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: a frame while memory is being shared",
                        conn->peer);
    }
    psi_upgrade_end(stream); /* a peer that does not ask */
    return conn->events->on_prefix(conn->owner, conn, prefix, size_p, err);
}

static psd_status
on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes, void *payload,
         size_t payload_bytes, struct psd_error *err)
{
    struct psi_stream *stream = owner;
    const struct psi_upgrade *upgrade = stream->upgrade;
    struct message message;

    (void)head_bytes;
    (void)payload;
    (void)payload_bytes;
    stream->in.frame_count--; /* no frame of the owner's: a stranger stays one */
    memcpy(&message, head, sizeof(message));
    if (upgrade->accepted && !upgrade->offered && message.kind == MESSAGE_ASK) {
        return hear_question(stream);
    }
    if (upgrade->offered && message.kind == MESSAGE_TAKEN) {
        return hear_taken(stream, err);
    }
    if (upgrade->offered && message.kind == MESSAGE_DECLINED) {
        psi_upgrade_end(stream);
        return PSD_OK;
    }
    if (!upgrade->accepted && message.kind == MESSAGE_OFFER) {
        return hear_offer(stream, &message, err);
    }
    if (!upgrade->accepted && message.kind == MESSAGE_NONE) {
        psi_stream_tell_open(stream);
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_PROTOCOL, "%s: message %u while memory is being shared",
                    conn->peer, message.kind);
}

static const struct psi_conn_events upgrade_events = {
    .on_prefix = on_prefix,
    .on_frame = on_frame, /* on_close: the owner's is in place again before */
};
