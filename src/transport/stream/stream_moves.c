/*
 * stream_moves.c - bytes that a crew moves between sockets and memory, for streams that are ready together.
 *
 * A move is one call of the kernel, or of the session that seals the bytes: a helper makes it, and the loop's
 * own thread does everything that follows from it. What is received is begun before the events of a
 * dispatch are handled, and heard when the stream's own turn comes. What is sent while bells are held
 * is queued, and moved when they are rung.
 *
 * Invariants
 *   - while a move is under way nobody else touches what it reads or writes: `in` when receiving, frames
 *     in `out` when sending (more may be added behind them), and the session of a sealed stream, which
 *     has at most one move under way;
 *   - no move is under way when the stream ends, goes over to shared memory, or gives memory back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/monotonic.h"
#include "transport/loop/loop.h"
#include "transport/stream/shm_offer.h"
#include "transport/stream/stream_state.h"

/* Less than that is moved at once. */
enum { WORTH_BYTES = 64 << 10 };

static size_t
sum(const struct iovec *iov, int count)
{
    size_t bytes = 0;

    for (int i = 0; i < count; i++) {
        bytes += iov[i].iov_len;
    }
    return bytes;
}

static void
receive(void *object, uint32_t part)
{
    struct psi_stream_move *move = object;
    const uint64_t begun_ns = psi_monotonic_ns();

    (void)part;
    errno = 0;
    move->moved = psi_stream_receive_raw(move->stream, move->iov, move->count);
    move->code = errno;
    move->ns = psi_monotonic_ns() - begun_ns;
}

static void
transmit(void *object, uint32_t part)
{
    struct psi_stream_move *move = object;
    const uint64_t begun_ns = psi_monotonic_ns();

    (void)part;
    errno = 0;
    move->moved = psi_stream_send_raw(move->stream, move->iov, move->count);
    move->code = errno;
    move->ns = psi_monotonic_ns() - begun_ns;
}

/* The memory of a move is made for streams that have some, in loops with a crew. */
static struct psi_stream_moves *
moves_of(struct psi_stream *stream)
{
    if (stream->moves == NULL) {
        stream->moves = calloc(1, sizeof(*stream->moves));
        if (stream->moves != NULL) {
            stream->moves->in.stream = stream;
            stream->moves->out.stream = stream;
        }
    }
    return stream->moves;
}

static bool
begin(struct psi_stream_move *move, void (*run)(void *object, uint32_t part))
{
    move->task = (struct psi_crew_task){
        .run = run, .object = move, .parts = 1, .bytes = sum(move->iov, move->count)};
    if (psi_crew_begin(move->stream->loop->crew, &move->task)) {
        move->state = PSI_MOVE_BEGUN;
    }
    return move->state == PSI_MOVE_BEGUN;
}

static void
finish(struct psi_stream_move *move)
{
    struct psi_loop *loop = move->stream->loop;

    if (move->state == PSI_MOVE_BEGUN) {
        psi_crew_finish(loop->crew, &move->task);
        move->state = PSI_MOVE_DONE;
        loop->counts.sealed_ns += move->stream->sealed != NULL ? move->ns : 0;
    }
}

static bool
is_under_way(const struct psi_stream_move *move)
{
    return move->state != PSI_MOVE_NONE;
}

/* ---- Receiving ----------------------------------------------------------------------------- */

static bool
may_move(const struct psi_stream *stream)
{
    return stream->loop->crew != NULL && stream->state == OPEN && !psi_stream_is_broken(stream) &&
           stream->carrier == &psi_carrier_bytes && stream->handshake == NULL &&
           stream->word_unsent == 0 && !psi_shm_offer_holds(stream) &&
           !psi_shm_offer_is_asking(stream);
}

static void
begin_receiving(struct psi_stream *stream)
{
    const struct psi_stream_in *in = &stream->in;
    struct psi_stream_moves *moves;

    if (in->phase != PSI_IN_PAYLOAD || in->sink == NULL || in->stopped ||
        in->size.payload_bytes - in->payload_here < WORTH_BYTES) {
        return;
    }
    moves = moves_of(stream);
    if (moves == NULL || is_under_way(&moves->in) ||
        (stream->sealed != NULL && is_under_way(&moves->out))) {
        return;
    }
    moves->in.count = psi_stream_in_room(&stream->in, moves->in.iov);
    if (moves->in.iov[0].iov_len > PSI_STREAM_WORK_BYTES) {
        moves->in.iov[0].iov_len = PSI_STREAM_WORK_BYTES;
        moves->in.count = 1;
    }
    (void)begin(&moves->in, receive);
}

bool
psi_stream_received(struct psi_stream *stream, ssize_t *got_p, size_t *room_p)
{
    struct psi_stream_moves *moves = stream->moves;

    if (moves->in.state == PSI_MOVE_NONE) {
        return false;
    }
    finish(&moves->in);
    moves->in.state = PSI_MOVE_NONE;
    *got_p = moves->in.moved;
    *room_p = sum(moves->in.iov, moves->in.count);
    errno = moves->in.code;
    return true;
}

/* ---- Sending ------------------------------------------------------------------------------- */

static void
begin_sending(struct psi_stream *stream)
{
    struct psi_stream_moves *moves;

    if (stream->out.bytes < WORTH_BYTES) {
        return;
    }
    moves = moves_of(stream);
    if (moves == NULL || is_under_way(&moves->out) ||
        (stream->sealed != NULL && is_under_way(&moves->in))) {
        return;
    }
    moves->out.count = psi_stream_out_gather(&stream->out, moves->out.iov, PSI_MOVE_IOVECS);
    (void)begin(&moves->out, transmit);
}

bool
psi_stream_sent(struct psi_stream *stream, ssize_t *sent_p)
{
    struct psi_stream_moves *moves = stream->moves;

    if (moves->out.state == PSI_MOVE_NONE) {
        return false;
    }
    finish(&moves->out);
    moves->out.state = PSI_MOVE_NONE;
    *sent_p = moves->out.moved;
    errno = moves->out.code;
    return true;
}

/* ---- When ---------------------------------------------------------------------------------- */

void
psi_stream_prepare(void *object, uint32_t events)
{
    struct psi_stream *stream = object;

    if (!may_move(stream)) {
        return;
    }
    if ((events & EPOLLIN) != 0) {
        begin_receiving(stream);
    }
    if ((events & EPOLLOUT) != 0) {
        begin_sending(stream);
    }
}

void
psi_stream_prepare_again(void *object)
{
    struct psi_stream *stream = object;

    if (stream->again) {
        psi_stream_prepare(stream, EPOLLIN);
    }
}

/* All streams that something was queued for: their calls first, then what follows from them. */
static void
flush_queued(struct psi_loop *loop)
{
    struct psi_stream *stream;

    TAILQ_FOREACH(stream, &loop->queued, queued_link)
    {
        begin_sending(stream);
    }
    while ((stream = TAILQ_FIRST(&loop->queued)) != NULL) {
        TAILQ_REMOVE(&loop->queued, stream, queued_link);
        stream->queued = false;
        psi_stream_flush_bytes(stream);
    }
}

bool
psi_stream_queues(struct psi_stream *stream, size_t bytes)
{
    struct psi_loop *loop = stream->loop;

    if (!loop->holds_bells || !may_move(stream) || (bytes < WORTH_BYTES && !stream->queued)) {
        return false;
    }
    if (!stream->queued) {
        stream->queued = true;
        TAILQ_INSERT_TAIL(&loop->queued, stream, queued_link);
        loop->flush_queued = flush_queued;
    }
    return true;
}

/* ---- Nobody else --------------------------------------------------------------------------- */

void
psi_stream_finish_sealed(struct psi_stream *stream)
{
    finish(&stream->moves->in);
    finish(&stream->moves->out);
}

void
psi_stream_finish_sending(struct psi_stream *stream)
{
    if (is_under_way(&stream->moves->out)) {
        finish(&stream->moves->out); /* also of a stream that is broken, and sends nothing more */
        psi_stream_flush_bytes(stream);
    }
}

void
psi_stream_end_moves(struct psi_stream *stream)
{
    if (stream->queued) {
        stream->queued = false;
        TAILQ_REMOVE(&stream->loop->queued, stream, queued_link);
    }
    if (stream->moves != NULL) {
        finish(&stream->moves->in);
        finish(&stream->moves->out);
        free(stream->moves);
        stream->moves = NULL;
    }
}
