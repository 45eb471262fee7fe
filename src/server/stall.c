/*
 * stall.c - bounded buffers that never deadlock, whatever order workers push in.
 *
 * Every worker may have window_bytes of unanswered gradients on a lane. Workers that push in
 * different orders can fill their windows with chunks that nobody else has sent, and no round can
 * close. So when rounds are open and none has closed for a while, the lane names one open chunk
 * after the other (in step, priority, table and index order, round and round) in a WANT to the
 * ranks that lack it: a named chunk leaves at once, whatever the window. If that would exceed the
 * room of its sender, the lane lets one of the same sender's other chunks go and says RESEND: the
 * worker still has it. If any open chunk can be completed at all, its turn comes.
 *
 * Why they have stopped the lane cannot tell: a worker may keep less under way than its window
 * allows, and one that sends for others waits for those. So it asks whether they have or not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "rpc/post.h"
#include "server/state.h"

#define STALL_NS UINT64_C(10000000)

void
open_add(struct lane *lane, struct round *round)
{
    if (!round->open) {
        round->open = true;
        round->prev = NULL;
        round->next = lane->open;
        if (lane->open != NULL) {
            lane->open->prev = round;
        } else {
            lane->progressed = true;
        }
        lane->open = round;
    }
}

void
open_remove(struct lane *lane, struct round *round)
{
    if (round->open) {
        round->open = false;
        if (round->prev != NULL) {
            round->prev->next = round->next;
        } else {
            lane->open = round->next;
        }
        if (round->next != NULL) {
            round->next->prev = round->prev;
        }
        if (lane->wanted == round) {
            lane->wanted = NULL;
            lane->want_now = true; /* asking helped: ask for the next at once */
        }
    }
}

static struct turn
turn_of(const struct round *round)
{
    const struct chunk *chunk = round->chunk;

    return (struct turn){
        .step = chunk->clock.version,
        .priority = chunk->table->priority,
        .table = chunk->table->id,
        .chunk = chunk->index,
    };
}

static bool
turn_before(const struct turn *a, const struct turn *b)
{
    if (a->step != b->step) {
        return a->step < b->step;
    }
    if (a->priority != b->priority) {
        return a->priority > b->priority;
    }
    if (a->table != b->table) {
        return a->table < b->table;
    }
    return a->chunk < b->chunk;
}

/* Does a come before b in the order in which open rounds are asked for? */
static bool
before(const struct round *a, const struct round *b)
{
    const struct turn first = turn_of(a);
    const struct turn second = turn_of(b);

    return turn_before(&first, &second);
}

/* The one behind the last that was asked for; when that has come, only in its table and step: those
 * are likely to come as well, while others before them have been asked for in vain. */
static struct round *
next_wanted(const struct lane *lane)
{
    const struct turn *last = &lane->last_turn;
    struct round *first = NULL;
    struct round *next = NULL;

    for (struct round *round = lane->open; round != NULL; round = round->next) {
        const struct turn turn = turn_of(round);

        if (first == NULL || before(round, first)) {
            first = round;
        }
        if (turn_before(last, &turn) &&
            (lane->wanted != NULL || (turn.step == last->step && turn.table == last->table)) &&
            (next == NULL || before(round, next))) {
            next = round;
        }
    }
    return next != NULL ? next : first;
}

static void
want_from(const struct lane *lane, const struct chunk *chunk, uint32_t rank)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_WANT,
        .view = lane->view.id,
        .table = chunk->table->id,
        .chunk = chunk->index,
        .step = chunk->clock.version,
    };

    if (lane->sessions[rank] != NULL) {
        struct psi_conn *conn = lane->sessions[rank]->guest.conn;

        /* What waits to be sent is not to become more: its turn comes again. */
        if (conn->ops->queued_bytes(conn) == 0) {
            psi_metric_add(lane->metrics, PSI_METRIC_WANTS_OUT, 1);
            (void)psi_post(conn, &frame);
        }
    }
}

static int32_t
next_missing(const struct chunk *chunk, uint32_t from)
{
    return psi_clock_missing(&chunk->table->rule, &chunk->table->members, &chunk->clock,
                             chunk->clock.version + 1, from);
}

void
want_look(struct lane *lane, uint64_t now_ns)
{
    const struct chunk *chunk;
    int32_t rank;

    if (lane->progressed) {
        lane->progressed = false;
        lane->progress_ns = now_ns;
    }
    if (now_ns < want_next_ns(lane)) {
        return;
    }
    lane->progress_ns = now_ns;
    lane->want_now = false;
    lane->wanted = next_wanted(lane);
    lane->last_turn = turn_of(lane->wanted);
    chunk = lane->wanted->chunk;
    rank = next_missing(chunk, 0);
    while (rank >= 0) {
        want_from(lane, chunk, (uint32_t)rank);
        rank = next_missing(chunk, (uint32_t)rank + 1);
    }
}

uint64_t
want_next_ns(const struct lane *lane)
{
    if (lane->open == NULL) {
        return UINT64_MAX;
    }
    return lane->want_now ? 0 : lane->progress_ns + STALL_NS;
}

static uint32_t
sender_of(const struct round *round, uint32_t rank)
{
    const struct slot *slot = round->slots;

    while (slot != NULL && slot->rank != rank) {
        slot = slot->next;
    }
    return slot != NULL ? slot->sender : UINT32_MAX;
}

/* Lets go the last (in the order above) waiting gradient of the rank, and tells who sent it. */
static bool
let_one_go(struct lane *lane, uint32_t rank, const struct chunk *arriving)
{
    struct round *last = NULL;
    struct chunk *chunk;
    struct psi_frame frame = {
        .type = PSI_FRAME_RESEND, .view = lane->view.id, .rank = (uint16_t)rank};
    struct session *session;

    for (struct round *round = lane->open; round != NULL; round = round->next) {
        chunk = round->chunk;
        if (chunk != arriving && round != lane->wanted &&
            chunk->clock.next[rank] == chunk->clock.version + 1 &&
            (last == NULL || before(last, round)) && sender_of(round, rank) != UINT32_MAX &&
            parked_push(chunk, rank)) { /* else its author has given it up: keep it */
            last = round;
        }
    }
    if (last == NULL) {
        return false;
    }
    chunk = last->chunk;
    session = lane->sessions[sender_of(last, rank)];
    parked_forget_push(lane, chunk, rank);
    (void)round_take_back(lane, chunk, rank);
    psi_metric_add(lane->metrics, PSI_METRIC_GRADIENTS_DROPPED, 1);
    frame.table = chunk->table->id;
    frame.chunk = chunk->index;
    frame.step = chunk->clock.version;
    if (session != NULL && psi_post(session->guest.conn, &frame) != PSD_OK) {
        psi_guest_doom(&session->guest); /* it sends everything again when it is back */
    }
    return true;
}

void
want_make_room(struct lane *lane, uint32_t rank, const struct chunk *arriving, uint64_t cost)
{
    const uint64_t room = (uint64_t)lane->window_bytes + CHUNK_BYTES_MAX;

    while (lane->used[rank] + cost > room) {
        if (!let_one_go(lane, rank, arriving)) {
            return;
        }
    }
}

void
want_session(struct session *session)
{
    const struct round *wanted = session->lane->wanted;
    const struct chunk *chunk = wanted == NULL ? NULL : wanted->chunk;

    if (chunk != NULL && chunk->clock.next[session->rank] <= chunk->clock.version) {
        want_from(session->lane, chunk, session->rank);
    }
}
