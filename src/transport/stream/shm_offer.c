/*
 * shm_offer.c - finding out whether the peer is on this host, and if so, sharing memory with it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/stream/shm_offer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/shm/descriptors.h"
#include "transport/shm/shm_format.h"
#include "transport/stream/stream_state.h"

/* Between the OFFER and its end on either side. */
struct psi_shm_offer {
    const struct psi_conn_events *events; /* the owner's, kept back */
    void *owner;
    bool accepted;
    uint8_t token[PSI_SHM_MEET_TOKEN_BYTES]; /* accepted: what was offered */
    bool offered;
    struct psi_segment ring; /* connected: ours, until it is used */
    int socket_fd;           /* connected: our end of the new one; -1: not introduced */
};

static const struct psi_conn_events offer_events;

static bool
install(struct psi_stream *stream, bool accepted)
{
    struct psi_shm_offer *shm_offer = calloc(1, sizeof(*shm_offer));

    if (shm_offer == NULL) {
        return false;
    }
    shm_offer->events = stream->conn.events;
    shm_offer->owner = stream->conn.owner;
    shm_offer->accepted = accepted;
    shm_offer->socket_fd = -1;
    stream->shm_offer = shm_offer;
    stream->conn.events = &offer_events;
    stream->conn.owner = stream;
    return true;
}

void
psi_shm_offer_end(struct psi_stream *stream)
{
    struct psi_shm_offer *shm_offer = stream->shm_offer;

    if (shm_offer == NULL) {
        return;
    }
    stream->conn.events = shm_offer->events;
    stream->conn.owner = shm_offer->owner;
    stream->shm_offer = NULL;
    psi_segment_destroy(&shm_offer->ring);
    if (shm_offer->socket_fd >= 0) {
        close(shm_offer->socket_fd);
    }
    free(shm_offer);
}

static void
say(struct psi_stream *stream, struct psi_shm_word *word, enum psi_shm_word_kind kind)
{
    memcpy(word->magic, PSI_SHM_WORD_MAGIC, sizeof(word->magic));
    word->kind = (uint8_t)kind;
    psi_stream_say(stream, word);
}

static void
say_only(struct psi_stream *stream, enum psi_shm_word_kind kind)
{
    struct psi_shm_word word = {0};

    say(stream, &word, kind);
}

/* ---- Connected ---- */

bool
psi_shm_offer_ask(struct psi_stream *stream)
{
    if (!stream->loop->config.lends || !install(stream, false)) {
        return false;
    }
    say_only(stream, PSI_SHM_ASK);
    return true;
}

bool
psi_shm_offer_holds(const struct psi_stream *stream)
{
    return stream->shm_offer != NULL &&
           (!stream->shm_offer->accepted || stream->shm_offer->offered);
}

bool
psi_shm_offer_is_asking(const struct psi_stream *stream)
{
    return stream->shm_offer != NULL && !stream->shm_offer->accepted;
}

static psd_status
introduce(struct psi_shm_offer *shm_offer, const struct psi_loop *loop,
          const struct psi_shm_word *offer)
{
    struct psi_introduction introduction = {.bell_fd = loop->bell.fd};
    int pair[2];
    psd_status status = psi_segment_create(&shm_offer->ring, sizeof(struct psi_ring_side), NULL);

    if (status != PSD_OK) {
        return status;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        return PSD_ERR_NO_MEMORY;
    }
    memcpy(introduction.token, offer->token, sizeof(introduction.token));
    introduction.socket_fd = pair[1];
    introduction.ring_fd = shm_offer->ring.fd;
    status = psi_shm_meet_introduce(&loop->meet, offer->name, &introduction, NULL);
    close(pair[1]);
    if (status != PSD_OK) {
        close(pair[0]);
        return status;
    }
    shm_offer->socket_fd = pair[0];
    return PSD_OK;
}

static void
hear_offer(struct psi_stream *stream, const struct psi_shm_word *offer)
{
    if (introduce(stream->shm_offer, stream->loop, offer) == PSD_OK) {
        say_only(stream, PSI_SHM_TAKEN);
    } else {
        say_only(stream, PSI_SHM_DECLINED);
        psi_stream_tell_open(stream);
    }
}

/* ---- Both: the ring and the bell of the other are here ---- */

/* Goes over to the new socket. Takes mine and the two descriptors; fd only if all went well. */
static psd_status
go_over(struct psi_stream *stream, struct psi_segment *mine, int ring_fd, int bell_fd, int fd,
        struct psd_error *err)
{
    struct psi_shm_args args = {
        .loop = stream->loop,
        .conn = &stream->conn,
        .fd = fd,
        .mine = *mine,
        .ready = psi_stream_ring_ready,
        .heard = psi_stream_heard_later,
        .object = stream,
    };
    const int old_fd = stream->source.fd;
    struct psi_shm *shm = NULL;
    psd_status status =
        psi_segment_attach(&args.theirs, ring_fd, sizeof(struct psi_ring_side), err);

    *mine = (struct psi_segment){.fd = -1};
    if (status != PSD_OK) {
        close(bell_fd);
    } else {
        status = psi_segment_attach(&args.bell, bell_fd, sizeof(struct psi_bell), err);
    }
    if (status == PSD_OK) {
        status = psi_loop_swap(stream->loop, &stream->source, fd, EPOLLIN, err);
    }
    if (status == PSD_OK) {
        shm = psi_shm_create(&args);
        if (shm == NULL) {
            status = psi_fail(err, PSD_ERR_NO_MEMORY, "%s: no memory", stream->conn.peer);
            (void)psi_loop_swap(stream->loop, &stream->source, old_fd, EPOLLIN, NULL);
        }
    }
    if (status != PSD_OK) {
        psi_segment_destroy(&args.mine);
        psi_segment_destroy(&args.theirs);
        psi_segment_destroy(&args.bell);
        return status;
    }
    psi_stream_switch(stream, shm, old_fd);
    return PSD_OK;
}

/* Connected, and the other has gone over: what it shares is in the new socket. */
static psd_status
hear_ready(struct psi_stream *stream, struct psd_error *err)
{
    struct psi_shm_offer *shm_offer = stream->shm_offer;
    uint8_t byte;
    struct psi_unix_message answer = {.bytes = &byte, .size = sizeof(byte)};
    psd_status status;

    if (psi_unix_receive(shm_offer->socket_fd, &answer) != 1 || answer.fd_count != 2) {
        psi_unix_close(&answer);
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: shared no memory", stream->conn.peer);
    }
    status =
        go_over(stream, &shm_offer->ring, answer.fds[0], answer.fds[1], shm_offer->socket_fd, err);
    if (status == PSD_OK) {
        shm_offer->socket_fd = -1; /* the stream's */
        psi_stream_tell_open(stream);
    }
    return status;
}

/* ---- Accepted ---- */

void
psi_shm_offer_await(struct psi_stream *stream)
{
    (void)install(stream, true); /* without memory for it the question is a bad frame */
}

/* The stream goes on as it is. */
static void
say_none(struct psi_stream *stream)
{
    psi_shm_offer_end(stream);
    say_only(stream, PSI_SHM_NONE);
}

static void
hear_question(struct psi_stream *stream)
{
    struct psi_shm_offer *shm_offer = stream->shm_offer;
    struct psi_loop *loop = stream->loop;
    struct psi_shm_word offer = {0};

    if (!loop->config.lends || stream->out.bytes > 0 ||
        getrandom(shm_offer->token, sizeof(shm_offer->token), 0) !=
            (ssize_t)sizeof(shm_offer->token)) {
        say_none(stream);
        return;
    }
    psi_shm_meet_listen(&loop->meet); /* makes room for the one to come */
    shm_offer->offered = true;
    memcpy(offer.name, loop->meet.name, sizeof(offer.name));
    memcpy(offer.token, shm_offer->token, sizeof(offer.token));
    say(stream, &offer, PSI_SHM_OFFER);
}

/* Shows our side over the new socket. */
static psd_status
show(int socket_fd, int bell_fd, struct psi_segment *mine_p)
{
    uint8_t byte = 0;
    struct psi_unix_message answer = {.bytes = &byte, .size = sizeof(byte), .fd_count = 2};
    const psd_status status = psi_segment_create(mine_p, sizeof(struct psi_ring_side), NULL);

    if (status != PSD_OK) {
        return status;
    }
    answer.fds[0] = mine_p->fd;
    answer.fds[1] = bell_fd;
    if (psi_unix_send(socket_fd, &answer, NULL, 0) != 0) {
        psi_segment_destroy(mine_p);
        return PSD_ERR_PEER_LOST;
    }
    return PSD_OK;
}

static psd_status
hear_taken(struct psi_stream *stream, struct psd_error *err)
{
    struct psi_loop *loop = stream->loop;
    struct psi_introduction peer;
    struct psi_segment mine;
    psd_status status;

    if (!psi_shm_meet_take(&loop->meet, stream->shm_offer->token, &peer)) {
        say_none(stream);
        return PSD_OK;
    }
    if (show(peer.socket_fd, loop->bell.fd, &mine) != PSD_OK) {
        psi_introduction_close(&peer);
        say_none(stream);
        return PSD_OK;
    }
    say_only(stream, PSI_SHM_READY);
    if (stream->word_unsent > 0) { /* although nothing else is on its way */
        psi_segment_destroy(&mine);
        psi_introduction_close(&peer);
        return psi_fail(err, PSD_ERR_PEER_LOST, "send to %s: share memory", stream->conn.peer);
    }
    status = go_over(stream, &mine, peer.ring_fd, peer.bell_fd, peer.socket_fd, err);
    if (status != PSD_OK) {
        close(peer.socket_fd);
        return status;
    }
    psi_shm_offer_end(stream);
    psi_stream_flush(stream);
    return PSD_OK;
}

/* ---- What is heard meanwhile ---- */

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    struct psi_stream *stream = owner;
    struct psi_shm_word word;

    memcpy(&word, prefix, sizeof(word));
    if (memcmp(word.magic, PSI_SHM_WORD_MAGIC, sizeof(word.magic)) == 0) {
        *size_p = (struct psi_frame_size){0};
        return PSD_OK;
    }
    if (stream->shm_offer->offered) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: a frame while memory is being shared",
                        conn->peer);
    }
    if (stream->shm_offer->accepted) {
        psi_shm_offer_end(stream); /* a peer that does not ask */
    } else {
        psi_stream_tell_open(stream); /* one that does not answer, but has something to say */
    }
    if (stream->state != OPEN) {
        return PSD_OK;
    }
    return conn->events->on_prefix(conn->owner, conn, prefix, size_p, err);
}

static psd_status
hear_as_accepted(struct psi_stream *stream, const struct psi_shm_word *word, struct psd_error *err)
{
    if (!stream->shm_offer->offered && word->kind == PSI_SHM_ASK) {
        hear_question(stream);
        return PSD_OK;
    }
    if (stream->shm_offer->offered && word->kind == PSI_SHM_TAKEN) {
        return hear_taken(stream, err);
    }
    if (stream->shm_offer->offered && word->kind == PSI_SHM_DECLINED) {
        psi_shm_offer_end(stream);
        psi_stream_flush(stream);
        return PSD_OK;
    }
    return PSD_PENDING;
}

static psd_status
hear_as_connected(struct psi_stream *stream, const struct psi_shm_word *word, struct psd_error *err)
{
    const bool introduced = stream->shm_offer->socket_fd >= 0;

    if (!introduced && word->kind == PSI_SHM_OFFER) {
        hear_offer(stream, word);
        return PSD_OK;
    }
    if (introduced && word->kind == PSI_SHM_READY) {
        return hear_ready(stream, err);
    }
    if (word->kind == PSI_SHM_NONE) {
        psi_stream_tell_open(stream);
        return PSD_OK;
    }
    return PSD_PENDING;
}

static psd_status
on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes, void *payload,
         size_t payload_bytes, struct psd_error *err)
{
    struct psi_stream *stream = owner;
    struct psi_shm_word word;
    psd_status status;

    (void)head_bytes;
    (void)payload;
    (void)payload_bytes;
    stream->in.frame_count--; /* no frame of the owner's: a stranger stays one */
    memcpy(&word, head, sizeof(word));
    if (stream->word_unsent > 0) {
        status = PSD_PENDING; /* an answer to what was not said yet */
    } else {
        status = stream->shm_offer->accepted ? hear_as_accepted(stream, &word, err)
                                             : hear_as_connected(stream, &word, err);
    }
    if (status == PSD_PENDING) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: word %u while memory is being shared",
                        conn->peer, word.kind);
    }
    return status;
}

static const struct psi_conn_events offer_events = {
    .on_prefix = on_prefix,
    .on_frame = on_frame, /* on_close: the owner's is in place again before */
};
