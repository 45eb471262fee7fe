/*
 * net.c - nodes, connections, and everything a network may do to them.
 *
 * Invariants
 *   - a link lives as long as an event or an open end refers to it (refs);
 *   - an end's events run from the heap only, never inside a call its owner makes;
 *   - an end that is CLOSED borrows nothing and hears nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "wire/frame.h"

#define COPY_NS_MAX (30 * SIM_MS)

enum {
    SPINS_MAX = 20000,
    SAME_HOST_INLINE_MAX = 128,     /* smaller payloads travel with their frames on one host, too */
    QUARANTINE_BYTES_MAX = 4 << 20, /* poisoned copies that are kept for late readers */
    POISON = 0xd7,
};

enum end_state { OPENING, OPEN, LINGERING, CLOSED };

/* A frame on its way. `bytes` holds head and payload, the payload only as far as it was taken. */
struct net_frame {
    struct net_frame *next;
    uint8_t *bytes;
    size_t head_bytes;
    size_t total;
    size_t taken;
    struct psi_buffer buffers[PSI_BUFFERS_MAX];
    unsigned buffer_count;
    void (*release)(void *owner, uint64_t cookie);
    void *release_owner;
    uint64_t release_cookie;

    bool stable;
    const uint8_t *lent;       /* on one host: where the payload is, in the sender's memory ... */
    struct net_region *region; /* ... which this keeps */
    struct net_loan *loan;     /* being copied by the receiver ... */
    size_t copied;             /* ... so far */

    uint64_t arrive_ns;
    size_t survives; /* bytes that arrive; total unless a cut tore it */
    bool begun;      /* the receiver has its head */
    uint8_t *sink;
};

/* One direction. */
struct net_pipe {
    struct net_frame *unsent;
    struct net_frame *unsent_last;
    struct net_frame *flight;
    struct net_frame *flight_last;
    size_t queued; /* bytes the kernel has not taken */
    uint64_t take_ns;
    uint64_t arrive_ns;
    bool taking;     /* an event will take */
    bool delivering; /* an event will deliver */
    bool void_;      /* what enters is lost: the network, or the peer, is gone */
};

struct net_end {
    struct psi_conn conn; /* first */
    struct net_link *link;
    struct node *node;
    struct net_end *next; /* node->ends */
    enum end_state state;
    unsigned side;
    bool losing; /* on_close is on its way */
    struct psd_error reason;
    struct net_pipe out;
    uint64_t blocked_until_ns; /* nothing of what it says arrives before; what it hears does */
};

struct net_link {
    struct net *net;
    struct net_link *next;
    struct net_link *prev;
    uint64_t number;
    unsigned refs;
    char address[PSI_ADDRESS_BYTES];
    bool accepted;
    bool same_host; /* both ends are on one host */
    uint64_t clogged_until_ns;
    struct net_end end[2]; /* 0 connected, 1 accepted */
};

struct psi_listener {
    struct node *node;
    const struct psi_listener_events *events;
    void *owner;
    char address[PSI_ADDRESS_BYTES];
};

static void deliver(void *object, uint64_t side);
static void lose(void *object, uint64_t side);
static void frames_free(struct net *net, struct net_frame **first, struct net_frame **last);

/* ---- time --------------------------------------------------------------------------------- */

static uint64_t
delay(struct net *net)
{
    const struct net_weather *weather = &net->weather;
    uint64_t ns = rng_between(&net->sim->rng, weather->delay_min, weather->delay_max);

    if (rng_chance(&net->sim->rng, weather->slow_percent)) {
        ns *= rng_between(&net->sim->rng, 2, 10);
    }
    return ns;
}

static void
link_unref(struct net_link *link)
{
    psi_assert(link->refs > 0);
    if (--link->refs > 0) {
        return;
    }
    psi_assert(link->end[0].state == CLOSED && link->end[1].state == CLOSED);
    frames_free(link->net, &link->end[0].out.flight, &link->end[0].out.flight_last);
    frames_free(link->net, &link->end[1].out.flight, &link->end[1].out.flight_last);
    if (link->prev != NULL) {
        link->prev->next = link->next;
    } else {
        link->net->links = link->next;
    }
    if (link->next != NULL) {
        link->next->prev = link->prev;
    }
    link->net->link_count--;
    free(link);
}

static void
link_at(struct net_link *link, uint64_t at_ns, sim_event_fn fire, uint64_t argument)
{
    link->refs++;
    sim_at(link->net->sim, at_ns, fire, link, argument);
}

/* A paused node hears nothing: the event comes again when it wakes up. */
static bool
postponed(struct net_link *link, const struct node *node, sim_event_fn fire, uint64_t argument)
{
    if (node->alive && node->paused_until_ns > link->net->sim->now_ns) {
        sim_at(link->net->sim, node->paused_until_ns, fire, link, argument); /* keeps the ref */
        return true;
    }
    return false;
}

static void
settle(struct node *node)
{
    if (node->alive && !node->dying) {
        node->settle(node);
    }
}

/* ---- memory of one host ------------------------------------------------------------------- */

/* A copy that was given back. */
struct quarantined {
    struct quarantined *next;
    size_t bytes;
    uint8_t *memory;
};

/* Whoever reads it now reads poison; after a while it is gone altogether. */
static void
quarantine(struct net *net, uint8_t *memory, size_t bytes)
{
    struct quarantined *memory_kept = malloc(sizeof(*memory_kept));
    struct quarantined **link = &net->quarantine_list;
    size_t kept = 0;

    psi_assert(memory_kept != NULL);
    memset(memory, POISON, bytes);
    *memory_kept =
        (struct quarantined){.next = net->quarantine_list, .bytes = bytes, .memory = memory};
    net->quarantine_list = memory_kept;
    while (*link != NULL && kept <= QUARANTINE_BYTES_MAX) {
        kept += (*link)->bytes;
        link = &(*link)->next;
    }
    while (*link != NULL) {
        struct quarantined *oldest = *link;

        *link = oldest->next;
        free(oldest->memory);
        free(oldest);
    }
}

struct net_region *
net_region_create(struct node *node, size_t bytes)
{
    struct net_region *region = calloc(1, sizeof(*region));

    psi_assert(region != NULL);
    region->segment = (struct psi_segment){.base = calloc(1, bytes), .bytes = bytes, .fd = -1};
    psi_assert(region->segment.base != NULL);
    region->node = node;
    region->refs = 1;
    psi_lending_add(&node->lending, &region->segment);
    return region;
}

static void
region_unref(struct net *net, struct net_region *region)
{
    if (region == NULL || --region->refs > 0) {
        return;
    }
    if (region->of != NULL) {
        psi_segment_destroy(&region->segment);
    } else {
        quarantine(net, region->segment.base, region->segment.bytes);
    }
    free(region);
}

void
net_region_let_go(struct net_region *region)
{
    struct node *node = region->node;

    psi_assert(psi_lending_remove(&node->lending, &region->segment) != UINT32_MAX);
    region_unref(node->net, region);
}

/* A payload on loan: the sender's own memory, or a copy. */
struct net_loan {
    struct psi_loan loan; /* first */
    struct net *net;
    struct net_region *region;
    const uint8_t *payload;
    uint8_t *copy; /* NULL: the payload is the sender's own */
    size_t bytes;
};

static void
give_back(struct psi_loan *public)
{
    struct net_loan *loan = (struct net_loan *)public;

    if (loan->copy != NULL) {
        quarantine(loan->net, loan->copy, loan->bytes);
    }
    region_unref(loan->net, loan->region);
    loan->net->loans--;
    free(loan);
}

/* All cores have been destroyed, and the network has given back what was still on its way: does any
 * of them owe something? */
static void
check_loans(struct net *net)
{
    if (net->loans > 0) {
        sim_fail(net->sim, "leak: %llu payloads on loan were never given back",
                 (unsigned long long)net->loans);
    }
}

static bool
comes_on_loan(const struct net_link *link, const struct net_frame *frame)
{
    return link->same_host && frame->total - frame->head_bytes > SAME_HOST_INLINE_MAX;
}

/* Takes over what keeps the payload. */
static struct net_loan *
loan_create(struct net *net, struct net_frame *frame)
{
    struct net_loan *loan = calloc(1, sizeof(*loan));

    psi_assert(loan != NULL);
    loan->loan.give_back = give_back;
    loan->net = net;
    loan->region = frame->region;
    loan->payload = frame->lent;
    loan->bytes = frame->total - frame->head_bytes;
    net->loans++;
    frame->region = NULL;
    if (frame->lent == NULL) {
        loan->copy = malloc(loan->bytes);
        psi_assert(loan->copy != NULL);
        memcpy(loan->copy, frame->bytes + frame->head_bytes, loan->bytes);
        loan->payload = loan->copy;
    }
    return loan;
}

static void
loan_give_back(struct net_frame *frame)
{
    if (frame->loan != NULL) {
        give_back(&frame->loan->loan);
        frame->loan = NULL;
    }
}

/* ---- frames ------------------------------------------------------------------------------- */

static void
frame_release(struct net_frame *frame)
{
    if (frame->release != NULL) {
        frame->release(frame->release_owner, frame->release_cookie);
        frame->release = NULL;
    }
}

static void
frame_free(struct net *net, struct net_frame *frame)
{
    frame_release(frame);
    loan_give_back(frame);
    region_unref(net, frame->region);
    free(frame->bytes);
    free(frame);
}

static void
frames_free(struct net *net, struct net_frame **first, struct net_frame **last)
{
    while (*first != NULL) {
        struct net_frame *frame = *first;

        *first = frame->next;
        frame_free(net, frame);
    }
    *last = NULL;
}

static void
append(struct net_frame **first, struct net_frame **last, struct net_frame *frame)
{
    frame->next = NULL;
    if (*last != NULL) {
        (*last)->next = frame;
    } else {
        *first = frame;
    }
    *last = frame;
}

static struct net_frame *
remove_first(struct net_frame **first, struct net_frame **last)
{
    struct net_frame *frame = *first;

    *first = frame->next;
    if (*first == NULL) {
        *last = NULL;
    }
    return frame;
}

/* Copies payload bytes [taken, until) out of the sender's memory, as it is now. */
static void
frame_take(struct net_frame *frame, size_t until)
{
    size_t at = frame->head_bytes;

    for (unsigned i = 0; i < frame->buffer_count; i++) {
        const struct psi_buffer *buffer = &frame->buffers[i];
        const size_t low = frame->taken > at ? frame->taken : at;
        const size_t high = until < at + buffer->bytes ? until : at + buffer->bytes;

        if (low < high) {
            memcpy(frame->bytes + low, (const uint8_t *)buffer->base + (low - at), high - low);
        }
        at += buffer->bytes;
    }
    frame->taken = until;
}

/* ---- sending ------------------------------------------------------------------------------ */

static void
pipe_clear(struct net *net, struct net_pipe *pipe)
{
    frames_free(net, &pipe->unsent, &pipe->unsent_last);
    pipe->queued = 0;
}

/* The region that others read for what is lent. */
static struct net_region *
region_of(const struct node *node, const struct psi_segment *lent)
{
    struct net_region *region = node->mappings;

    if (lent->fd < 0) {
        return (struct net_region *)(uintptr_t)lent;
    }
    while (region != NULL && region->of != lent) {
        region = region->next;
    }
    psi_assert(region != NULL);
    return region;
}

/* On one host a stable payload in lent memory stays there: nobody has read it when it leaves. */
static void
take_all(struct net_end *end, struct net_frame *frame)
{
    const struct psi_buffer *buffer = &frame->buffers[0];
    const struct psi_lent *lent = NULL;

    if (comes_on_loan(end->link, frame) && frame->stable && frame->buffer_count == 1) {
        lent = psi_lending_find(&end->node->lending, buffer->base, buffer->bytes);
    }
    if (lent == NULL) {
        frame_take(frame, frame->total);
        return;
    }
    frame->region = region_of(end->node, lent->segment);
    frame->region->refs++;
    frame->lent =
        frame->region->segment.base + ((const uint8_t *)buffer->base - lent->segment->base);
    frame->taken = frame->total;
}

static void
depart(struct net_end *end, struct net_frame *frame)
{
    struct net_pipe *pipe = &end->out;
    struct net_link *link = end->link;
    const uint64_t now_ns = link->net->sim->now_ns;
    uint64_t at_ns = now_ns > link->clogged_until_ns ? now_ns : link->clogged_until_ns;

    at_ns = at_ns > end->blocked_until_ns ? at_ns : end->blocked_until_ns;
    frame_release(frame);
    if (pipe->void_) {
        frame_free(link->net, frame);
        return;
    }
    at_ns += delay(link->net);
    if (at_ns < pipe->arrive_ns) {
        at_ns = pipe->arrive_ns;
    }
    pipe->arrive_ns = at_ns;
    frame->arrive_ns = at_ns;
    frame->survives = frame->total;
    append(&pipe->flight, &pipe->flight_last, frame);
    if (!pipe->delivering) {
        pipe->delivering = true;
        link_at(link, at_ns, deliver, end->side);
    }
}

static void
take(void *object, uint64_t side)
{
    struct net_link *link = object;
    struct net_end *end = &link->end[side];
    struct net_pipe *pipe = &end->out;
    struct sim *sim = link->net->sim;
    struct net_frame *frame = pipe->unsent;

    pipe->taking = false;
    if (frame != NULL) {
        const size_t before = frame->taken;

        if (frame->taken == frame->head_bytes && frame->total - frame->taken > 8 &&
            !link->same_host && rng_chance(&sim->rng, 40)) {
            frame_take(frame, frame->taken + rng_below(&sim->rng, frame->total - frame->taken));
        } else {
            take_all(end, frame);
        }
        pipe->queued -= frame->taken - before;
        if (frame->taken == frame->total) {
            pipe->queued -= frame->head_bytes;
            (void)remove_first(&pipe->unsent, &pipe->unsent_last);
            depart(end, frame);
        }
    }
    if (pipe->unsent != NULL) {
        pipe->taking = true;
        link_at(link, sim->now_ns + rng_below(&sim->rng, link->net->weather.take_max + 1), take,
                side);
    } else if (end->state == LINGERING && !end->losing) {
        /* all is out: the peer hears the end of it */
        struct net_end *peer = &link->end[!side];

        if (!peer->losing) {
            peer->losing = true;
            link_at(link, pipe->arrive_ns + 1, lose, !side);
        }
    }
    link_unref(link);
}

static struct net_frame *
frame_create(const struct psi_outgoing *outgoing)
{
    struct net_frame *frame = calloc(1, sizeof(*frame));

    psi_assert(frame != NULL);
    frame->head_bytes = outgoing->head_bytes;
    frame->total = outgoing->head_bytes;
    frame->buffer_count = outgoing->buffer_count;
    for (unsigned i = 0; i < outgoing->buffer_count; i++) {
        frame->buffers[i] = outgoing->buffers[i];
        frame->total += outgoing->buffers[i].bytes;
    }
    frame->bytes = malloc(frame->total);
    psi_assert(frame->bytes != NULL);
    memcpy(frame->bytes, outgoing->head, outgoing->head_bytes);
    frame->taken = frame->head_bytes;
    frame->stable = outgoing->stable;
    frame->release = outgoing->release;
    frame->release_owner = outgoing->release_owner;
    frame->release_cookie = outgoing->release_cookie;
    return frame;
}

static psd_status
end_send(struct psi_conn *conn, const struct psi_outgoing *outgoing)
{
    struct net_end *end = (struct net_end *)conn;
    struct net_pipe *pipe = &end->out;
    struct sim *sim = end->link->net->sim;
    struct net_frame *frame;

    psi_assert(end->state == OPEN);
    if (end->node->dying) {
        return PSD_ERR_PEER_LOST;
    }
    if (pipe->queued > PSI_CONN_QUEUE_BYTES_MAX) {
        return PSD_ERR_BUSY;
    }
    frame = frame_create(outgoing);
    sim->counters.frames++;
    if (pipe->unsent == NULL && rng_chance(&sim->rng, frame->total > frame->head_bytes ? 40 : 90)) {
        take_all(end, frame);
        depart(end, frame);
        return PSD_OK;
    }
    append(&pipe->unsent, &pipe->unsent_last, frame);
    pipe->queued += frame->total;
    if (!pipe->taking) {
        pipe->taking = true;
        link_at(end->link, sim->now_ns + rng_below(&sim->rng, end->link->net->weather.take_max + 1),
                take, end->side);
    }
    return PSD_OK;
}

static bool
borrows(const struct net_frame *frame, const void *base, size_t bytes)
{
    size_t at = frame->head_bytes;

    for (unsigned i = 0; i < frame->buffer_count; i++) {
        const struct psi_buffer *buffer = &frame->buffers[i];
        const uintptr_t low = (uintptr_t)buffer->base + (frame->taken > at ? frame->taken - at : 0);
        const uintptr_t high = (uintptr_t)buffer->base + buffer->bytes;

        if (low < high && low < (uintptr_t)base + bytes && (uintptr_t)base < high) {
            return true;
        }
        at += buffer->bytes;
    }
    return false;
}

static psd_status
end_unshare(struct psi_conn *conn, const void *base, size_t bytes)
{
    struct net_end *end = (struct net_end *)conn;

    for (struct net_frame *frame = end->out.unsent; frame != NULL; frame = frame->next) {
        if (borrows(frame, base, bytes)) {
            const size_t taken = frame->taken;

            frame_take(frame, frame->total);
            frame->taken = taken; /* it leaves no sooner, but from our copy */
            frame->buffer_count = 0;
            frame_release(frame);
        }
    }
    return PSD_OK;
}

static size_t
end_queued_bytes(const struct psi_conn *conn)
{
    return ((const struct net_end *)conn)->out.queued;
}

/* ---- the end of a connection -------------------------------------------------------------- */

/* Loses what is in flight from a random point on, perhaps in the middle of a frame. */
static void
tear(struct net_end *from)
{
    struct net_pipe *pipe = &from->out;
    struct sim *sim = from->link->net->sim;
    struct net_frame **link = &pipe->flight;
    struct net_frame *last = NULL;
    uint64_t flying = 0;
    uint64_t kept;

    pipe->void_ = true;
    for (struct net_frame *frame = pipe->flight; frame != NULL; frame = frame->next) {
        flying++;
    }
    kept = rng_below(&sim->rng, flying + 1);
    for (uint64_t i = 0; i < kept; i++) {
        last = *link;
        link = &(*link)->next;
    }
    if (*link != NULL && !from->link->same_host && rng_chance(&sim->rng, 60)) {
        (*link)->survives = rng_below(&sim->rng, (*link)->total);
        sim->counters.torn_frames++;
        last = *link;
        link = &(*link)->next;
    }
    struct net_frame *rest = *link;

    *link = NULL;
    pipe->flight_last = last;
    while (rest != NULL) {
        struct net_frame *next = rest->next;

        frame_free(from->link->net, rest);
        rest = next;
    }
}

static void
lose_later(struct net_end *end, uint64_t at_ns, psd_status status, const char *why)
{
    if (end->state != CLOSED && !end->losing) {
        end->losing = true;
        psi_fail(&end->reason, status, "%s: %s", end->conn.peer, why);
        if (at_ns < end->link->end[!end->side].out.arrive_ns) {
            at_ns = end->link->end[!end->side].out.arrive_ns;
        }
        link_at(end->link, at_ns, lose, end->side);
    }
}

/* The end is CLOSED from now on. */
static void
end_finish(struct net_end *end)
{
    struct net_end **link = &end->node->ends;

    psi_assert(end->state != CLOSED);
    pipe_clear(end->link->net, &end->out);
    end->state = CLOSED;
    while (*link != end) {
        link = &(*link)->next;
    }
    *link = end->next;
    link_unref(end->link);
}

static void
peer_hears(struct net_end *end)
{
    struct net_end *peer = &end->link->end[!end->side];
    struct net *net = end->link->net;

    peer->out.void_ = true;
    lose_later(peer, net->sim->now_ns + rng_below(&net->sim->rng, net->weather.close_max + 1),
               PSD_ERR_PEER_LOST, "closed by the peer");
}

static void
end_close(struct psi_conn *conn)
{
    struct net_end *end = (struct net_end *)conn;
    struct net_link *link = end->link;
    struct net_end *peer = &link->end[!end->side];

    if (end->state == CLOSED) {
        return;
    }
    link->refs++;
    if (peer->state != CLOSED) {
        /* Unread bytes turn a close into a reset, which may overtake what was sent. */
        if (end->node->dying || peer->out.flight != NULL) {
            tear(end);
        }
        end->out.void_ = true;
        peer_hears(end);
    }
    end_finish(end);
    link_unref(link);
}

static void
linger_over(void *object, uint64_t side)
{
    struct net_link *link = object;

    if (link->end[side].state == LINGERING) {
        link->end[side].state = OPEN; /* ends like an open one */
        end_close(&link->end[side].conn);
    }
    link_unref(link);
}

static void
end_close_after_send(struct psi_conn *conn, uint32_t linger_ms)
{
    struct net_end *end = (struct net_end *)conn;
    struct net_link *link = end->link;

    if (end->state != OPEN || end->losing || end->node->dying || linger_ms == 0) {
        end_close(conn);
        return;
    }
    end->state = LINGERING;
    link_at(link, link->net->sim->now_ns + linger_ms * SIM_MS, linger_over, end->side);
    if (!end->out.taking) {
        end->out.taking = true;
        link_at(link, link->net->sim->now_ns, take, end->side);
    }
}

static const struct psi_conn_ops end_ops = {
    .send = end_send,
    .unshare = end_unshare,
    .close = end_close,
    .close_after_send = end_close_after_send,
    .queued_bytes = end_queued_bytes,
};

/* The end hears that it is over: after everything that still arrives. */
static void
lose(void *object, uint64_t side)
{
    struct net_link *link = object;
    struct net_end *end = &link->end[side];
    struct net_end *peer = &link->end[!side];
    struct node *node = end->node;

    if (end->state == CLOSED) {
        link_unref(link);
        return;
    }
    if (postponed(link, node, lose, side)) {
        return;
    }
    if (peer->out.flight != NULL && (end->state == OPEN || end->state == OPENING)) {
        sim_at(link->net->sim, link->net->sim->now_ns + 20 * SIM_US, lose, link, side);
        return;
    }
    const bool tell = end->state != LINGERING;

    if (end->reason.status == PSD_OK) {
        psi_fail(&end->reason, PSD_ERR_PEER_LOST, "%s: closed by the peer", end->conn.peer);
    }
    if (peer->state == LINGERING) {
        end_finish(peer); /* it was only waiting for this */
    }
    end->out.void_ = true;
    if (peer->state != CLOSED) {
        peer_hears(end);
    }
    link->refs++;
    end_finish(end);
    if (tell && end->conn.events != NULL) {
        sim_trace(link->net->sim, node->name, "closed   %s: %s", end->conn.peer, end->reason.text);
        end->conn.events->on_close(end->conn.owner, &end->conn, &end->reason);
        settle(node);
    }
    link_unref(link);
    link_unref(link);
}

/* ---- receiving ---------------------------------------------------------------------------- */

static void
trace_frame(struct net_end *to, const struct net_frame *frame)
{
    struct sim *sim = to->link->net->sim;
    struct psi_frame head;

    const size_t here = frame->lent != NULL ? frame->head_bytes : frame->total;

    sim_hash(sim, psi_crc32c(0, frame->bytes, here));
    if (frame->lent != NULL) {
        sim_hash(sim, psi_crc32c(0, frame->lent, frame->total - here));
    }
    if (psi_frame_decode(frame->bytes, &head, NULL) == PSD_OK && head.level > 0) {
        sim->counters.sums++;
    }
    if (sim->trace && psi_frame_decode(frame->bytes, &head, NULL) == PSD_OK) {
        sim_trace(sim, to->node->name,
                  "%-9s <- %s table %u chunk %u step %llu seq %llu view %u "
                  "request %x rank %u.%u flags %x status %d (%zu bytes)",
                  psi_frame_type_name(head.type), to->conn.peer, head.table, head.chunk,
                  (unsigned long long)head.step, (unsigned long long)head.seq, head.view,
                  head.request, head.rank, head.incarnation, head.flags, head.status, frame->total);
    } else {
        sim_hash(sim, sim->now_ns);
    }
}

/* Prefix, head and a part of the payload. */
static psd_status
begin_frame(struct net_end *to, struct net_frame *frame, struct psd_error *err)
{
    struct psi_frame_size size = {0};
    psd_status status =
        to->conn.events->on_prefix(to->conn.owner, &to->conn, frame->bytes, &size, err);

    frame->begun = true;
    if (status != PSD_OK || to->state != OPEN) {
        return status;
    }
    psi_assert(size.meta_bytes + PSI_PREFIX_BYTES == frame->head_bytes);
    psi_assert(size.payload_bytes == frame->total - frame->head_bytes);
    if (size.payload_bytes > 0 && frame->survives >= frame->head_bytes) {
        struct psi_sink sink = {0};

        status = to->conn.events->on_head(to->conn.owner, &to->conn, frame->bytes,
                                          frame->head_bytes, &sink, err);
        frame->sink = sink.into;
    }
    return status;
}

/* Prefix and head of a frame whose payload is on loan. */
static psd_status
begin_loan(struct net_end *to, struct net_frame *frame, struct psd_error *err)
{
    const struct psi_conn_events *events = to->conn.events;
    struct psi_frame_size size = {0};
    struct psi_sink sink = {0};
    psd_status status = events->on_prefix(to->conn.owner, &to->conn, frame->bytes, &size, err);

    frame->begun = true;
    if (status != PSD_OK || to->state != OPEN) {
        return status;
    }
    frame->loan = loan_create(to->link->net, frame);
    to->link->net->sim->counters.loans++;
    sink.lent = frame->loan->payload;
    sink.loan = &frame->loan->loan;
    sink.stays = frame->loan->copy == NULL;
    status =
        events->on_head(to->conn.owner, &to->conn, frame->bytes, frame->head_bytes, &sink, err);
    frame->sink = sink.into;
    if (status == PSD_OK && sink.keep) {
        to->link->net->sim->counters.loans_kept++;
        if (sink.into != NULL) {
            memcpy(sink.into, sink.lent, size.payload_bytes);
        }
        frame->sink = (uint8_t *)(uintptr_t)sink.lent;
        frame->loan = NULL; /* the owner's */
    }
    return status;
}

/* Copies a part of it to where it belongs, as it is now: its owner may have changed it since. */
static void
copy_loan(struct net_frame *frame, size_t from, size_t until)
{
    if (frame->loan != NULL && frame->sink != NULL) {
        memcpy(frame->sink + from, frame->loan->payload + from, until - from);
    }
}

/* The second half is copied later, perhaps. */
static bool
pauses_in_loan(struct net_end *to, struct net_frame *frame)
{
    struct sim *sim = to->link->net->sim;
    const size_t half = (frame->total - frame->head_bytes) / 2;

    if (frame->loan == NULL || frame->loan->copy != NULL || !rng_chance(&sim->rng, 30)) {
        return false;
    }
    copy_loan(frame, 0, half);
    frame->copied = half;
    return true;
}

static psd_status
end_loan(struct net_end *to, struct net_frame *frame, struct psd_error *err)
{
    const size_t payload_bytes = frame->total - frame->head_bytes;

    copy_loan(frame, frame->copied, payload_bytes);
    loan_give_back(frame);
    return to->conn.events->on_frame(to->conn.owner, &to->conn, frame->bytes, frame->head_bytes,
                                     frame->sink, payload_bytes, err);
}

static void
fill_sink(struct net_frame *frame, size_t from, size_t until)
{
    if (frame->sink != NULL && until > from) {
        memcpy(frame->sink + (from - frame->head_bytes), frame->bytes + from, until - from);
    }
}

static psd_status
end_frame(struct net_end *to, const struct net_frame *frame, struct psd_error *err)
{
    const size_t payload_bytes = frame->total - frame->head_bytes;

    return to->conn.events->on_frame(to->conn.owner, &to->conn, frame->bytes, frame->head_bytes,
                                     payload_bytes > 0 ? frame->sink : NULL, payload_bytes, err);
}

static void
next_delivery(struct net_end *from, uint64_t at_ns)
{
    if (from->out.flight != NULL) {
        from->out.delivering = true;
        link_at(from->link, at_ns, deliver, from->side);
    }
}

/* An event of the owner returned an error: the connection ends at once. */
static void
break_end(struct net_end *end, const struct psd_error *err)
{
    if (end->state == OPEN) {
        end->reason = *err;
        end->losing = true;
        frames_free(end->link->net, &end->link->end[!end->side].out.flight,
                    &end->link->end[!end->side].out.flight_last);
        link_at(end->link, end->link->net->sim->now_ns, lose, end->side);
    }
}

/* Does the first frame go on later, in a second part? */
static bool
pauses_midway(struct net_end *to, struct net_frame *frame)
{
    struct sim *sim = to->link->net->sim;
    const size_t payload = frame->total - frame->head_bytes;
    size_t half;

    if (payload == 0 || to->link->same_host || !rng_chance(&sim->rng, payload > 4096 ? 70 : 15)) {
        return false;
    }
    half = frame->head_bytes + rng_below(&sim->rng, payload);
    fill_sink(frame, frame->head_bytes, half < frame->survives ? half : frame->survives);
    return true;
}

static void
deliver(void *object, uint64_t side)
{
    struct net_link *link = object;
    struct net_end *from = &link->end[side];
    struct net_end *to = &link->end[!side];
    struct sim *sim = link->net->sim;
    struct net_frame *frame = from->out.flight;
    const bool on_loan = frame != NULL && comes_on_loan(link, frame);
    struct psd_error err = {0};
    psd_status status = PSD_OK;

    if (to->state == OPEN && postponed(link, to->node, deliver, side)) {
        return;
    }
    from->out.delivering = false;
    if (frame == NULL || to->state == CLOSED || to->state == LINGERING) {
        frames_free(link->net, &from->out.flight, &from->out.flight_last);
        link_unref(link);
        return;
    }
    if (to->state == OPENING || !link->accepted) {
        link_unref(link); /* goes on in opened() or accept() */
        return;
    }
    if (!frame->begun && frame->survives >= PSI_PREFIX_BYTES) {
        trace_frame(to, frame);
        status = on_loan ? begin_loan(to, frame, &err) : begin_frame(to, frame, &err);
        if (status == PSD_OK && to->state == OPEN &&
            (on_loan ? pauses_in_loan(to, frame) : pauses_midway(to, frame))) {
            from->out.delivering = true;
            /* A process may be stopped for long in the middle of a copy. */
            link_at(link,
                    sim->now_ns +
                        (on_loan ? rng_below(&sim->rng, COPY_NS_MAX) : delay(link->net) / 2),
                    deliver, side);
            settle(to->node);
            link_unref(link);
            return;
        }
    }
    if (status == PSD_OK && to->state == OPEN && on_loan) {
        status = end_loan(to, frame, &err);
    } else if (status == PSD_OK && to->state == OPEN && frame->begun) {
        fill_sink(frame, frame->head_bytes, frame->survives);
        if (frame->survives == frame->total) {
            status = end_frame(to, frame, &err);
        }
    }
    if (from->out.flight == frame) {
        frame_free(link->net, remove_first(&from->out.flight, &from->out.flight_last));
    }
    if (status != PSD_OK) {
        break_end(to, &err);
    }
    if (from->out.flight != NULL && !from->out.delivering) {
        next_delivery(from, from->out.flight->arrive_ns);
    }
    settle(to->node);
    link_unref(link);
}

/* ---- the beginning ------------------------------------------------------------------------ */

static void
end_init(struct net_link *link, unsigned side, struct node *node, const char *peer)
{
    struct net_end *end = &link->end[side];

    end->conn.ops = &end_ops;
    snprintf(end->conn.peer, sizeof(end->conn.peer), "%s", peer);
    end->link = link;
    end->node = node;
    end->side = side;
    end->next = node->ends;
    node->ends = end;
    link->refs++;
}

/* The connecting end learns that it is connected. */
static void
opened(void *object, uint64_t side)
{
    struct net_link *link = object;
    struct net_end *end = &link->end[0];

    if (end->state != OPENING) {
        link_unref(link);
        return;
    }
    if (postponed(link, end->node, opened, side)) {
        return;
    }
    end->state = OPEN;
    if (end->conn.events->on_open != NULL) {
        end->conn.events->on_open(end->conn.owner, &end->conn);
    }
    if (!link->end[1].out.delivering) {
        next_delivery(&link->end[1], link->net->sim->now_ns);
    }
    settle(end->node);
    link_unref(link);
}

static void
accept_end(void *object, uint64_t side)
{
    struct net_link *link = object;
    struct net_end *end = &link->end[1];
    struct node *node = end->node;
    struct psi_listener *listener = node->listener;

    if (end->state == CLOSED) {
        link_unref(link);
        return;
    }
    if (postponed(link, node, accept_end, side)) {
        return;
    }
    end->state = OPEN;
    link->accepted = true;
    if (listener == NULL ||
        listener->events->on_accept(listener->owner, &end->conn, &end->conn.events,
                                    &end->conn.owner) != PSD_OK) {
        end_close(&end->conn);
    } else if (!link->end[0].out.delivering) {
        next_delivery(&link->end[0], link->net->sim->now_ns);
    }
    settle(node);
    link_unref(link);
}

static struct node *
find_listening(const struct net *net, const char *address)
{
    for (struct node *node = net->nodes; node != NULL; node = node->next) {
        if (node->alive && node->listener != NULL && !node->hidden &&
            strcmp(node->listener->address, address) == 0) {
            return node;
        }
    }
    return NULL;
}

/* Is something between them? */
static bool
is_parted(const struct net *net, const struct node *one, const struct node *other)
{
    for (unsigned i = 0; i < net->rifts && i < NET_RIFTS_MAX; i++) {
        const struct net_rift *rift = &net->rift[i];

        if (rift->until_ns > net->sim->now_ns && ((rift->one == one && rift->other == other) ||
                                                  (rift->one == other && rift->other == one))) {
            return true;
        }
    }
    return false;
}

/* The request to connect has come to where the address points to. */
/* Is it a way to the master of one that does not find it? */
static bool
is_exile(const struct net_link *link, const struct node *to)
{
    return to != NULL && strncmp(to->name, "master", 6) == 0 &&
           link->end[0].node->exiled_until_ns > link->net->sim->now_ns;
}

static void
knock(void *object, uint64_t side)
{
    struct net_link *link = object;
    struct net *net = link->net;
    struct node *node = find_listening(net, link->address);
    const uint64_t now_ns = net->sim->now_ns;
    char peer[PSI_ADDRESS_BYTES];

    (void)side;
    if (link->end[0].state != OPENING) {
        link_unref(link);
        return;
    }
    if (is_exile(link, node) || is_parted(net, link->end[0].node, node) ||
        rng_chance(&net->sim->rng, net->weather.lost_connect_percent)) {
        net->sim->counters.lost_connects++;
        lose_later(&link->end[0], now_ns + rng_between(&net->sim->rng, 50, 300) * SIM_MS,
                   PSD_ERR_TIMEOUT, "no answer");
    } else if (node == NULL) {
        lose_later(&link->end[0], now_ns + delay(net), PSD_ERR_PEER_LOST, "connection refused");
    } else {
        snprintf(peer, sizeof(peer), "sim://%s", link->end[0].node->name);
        link->end[1].state = OPENING;
        end_init(link, 1, node, peer);
        link->same_host = node->host != 0 && node->host == link->end[0].node->host;
        link->end[0].conn.lends = link->same_host;
        link->end[1].conn.lends = link->same_host;
        link_at(link, now_ns, accept_end, 1);
        link_at(link, now_ns + delay(net), opened, 0);
    }
    link_unref(link);
}

static psd_status
node_connect(struct psi_env *env, const char *address, const char *identity,
             const struct psi_conn_events *events, void *owner, struct psi_conn **conn_p,
             struct psd_error *err)
{
    (void)identity;
    struct node *node = (struct node *)env;
    struct net *net = node->net;
    struct net_link *link;

    if (node->dying) {
        return psi_fail(err, PSD_ERR_PEER_LOST, "connect %s: this node is dead", address);
    }
    link = calloc(1, sizeof(*link));
    psi_assert(link != NULL);
    link->net = net;
    link->number = net->link_number++;
    snprintf(link->address, sizeof(link->address), "%s", address);
    link->next = net->links;
    if (net->links != NULL) {
        net->links->prev = link;
    }
    net->links = link;
    net->link_count++;
    link->end[1].state = CLOSED;
    end_init(link, 0, node, address);
    link->end[0].conn.events = events;
    link->end[0].conn.owner = owner;
    link_at(link, net->sim->now_ns + delay(net), knock, 0);
    *conn_p = &link->end[0].conn;
    return PSD_OK;
}

static psd_status
node_listen(struct psi_env *env, const char *address, const struct psi_listener_events *events,
            void *owner, struct psi_listener **listener_p, char bound_p[PSI_ADDRESS_BYTES],
            struct psd_error *err)
{
    struct node *node = (struct node *)env;
    struct psi_listener *listener = calloc(1, sizeof(*listener));

    (void)err;
    psi_assert(listener != NULL && node->listener == NULL);
    listener->node = node;
    listener->events = events;
    listener->owner = owner;
    snprintf(listener->address, sizeof(listener->address), "%s", address);
    snprintf(bound_p, PSI_ADDRESS_BYTES, "%s", address);
    node->listener = listener;
    *listener_p = listener;
    return PSD_OK;
}

static void
node_unlisten(struct psi_env *env, struct psi_listener *listener)
{
    struct node *node = (struct node *)env;

    psi_assert(node->listener == listener);
    node->listener = NULL;
    free(listener);
}

static uint64_t
node_now_ns(struct psi_env *env)
{
    const struct node *node = (const struct node *)env;

    return node->net->sim->now_ns + node->skew_ns;
}

static uint64_t
node_random(struct psi_env *env)
{
    return rng_next(&((struct node *)env)->rng);
}

/* What tables lend are real segments. Others read them through a mapping of their own, as in another
 * process: it is there for as long as anybody needs it, whatever becomes of the owner, and a write to
 * it is a fault. */
static void
node_lend(struct psi_env *env, const struct psi_segment *segment)
{
    struct node *node = (struct node *)env;
    struct net_region *region = calloc(1, sizeof(*region));

    psi_assert(region != NULL);
    psi_assert(psi_segment_attach(&region->segment, dup(segment->fd), segment->bytes, NULL) ==
               PSD_OK);
    psi_segment_close_fd(&region->segment);
    region->of = segment;
    region->node = node;
    region->refs = 1;
    region->next = node->mappings;
    node->mappings = region;
    psi_lending_add(&node->lending, segment);
}

static void
node_take_back(struct psi_env *env, const struct psi_segment *segment)
{
    struct node *node = (struct node *)env;
    struct net_region **link = &node->mappings;
    struct net_region *region;

    psi_assert(psi_lending_remove(&node->lending, segment) != UINT32_MAX);
    while ((*link)->of != segment) {
        link = &(*link)->next;
    }
    region = *link;
    *link = region->next;
    region_unref(node->net, region);
}

enum { TOLD_LATE_MS = 400 }; /* each machine has an agent of its own */

static psd_status
node_find_master(struct psi_env *env, struct psi_master_told *told_p, struct psd_error *err)
{
    const struct node *node = (struct node *)env;
    const struct net *net = node->net;
    const uint64_t late_ns = node->number * UINT64_C(137) % TOLD_LATE_MS * SIM_MS;

    (void)err;
    *told_p = net->sim->now_ns < net->told_ns + late_ns ? net->told_before : net->told;
    return PSD_OK;
}

void
net_tell_master(struct net *net, uint32_t term, const char *address)
{
    net->told_before = net->told;
    net->told = (struct psi_master_told){.term = term};
    snprintf(net->told.address, sizeof(net->told.address), "%s", address);
    net->told_ns = net->sim->now_ns;
}

static const struct psi_env_ops node_ops = {
    .now_ns = node_now_ns,
    .random = node_random,
    .connect = node_connect,
    .listen = node_listen,
    .unlisten = node_unlisten,
    .lend = node_lend,
    .take_back = node_take_back,
    .find_master = node_find_master,
};

/* ---- nodes -------------------------------------------------------------------------------- */

void
net_init(struct net *net, struct sim *sim)
{
    memset(net, 0, sizeof(*net));
    net->sim = sim;
}

void
net_fini(struct net *net)
{
    while (net->nodes != NULL) {
        struct node *node = net->nodes;

        while (node->ends != NULL) {
            end_finish(node->ends);
        }
        net->nodes = node->next;
        free(node);
    }
    /* What the heap still refers to. */
    while (net->links != NULL) {
        struct net_link *link = net->links;

        link->refs = 1;
        link_unref(link);
    }
    check_loans(net);
    while (net->quarantine_list != NULL) {
        struct quarantined *memory_kept = net->quarantine_list;

        net->quarantine_list = memory_kept->next;
        free(memory_kept->memory);
        free(memory_kept);
    }
}

struct node *
net_node_create(struct net *net, const char *name)
{
    struct node *node = calloc(1, sizeof(*node));

    psi_assert(node != NULL);
    node->env.ops = &node_ops;
    node->net = net;
    node->number = net->node_count++;
    snprintf(node->name, sizeof(node->name), "%s", name);
    node->alive = true;
    node->skew_ns = rng_between(&net->sim->rng, 1, 1000) * SIM_S;
    node->rng = rng_split(&net->sim->rng);
    node->wake_ns = UINT64_MAX;
    if (net->nodes_last != NULL) {
        net->nodes_last->next = node;
    } else {
        net->nodes = node;
    }
    net->nodes_last = node;
    return node;
}

void
net_node_kill(struct node *node)
{
    node->dying = true;
    for (struct net_end *end = node->ends; end != NULL; end = end->next) {
        if (end->state == LINGERING) {
            end->state = OPEN;
            end->conn.events = NULL;
            end->losing = true;
        }
    }
}

void
net_node_gone(struct node *node)
{
    struct net_end *next;

    for (struct net_end *end = node->ends; end != NULL; end = next) {
        next = end->next;
        if (end->state == LINGERING) {
            continue;
        }
        if (end->conn.events != NULL) {
            sim_fail(node->net->sim, "leak: %s left its connection to %s open", node->name,
                     end->conn.peer);
        }
        end_close(&end->conn);
    }
    if (node->listener != NULL) {
        sim_fail(node->net->sim, "leak: %s still listens", node->name);
    }
    if (node->lending.count > 0) {
        sim_fail(node->net->sim, "leak: %s still lends memory", node->name);
    }
    psi_lending_fini(&node->lending);
    node->alive = false;
}

static void
wake(void *object, uint64_t argument)
{
    struct node *node = object;
    struct sim *sim = node->net->sim;

    if (!node->alive || node->wake_ns != argument) {
        return; /* another wake-up took its place */
    }
    if (node->paused_until_ns > sim->now_ns) {
        node->wake_ns = node->paused_until_ns;
        sim_at(sim, node->wake_ns, wake, node, node->wake_ns);
        return;
    }
    node->wake_ns = UINT64_MAX;
    node->spins = node->spin_ns == sim->now_ns ? node->spins + 1 : 0;
    node->spin_ns = sim->now_ns;
    if (node->spins > SPINS_MAX) {
        sim_fail(sim, "%s spins: it is never satisfied with being woken", node->name);
        return;
    }
    settle(node);
}

void
net_node_pause(struct node *node, uint64_t until_ns)
{
    sim_trace(node->net->sim, node->name, "paused for %llu ms",
              (unsigned long long)((until_ns - node->net->sim->now_ns) / SIM_MS));
    if (node->paused_until_ns < until_ns) {
        node->paused_until_ns = until_ns;
    }
}

void
net_wake_at(struct node *node, uint64_t next_ns)
{
    struct sim *sim = node->net->sim;
    uint64_t at_ns = next_ns > node->skew_ns ? next_ns - node->skew_ns : 0;

    if (next_ns == UINT64_MAX) {
        node->wake_ns = UINT64_MAX;
        return;
    }
    at_ns = at_ns < sim->now_ns ? sim->now_ns : at_ns;
    if (at_ns != node->wake_ns) {
        node->wake_ns = at_ns;
        sim_at(sim, at_ns, wake, node, at_ns);
    }
}

/* ---- faults ------------------------------------------------------------------------------- */

static bool
is_open(const struct net_link *link)
{
    return link->end[0].state == OPEN && link->end[1].state == OPEN && !link->end[0].losing &&
           !link->end[1].losing;
}

static bool
is_busy(const struct net_link *link)
{
    return link->end[0].out.flight != NULL || link->end[0].out.unsent != NULL ||
           link->end[1].out.flight != NULL || link->end[1].out.unsent != NULL;
}

static bool
is_kept(const struct net_link *link)
{
    return link->same_host && link->end[1].node->keeps_neighbours;
}

static bool
may_be_cut(const struct net_link *link)
{
    return is_open(link) && !is_kept(link);
}

static bool
is_to_a_neighbour(const struct net_link *link)
{
    return is_open(link) && is_kept(link);
}

/* The n-th such (and busy) connection, or how many there are. */
static struct net_link *
nth_link(struct net *net, bool (*is_such)(const struct net_link *), bool busy, uint64_t n,
         uint64_t *count_p)
{
    uint64_t count = 0;

    for (struct net_link *link = net->links; link != NULL; link = link->next) {
        if (is_such(link) && (!busy || is_busy(link)) && count++ == n) {
            return link;
        }
    }
    *count_p = count;
    return NULL;
}

static void
cut(struct net_link *link, uint64_t silence_ns)
{
    struct sim *sim = link->net->sim;
    const unsigned first = (unsigned)rng_below(&sim->rng, 2);
    const uint64_t soon_ns = sim->now_ns + rng_below(&sim->rng, link->net->weather.close_max + 1);

    sim_trace(sim, "network", "cut %s - %s", link->end[0].node->name, link->end[1].node->name);
    tear(&link->end[0]);
    tear(&link->end[1]);
    lose_later(&link->end[first], soon_ns, PSD_ERR_PEER_LOST, "connection reset");
    lose_later(&link->end[!first], soon_ns + rng_below(&sim->rng, silence_ns + 1),
               PSD_ERR_PEER_LOST, "connection timed out");
}

/* Mostly one on which something is under way. */
static struct net_link *
some_link(struct net *net, bool (*is_such)(const struct net_link *))
{
    bool busy = rng_chance(&net->sim->rng, 75);
    uint64_t count = 0;

    (void)nth_link(net, is_such, busy, UINT64_MAX, &count);
    if (count == 0) {
        busy = false;
        (void)nth_link(net, is_such, busy, UINT64_MAX, &count);
    }
    return count == 0 ? NULL
                      : nth_link(net, is_such, busy, rng_below(&net->sim->rng, count), &count);
}

bool
net_cut_some(struct net *net, uint64_t silence_ns)
{
    struct net_link *link = some_link(net, may_be_cut);

    if (link != NULL) {
        cut(link, silence_ns);
    }
    return link != NULL;
}

bool
net_cut_neighbour(struct net *net, uint64_t silence_ns)
{
    struct net_link *link = some_link(net, is_to_a_neighbour);

    if (link != NULL) {
        cut(link, silence_ns);
    }
    return link != NULL;
}

void
net_cut_some_of(struct node *node, unsigned percent, uint64_t silence_ns)
{
    for (struct net_link *link = node->net->links; link != NULL; link = link->next) {
        if (may_be_cut(link) && (link->end[0].node == node || link->end[1].node == node) &&
            (percent == 100 || rng_chance(&node->net->sim->rng, percent))) {
            cut(link, silence_ns);
        }
    }
}

/* In one direction frames still come, until the kernels have given up: what they have sent is never
 * acknowledged. */
static void
part_link(struct net_link *link, uint64_t silence_ns)
{
    struct sim *sim = link->net->sim;
    const uint64_t ways = rng_below(&sim->rng, 3);
    const uint64_t at_ns = sim->now_ns + silence_ns + rng_below(&sim->rng, 50 * SIM_MS);

    sim->counters.one_way += ways < 2;
    for (unsigned side = 0; side < 2; side++) {
        if (ways == side || ways == 2) {
            tear(&link->end[side]);
        }
        lose_later(&link->end[side], at_ns, PSD_ERR_TIMEOUT, "nothing came back");
    }
}

void
net_part(struct node *one, struct node *other, uint64_t silence_ns, uint64_t until_ns)
{
    struct net *net = one->net;

    sim_trace(net->sim, "network", "%s and %s are parted for %llu ms", one->name, other->name,
              (unsigned long long)((until_ns - net->sim->now_ns) / SIM_MS));
    net->rift[net->rifts++ % NET_RIFTS_MAX] =
        (struct net_rift){.one = one, .other = other, .until_ns = until_ns};
    for (struct net_link *link = net->links; link != NULL; link = link->next) {
        if (is_open(link) && ((link->end[0].node == one && link->end[1].node == other) ||
                              (link->end[0].node == other && link->end[1].node == one))) {
            part_link(link, silence_ns);
        }
    }
}

void
net_exile(struct node *node, uint64_t until_ns)
{
    sim_trace(node->net->sim, "network", "%s does not find the master for %llu ms", node->name,
              (unsigned long long)((until_ns - node->net->sim->now_ns) / SIM_MS));
    node->exiled_until_ns = until_ns;
    for (struct net_link *link = node->net->links; link != NULL; link = link->next) {
        if (link->end[0].node == node && link->end[1].node != NULL &&
            is_exile(link, link->end[1].node) && may_be_cut(link)) {
            cut(link, SIM_MS);
        }
    }
}

void
net_cut_node(struct node *node, uint64_t silence_ns)
{
    net_cut_some_of(node, 100, silence_ns);
}

static bool
is_between_servers(const struct net_link *link)
{
    return may_be_cut(link) && link->end[0].node != NULL && link->end[1].node != NULL &&
           strncmp(link->end[0].node->name, "server", 6) == 0 &&
           strncmp(link->end[1].node->name, "server", 6) == 0;
}

bool
net_block_some(struct net *net, uint64_t until_ns)
{
    struct net_link *link = some_link(net, is_between_servers);
    const unsigned side = (unsigned)rng_below(&net->sim->rng, 2);

    if (link == NULL) {
        return false;
    }
    sim_trace(net->sim, "network", "%s does not reach %s for %llu ms, but hears it",
              link->end[side].node->name, link->end[1 - side].node->name,
              (unsigned long long)((until_ns - net->sim->now_ns) / SIM_MS));
    link->end[side].blocked_until_ns = until_ns;
    return true;
}

bool
net_clog_some(struct net *net, uint64_t until_ns)
{
    struct net_link *link = some_link(net, may_be_cut);

    if (link == NULL) {
        return false;
    }
    sim_trace(net->sim, "network", "clog %s - %s for %llu ms", link->end[0].node->name,
              link->end[1].node->name,
              (unsigned long long)((until_ns - net->sim->now_ns) / SIM_MS));
    link->clogged_until_ns = until_ns;
    return true;
}
