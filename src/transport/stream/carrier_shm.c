/*
 * carrier_shm.c - a connection whose peer is on this host.
 *
 * Invariants
 *   - everything the peer shows is copied before it is judged, and used only as copied;
 *   - a payload is lent only within a segment that the peer has the descriptor of: it is sent
 *     before the record that speaks of it;
 *   - a block is written again only after the peer has given it back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/stream/carrier_shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/shm/descriptors.h"
#include "transport/shm/shm_format.h"

enum {
    BLOCK_BYTES = 512 << 10, /* the largest chunk ... */
    LARGE_BYTES = 16 << 20,  /* ... and the largest payload; few are so large */
    BLOCKS_MAX = 256,        /* of the first kind, for one connection ... */
    LARGE_MAX = 16,          /* ... and of the other */
    LENT_MAX = PSI_SHM_SEGMENTS_MAX - BLOCKS_MAX - LARGE_MAX, /* numbers for lent segments */
    COPIES_BYTES_MAX = 8 << 20, /* on loan at once; they stay in the cache until they are read */
    RECORDS_AT_ONCE = 128,      /* the other connections get their turn */
    MESSAGES_AT_ONCE = 1024,    /* over the socket; it holds fewer */
    NOT_TOLD = UINT16_MAX,
};

enum { HEAD_MAX = PSI_PREFIX_BYTES + PSI_META_BYTES_MAX };

/* That one peer may have us map: addresses are not for one alone. */
#define FOREIGN_BYTES_MAX (UINT64_C(1) << 40)

_Static_assert(2 * PSI_COPIES_KEPT_MAX <= BLOCKS_MAX &&
                   2 * PSI_COPIES_KEPT_BYTES_MAX <= COPIES_BYTES_MAX &&
                   2 * PSI_COPIES_KEPT_BYTES_MAX <= LARGE_MAX * BLOCK_BYTES,
               "there is room for more than a peer keeps");
_Static_assert(PSI_SHM_TURNS_MAX *RECORDS_AT_ONCE * sizeof(struct psi_shm_record) >= PSI_RING_BYTES,
               "so many turns hear a full ring");

/* A segment of the peer. Alive while known, or while something of it is on loan. */
struct foreign {
    struct psi_segment segment;
    uint32_t uses;
};

struct loan {
    struct psi_loan loan; /* first */
    struct psi_shm *shm;  /* NULL: the connection is gone */
    struct foreign *from;
    uint32_t block;
    struct loan *next; /* shm->loans, shm->returning or shm->spare_loans */
    struct loan *prev;
};

/* A copy of a payload, for the peer to read. */
struct block {
    struct psi_segment segment;
    uint16_t told;     /* the number that the peer knows its segment by */
    size_t lent_bytes; /* 0: it is free */
};

/* Numbers of segments that the peer knows. One may be used again only when the peer has forgotten
 * the old segment: descriptors and records take different ways. */
enum number_state { NUMBER_FREE, NUMBER_TOLD, NUMBER_LEAVING };

struct numbers {
    uint16_t list[PSI_SHM_SEGMENTS_MAX];
    uint32_t count;
};

/* Thread: owned by the loop. */
struct psi_shm {
    struct psi_loop *loop;
    struct psi_conn *conn;
    int fd;
    bool closed;
    struct psi_segment mine;
    struct psi_segment theirs;
    struct psi_segment bell;
    struct psi_ring ring;
    struct psi_loop_ring watch;

    bool rung; /* and the peer has read nothing since: it knows */
    uint64_t rung_at;
    bool socket_full; /* the last frame could not be sent for want of room there */

    struct block blocks[BLOCKS_MAX + LARGE_MAX];
    uint32_t block_count;
    uint32_t large_count; /* of them */
    size_t copied_bytes;  /* in blocks that are on loan */
    uint16_t *told;       /* lent id -> number that the peer knows it by; NOT_TOLD */
    uint32_t told_capacity;
    uint32_t lent_count; /* numbers of lent segments, also of those that are being forgotten */
    uint8_t numbers[PSI_SHM_SEGMENTS_MAX]; /* enum number_state */
    uint32_t number_next;                  /* where to look for a free one first */

    struct foreign *foreign[PSI_SHM_SEGMENTS_MAX];
    uint64_t foreign_bytes;
    struct loan *loans;
    struct loan *spare_loans;
    bool deaf; /* frames are read over */

    /* What the peer is to be told as soon as there is room in the ring. */
    struct loan *returning;
    struct numbers forget;
    struct numbers forgotten;
};

/* ---- Waking the peer ---- */

static const struct psi_bell *
bell_of(const struct psi_shm *shm)
{
    return (const struct psi_bell *)(const void *)shm->bell.base;
}

static bool
peer_sleeps(const struct psi_shm *shm)
{
    return psi_bell_peer_sleeps(bell_of(shm));
}

static void
wake(const struct psi_shm *shm)
{
    (void)send(shm->fd, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* full: enough to wake it */
}

/* Something was written. A peer that has read nothing since it was woken, although there was
 * something to read, is still awake because of that; what is reserved but not shown yet is nothing
 * to read. */
static void
ring_bell(struct psi_shm *shm, bool urgent)
{
    uint64_t read_to;
    uint64_t shown;

    if (!peer_sleeps(shm) || (!urgent && !psi_ring_is_awaited(&shm->ring))) {
        return;
    }
    read_to = atomic_load_explicit(&shm->ring.theirs->head, memory_order_relaxed);
    shown = atomic_load_explicit(&shm->ring.mine->tail, memory_order_relaxed);
    if (read_to != shown && (!shm->rung || shm->rung_at != read_to)) {
        shm->rung = true;
        shm->rung_at = read_to;
        wake(shm);
    }
}

static void
ring_owed_bell(struct psi_shm *shm)
{
    const bool urgent = shm->watch.owes == PSI_URGENT_BELL;

    shm->watch.owes = PSI_NO_BELL;
    ring_bell(shm, urgent);
}

/* Something was read: the peer may have waited for that. */
static void
tell_of_room(const struct psi_shm *shm)
{
    if (peer_sleeps(shm) &&
        atomic_load_explicit(&shm->ring.theirs->starved, memory_order_relaxed) != 0) {
        wake(shm);
    }
}

/* ---- Telling the peer of a segment ---- */

/* There is one: those for blocks and those for lent segments together are as many as there are. */
static uint32_t
free_number(const struct psi_shm *shm)
{
    uint32_t number = shm->number_next;

    while (shm->numbers[number] != NUMBER_FREE) {
        number = (number + 1) % PSI_SHM_SEGMENTS_MAX;
        psi_assert(number != shm->number_next);
    }
    return number;
}

/* PSD_PENDING: the socket is full. */
static psd_status
announce(struct psi_shm *shm, const struct psi_segment *segment, uint16_t *told_p,
         struct psd_error *err)
{
    struct psi_shm_announcement text = {.segment = free_number(shm), .bytes = segment->bytes};
    const struct psi_unix_message message = {
        .bytes = &text, .size = sizeof(text), .fds = {segment->fd}, .fd_count = 1};
    const bool sent = psi_unix_send(shm->fd, &message, NULL, 0) == 0;

    shm->socket_full = !sent && errno == EAGAIN;
    if (shm->socket_full) {
        return PSD_PENDING;
    }
    if (!sent) {
        return psi_fail_errno(err, PSD_ERR_PEER_LOST, "send to %s: hand over memory",
                              shm->conn->peer);
    }
    shm->numbers[text.segment] = NUMBER_TOLD;
    shm->number_next = (text.segment + 1) % PSI_SHM_SEGMENTS_MAX;
    *told_p = (uint16_t)text.segment;
    return PSD_OK;
}

bool
psi_shm_awaits_socket(const struct psi_shm *shm)
{
    return shm->socket_full;
}

static bool
told_grow(struct psi_shm *shm, uint32_t id)
{
    const uint32_t capacity = id + 16;
    uint16_t *grown;

    if (id < shm->told_capacity) {
        return true;
    }
    grown = realloc(shm->told, capacity * sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    for (uint32_t i = shm->told_capacity; i < capacity; i++) {
        grown[i] = NOT_TOLD;
    }
    shm->told = grown;
    shm->told_capacity = capacity;
    return true;
}

/* The segment that a payload can be read in by the peer; NULL: it has to be copied. */
static const struct psi_lent *
find_lent(struct psi_shm *shm, const struct psi_outgoing *frame)
{
    const struct psi_buffer *buffer = &frame->buffers[0];
    const struct psi_lent *lent;

    if (!frame->stable || frame->buffer_count != 1) {
        return NULL;
    }
    lent = psi_lending_find(&shm->loop->lending, buffer->base, buffer->bytes);
    if (lent == NULL || !told_grow(shm, lent->id)) {
        return NULL;
    }
    if (shm->told[lent->id] == NOT_TOLD && shm->lent_count == LENT_MAX) {
        return NULL; /* the rest is for blocks */
    }
    return lent;
}

/* Speaks of a payload where it is. */
static psd_status
lend(struct psi_shm *shm, const struct psi_lent *lent, const struct psi_outgoing *frame,
     struct psi_shm_record *record, struct psd_error *err)
{
    psd_status status = PSD_OK;

    if (shm->told[lent->id] == NOT_TOLD) {
        status = announce(shm, lent->segment, &shm->told[lent->id], err);
        shm->lent_count += status == PSD_OK;
    }
    record->segment = shm->told[lent->id];
    record->offset = (uint64_t)((const uint8_t *)frame->buffers[0].base - lent->segment->base);
    return status;
}

/* ---- Blocks: copies of payloads ---- */

static bool
is_large(size_t bytes)
{
    return bytes > BLOCK_BYTES;
}

/* PSD_PENDING: others have to come back first. */
static psd_status
block_create(struct psi_shm *shm, size_t bytes, struct block **block_p, struct psd_error *err)
{
    struct block *block = &shm->blocks[shm->block_count];
    const uint32_t alike = is_large(bytes) ? shm->large_count : shm->block_count - shm->large_count;
    psd_status status;

    if (bytes > LARGE_BYTES) {
        return psi_fail(err, PSD_ERR_TOO_BIG, "send to %s: %zu bytes in one frame, at most %d",
                        shm->conn->peer, bytes, LARGE_BYTES);
    }
    if (alike == (is_large(bytes) ? LARGE_MAX : BLOCKS_MAX)) {
        return PSD_PENDING;
    }
    status = psi_segment_create(&block->segment, is_large(bytes) ? LARGE_BYTES : BLOCK_BYTES, err);
    if (status != PSD_OK) {
        return alike > 0 ? PSD_PENDING : status;
    }
    status = announce(shm, &block->segment, &block->told, err);
    if (status != PSD_OK) {
        psi_segment_destroy(&block->segment);
        return status;
    }
    psi_segment_close_fd(&block->segment);
    block->lent_bytes = 0;
    shm->block_count++;
    shm->large_count += is_large(bytes);
    *block_p = block;
    return PSD_OK;
}

static psd_status
block_take(struct psi_shm *shm, size_t bytes, struct block **block_p, struct psd_error *err)
{
    if (shm->copied_bytes > 0 && shm->copied_bytes + bytes > COPIES_BYTES_MAX) {
        return PSD_PENDING;
    }
    for (uint32_t i = 0; i < shm->block_count; i++) {
        struct block *block = &shm->blocks[i];

        if (block->lent_bytes == 0 && is_large(block->segment.bytes) == is_large(bytes)) {
            *block_p = block;
            return PSD_OK;
        }
    }
    return block_create(shm, bytes, block_p, err);
}

static void
gather(uint8_t *to, const struct psi_outgoing *frame)
{
    for (unsigned i = 0; i < frame->buffer_count; i++) {
        if (frame->buffers[i].bytes > 0) {
            memcpy(to, frame->buffers[i].base, frame->buffers[i].bytes);
            to += frame->buffers[i].bytes;
        }
    }
}

static psd_status
copy_to_block(struct psi_shm *shm, const struct psi_outgoing *frame, struct psi_shm_record *record,
              struct psd_error *err)
{
    struct block *block = NULL;
    const psd_status status = block_take(shm, record->payload_bytes, &block, err);

    if (status != PSD_OK) {
        return status;
    }
    gather(block->segment.base, frame);
    block->lent_bytes = record->payload_bytes;
    shm->copied_bytes += record->payload_bytes;
    record->segment = block->told;
    record->offset = 0;
    record->block = (uint32_t)(block - shm->blocks) + 1;
    return PSD_OK;
}

/* ---- Sending ---- */

/* Room for a record in the ring; NULL: PSD_PENDING, there is none yet, or an error. */
static uint8_t *
reserve(struct psi_shm *shm, size_t bytes, psd_status *status_p, struct psd_error *err)
{
    uint8_t *room = psi_ring_reserve(&shm->ring, bytes, status_p);

    if (*status_p != PSD_OK) {
        psi_fail(err, *status_p, "%s: its ring makes no sense", shm->conn->peer);
    } else if (room == NULL) {
        *status_p = PSD_PENDING;
    }
    return room;
}

/* cheap: more of the kind may follow at once, so the bell can wait for them. A copy takes long
 * enough for a peer to work meanwhile, unless it would do so on our core. */
static void
commit(struct psi_shm *shm, bool urgent, bool cheap)
{
    struct psi_loop *loop = shm->loop;
    const uint32_t core = psi_loop_say_core(loop);

    psi_ring_commit(&shm->ring, urgent);
    if (shm->watch.owes != PSI_URGENT_BELL) {
        shm->watch.owes = urgent ? PSI_URGENT_BELL : PSI_PATIENT_BELL;
    }
    if (loop->holds_bells && (cheap || psi_bell_core(bell_of(shm)) == core)) {
        loop->owes_bells = true;
    } else {
        ring_owed_bell(shm);
    }
}

static void
write_frame(uint8_t *to, const struct psi_shm_record *record, const struct psi_outgoing *frame)
{
    memcpy(to, record, sizeof(*record));
    memcpy(to + sizeof(*record), frame->head, record->head_bytes);
    if (record->kind == PSI_SHM_FRAME) {
        gather(to + sizeof(*record) + record->head_bytes, frame);
    }
}

static size_t
payload_bytes(const struct psi_outgoing *frame)
{
    size_t bytes = 0;

    for (unsigned i = 0; i < frame->buffer_count; i++) {
        bytes += frame->buffers[i].bytes;
    }
    return bytes;
}

static psd_status
try_to_send(struct psi_shm *shm, const struct psi_outgoing *frame, struct psd_error *err)
{
    struct psi_shm_record record = {.kind = PSI_SHM_FRAME,
                                    .head_bytes = (uint32_t)frame->head_bytes,
                                    .payload_bytes = payload_bytes(frame)};
    const struct psi_lent *lent = NULL;
    size_t bytes = sizeof(record) + frame->head_bytes + record.payload_bytes;
    psd_status status;
    uint8_t *room;

    shm->socket_full = false; /* until it is met again */
    if (record.payload_bytes > PSI_SHM_INLINE_MAX) {
        record.kind = PSI_SHM_LENT;
        bytes -= record.payload_bytes;
        lent = find_lent(shm, frame);
    }
    room = reserve(shm, bytes, &status, err); /* first: it costs nothing to let it go again */
    if (room == NULL) {
        return status;
    }
    if (lent != NULL) {
        status = lend(shm, lent, frame, &record, err);
    } else if (record.kind == PSI_SHM_LENT) {
        status = copy_to_block(shm, frame, &record, err);
    }
    if (status == PSD_OK) {
        write_frame(room, &record, frame);
        commit(shm, !frame->patient, record.block == 0);
    }
    return status;
}

/* What finds no room, or no block, needs the peer to read: at once, however many records it waits for. */
psd_status
psi_shm_send(struct psi_shm *shm, const struct psi_outgoing *frame, struct psd_error *err)
{
    const psd_status status = try_to_send(shm, frame, err);

    psi_ring_set_waiting(&shm->ring, status == PSD_PENDING);
    if (status == PSD_PENDING && peer_sleeps(shm)) {
        wake(shm);
    }
    return status;
}

/* A record of which nothing but its kind and one number counts. */
static psd_status
send_note(struct psi_shm *shm, const struct psi_shm_record *record, struct psd_error *err)
{
    psd_status status;
    uint8_t *room = reserve(shm, sizeof(*record), &status, err);

    if (room != NULL) {
        memcpy(room, record, sizeof(*record));
        commit(shm, false, false);
    }
    return status;
}

static psd_status
send_numbers(struct psi_shm *shm, enum psi_shm_record_kind kind, struct numbers *numbers,
             struct psd_error *err)
{
    psd_status status = PSD_OK;

    while (numbers->count > 0 && status == PSD_OK) {
        const struct psi_shm_record record = {.kind = kind,
                                              .segment = numbers->list[numbers->count - 1]};

        status = send_note(shm, &record, err);
        numbers->count -= status == PSD_OK;
    }
    return status;
}

/* Tells the peer what it has not been told yet, as far as there is room. */
static psd_status
send_notes(struct psi_shm *shm, struct psd_error *err)
{
    psd_status status = PSD_OK;

    while (shm->returning != NULL && status == PSD_OK) {
        struct loan *loan = shm->returning;
        const struct psi_shm_record record = {.kind = PSI_SHM_RETURNED, .block = loan->block};

        status = send_note(shm, &record, err);
        if (status == PSD_OK) {
            shm->returning = loan->next;
            loan->next = shm->spare_loans;
            shm->spare_loans = loan;
        }
    }
    if (status == PSD_OK) {
        status = send_numbers(shm, PSI_SHM_FORGET, &shm->forget, err);
    }
    if (status == PSD_OK) {
        status = send_numbers(shm, PSI_SHM_FORGOTTEN, &shm->forgotten, err);
    }
    return status == PSD_PENDING ? PSD_OK : status;
}

void
psi_shm_wake_after(struct psi_shm *shm, uint32_t frames)
{
    psi_ring_wake_after(&shm->ring, frames);
}

void
psi_shm_take_back(struct psi_shm *shm, uint32_t lent_id)
{
    if (lent_id < shm->told_capacity && shm->told[lent_id] != NOT_TOLD) {
        shm->numbers[shm->told[lent_id]] = NUMBER_LEAVING;
        shm->forget.list[shm->forget.count++] = shm->told[lent_id];
        shm->told[lent_id] = NOT_TOLD;
        (void)send_notes(shm, NULL); /* an error: the next frame meets it too */
    }
}

/* ---- Loans ---- */

static void
foreign_let_go(struct foreign *foreign)
{
    if (foreign != NULL && --foreign->uses == 0) {
        psi_segment_destroy(&foreign->segment);
        free(foreign);
    }
}

static void
loan_unlink(struct loan **list, struct loan *loan)
{
    if (loan->prev != NULL) {
        loan->prev->next = loan->next;
    } else {
        *list = loan->next;
    }
    if (loan->next != NULL) {
        loan->next->prev = loan->prev;
    }
}

static void
give_back(struct psi_loan *public)
{
    struct loan *loan = (struct loan *)public;
    struct psi_shm *shm = loan->shm;
    struct loan **list;

    foreign_let_go(loan->from);
    if (shm == NULL) {
        free(loan);
        return;
    }
    loan_unlink(&shm->loans, loan);
    list = loan->block != 0 ? &shm->returning : &shm->spare_loans;
    loan->next = *list;
    *list = loan;
    (void)send_notes(shm, NULL); /* an error: the next frame meets it too */
}

static struct loan *
loan_create(struct psi_shm *shm, struct foreign *from, const struct psi_shm_record *record)
{
    struct loan *loan = shm->spare_loans;

    if (loan != NULL) {
        shm->spare_loans = loan->next;
    } else {
        loan = malloc(sizeof(*loan));
    }
    if (loan == NULL) {
        return NULL;
    }
    *loan = (struct loan){
        .loan = {.give_back = give_back},
        .shm = shm,
        .from = from,
        .block = record->block,
        .next = shm->loans,
    };
    from->uses++;
    if (shm->loans != NULL) {
        shm->loans->prev = loan;
    }
    shm->loans = loan;
    return loan;
}

/* ---- Receiving ---- */

/* The segment that a record speaks of; its descriptor may still wait in the socket. */
static struct foreign *
find_foreign(struct psi_shm *shm, uint32_t number, struct psd_error *err)
{
    bool ended;

    if (number >= PSI_SHM_SEGMENTS_MAX) {
        return NULL;
    }
    if (shm->foreign[number] == NULL && psi_shm_read_socket(shm, &ended, err) != PSD_OK) {
        return NULL;
    }
    return shm->foreign[number];
}

static psd_status
fail_record(const struct psi_shm *shm, struct psd_error *err)
{
    return psi_fail(err, PSD_ERR_PROTOCOL, "%s: a record that makes no sense", shm->conn->peer);
}

/* Asks the owner where the payload goes, and brings it there unless it is kept on loan. */
static psd_status
deliver(struct psi_shm *shm, const uint8_t *head, const struct psi_shm_record *record,
        const uint8_t *payload, struct loan *loan, struct psd_error *err)
{
    struct psi_conn *conn = shm->conn;
    struct psi_sink sink = {0};
    void *heard = NULL;
    psd_status status = PSD_OK;

    if (record->payload_bytes > 0) {
        if (loan != NULL) {
            sink.lent = payload;
            sink.loan = &loan->loan;
            sink.stays = record->block == 0;
        }
        status = conn->events->on_head(conn->owner, conn, head, record->head_bytes, &sink, err);
        if (loan != NULL && (status != PSD_OK || !sink.keep)) {
            if (status == PSD_OK && sink.into != NULL && !shm->closed) {
                memcpy(sink.into, payload, record->payload_bytes);
            }
            give_back(&loan->loan);
        } else if (loan == NULL && status == PSD_OK && sink.into != NULL && !shm->closed) {
            memcpy(sink.into, payload, record->payload_bytes);
        }
        heard = sink.keep ? (void *)(uintptr_t)payload : sink.into;
    }
    if (status == PSD_OK && !shm->closed) {
        status = conn->events->on_frame(conn->owner, conn, head, record->head_bytes, heard,
                                        record->payload_bytes, err);
    }
    return status;
}

static psd_status
hear_frame(struct psi_shm *shm, const struct psi_shm_record *record, const uint8_t *bytes,
           struct psd_error *err)
{
    struct psi_conn *conn = shm->conn;
    struct psi_frame_size size = {0};
    struct foreign *from = NULL;
    struct loan *loan = NULL;
    PSI_UNINITIALIZED uint8_t head[HEAD_MAX];
    const uint8_t *payload = bytes + record->head_bytes;
    psd_status status;

    memcpy(head, bytes, record->head_bytes);
    status = conn->events->on_prefix(conn->owner, conn, head, &size, err);
    if (status != PSD_OK || shm->closed) {
        return status;
    }
    if (size.meta_bytes + PSI_PREFIX_BYTES != record->head_bytes ||
        size.payload_bytes != record->payload_bytes) {
        return fail_record(shm, err);
    }
    if (record->kind == PSI_SHM_LENT) {
        from = find_foreign(shm, record->segment, err);
        if (from == NULL || record->payload_bytes == 0 ||
            record->payload_bytes > from->segment.bytes ||
            record->offset > from->segment.bytes - record->payload_bytes) {
            return fail_record(shm, err);
        }
        payload = from->segment.base + record->offset;
        loan = loan_create(shm, from, record);
        if (loan == NULL) {
            return psi_fail(err, PSD_ERR_NO_MEMORY, "receive from %s: no memory", conn->peer);
        }
    }
    return deliver(shm, head, record, payload, loan, err);
}

static psd_status
hear_returned(struct psi_shm *shm, const struct psi_shm_record *record, struct psd_error *err)
{
    struct block *block;

    if (record->block == 0 || record->block > shm->block_count) {
        return fail_record(shm, err);
    }
    block = &shm->blocks[record->block - 1];
    if (block->lent_bytes == 0) {
        return fail_record(shm, err);
    }
    shm->copied_bytes -= block->lent_bytes;
    block->lent_bytes = 0;
    return PSD_OK;
}

static psd_status
hear_forget(struct psi_shm *shm, const struct psi_shm_record *record, struct psd_error *err)
{
    if (find_foreign(shm, record->segment, err) == NULL) {
        return fail_record(shm, err);
    }
    shm->foreign_bytes -= shm->foreign[record->segment]->segment.bytes;
    foreign_let_go(shm->foreign[record->segment]);
    shm->foreign[record->segment] = NULL;
    if (shm->forgotten.count == PSI_SHM_SEGMENTS_MAX) {
        return fail_record(shm, err); /* it has not waited for our word */
    }
    shm->forgotten.list[shm->forgotten.count++] = (uint16_t)record->segment;
    return PSD_OK;
}

static psd_status
hear_forgotten(struct psi_shm *shm, const struct psi_shm_record *record, struct psd_error *err)
{
    if (record->segment >= PSI_SHM_SEGMENTS_MAX ||
        shm->numbers[record->segment] != NUMBER_LEAVING) {
        return fail_record(shm, err);
    }
    shm->numbers[record->segment] = NUMBER_FREE;
    shm->lent_count--;
    return PSD_OK;
}

static psd_status
hear(struct psi_shm *shm, const uint8_t *bytes, size_t count, struct psd_error *err)
{
    struct psi_shm_record record;
    size_t expected;

    if (count < sizeof(record)) {
        return fail_record(shm, err);
    }
    memcpy(&record, bytes, sizeof(record));
    if (record.kind == PSI_SHM_RETURNED) {
        return hear_returned(shm, &record, err);
    }
    if (record.kind == PSI_SHM_FORGET) {
        return hear_forget(shm, &record, err);
    }
    if (record.kind == PSI_SHM_FORGOTTEN) {
        return hear_forgotten(shm, &record, err);
    }
    if (shm->deaf) {
        return PSD_OK;
    }
    if (record.kind > PSI_SHM_LENT || record.head_bytes < PSI_PREFIX_BYTES ||
        record.head_bytes > HEAD_MAX ||
        (record.kind == PSI_SHM_FRAME && record.payload_bytes > PSI_SHM_INLINE_MAX)) {
        return fail_record(shm, err);
    }
    expected = sizeof(record) + record.head_bytes +
               (record.kind == PSI_SHM_FRAME ? record.payload_bytes : 0);
    if (count != expected) {
        return fail_record(shm, err);
    }
    return hear_frame(shm, &record, bytes + sizeof(record), err);
}

psd_status
psi_shm_receive(struct psi_shm *shm, unsigned *frames_p, bool *more_p, struct psd_error *err)
{
    psd_status status = PSD_OK;
    unsigned records = 0;

    *more_p = false;
    *frames_p = 0;
    while (status == PSD_OK && !shm->closed) {
        const uint8_t *bytes;
        size_t count;

        status = psi_ring_peek(&shm->ring, &bytes, &count);
        if (status == PSD_PENDING) {
            status = PSD_OK;
            break;
        }
        if (status != PSD_OK) {
            return psi_fail(err, status, "%s: its ring makes no sense", shm->conn->peer);
        }
        if (records == RECORDS_AT_ONCE) {
            *more_p = true;
            break;
        }
        records++;
        psi_loop_hold_bells(shm->loop);
        status = hear(shm, bytes, count, err);
        psi_loop_ring_bells(shm->loop);
        if (!shm->closed) {
            psi_ring_consume(&shm->ring);
        }
    }
    *frames_p = records;
    if (!shm->closed && status == PSD_OK) {
        if (records > 0) {
            tell_of_room(shm);
        }
        status = send_notes(shm, err);
    }
    return status;
}

void
psi_shm_deafen(struct psi_shm *shm)
{
    shm->deaf = true;
}

static psd_status
meet_segment(struct psi_shm *shm, const struct psi_shm_announcement *text, int fd,
             struct psd_error *err)
{
    struct foreign *foreign;
    psd_status status;

    if (text->segment >= PSI_SHM_SEGMENTS_MAX || shm->foreign[text->segment] != NULL) {
        close(fd);
        return fail_record(shm, err);
    }
    foreign = calloc(1, sizeof(*foreign));
    if (foreign == NULL) {
        close(fd);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "receive from %s: no memory", shm->conn->peer);
    }
    if (text->bytes > FOREIGN_BYTES_MAX - shm->foreign_bytes) {
        free(foreign);
        close(fd);
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: lends more than %llu bytes", shm->conn->peer,
                        (unsigned long long)FOREIGN_BYTES_MAX);
    }
    status = psi_segment_attach(&foreign->segment, fd, text->bytes, err);
    if (status != PSD_OK) {
        free(foreign);
        return status;
    }
    shm->foreign_bytes += text->bytes;
    psi_segment_close_fd(&foreign->segment);
    foreign->uses = 1;
    shm->foreign[text->segment] = foreign;
    return PSD_OK;
}

psd_status
psi_shm_read_socket(struct psi_shm *shm, bool *ended_p, struct psd_error *err)
{
    psd_status status = PSD_OK;

    *ended_p = false;
    for (unsigned i = 0; i < MESSAGES_AT_ONCE && status == PSD_OK; i++) {
        struct psi_shm_announcement text;
        struct psi_unix_message message = {.bytes = &text, .size = sizeof(text)};
        const int got = psi_unix_receive(shm->fd, &message);

        if (got < 0 && errno == EAGAIN) {
            break;
        }
        if (got <= 0) {
            *ended_p = true;
            break;
        }
        if (message.fd_count == 1 && message.size == sizeof(text)) {
            status = meet_segment(shm, &text, message.fds[0], err);
        } else if (message.fd_count > 0 || message.size == 0) {
            psi_unix_close(&message);
            status = psi_fail(err, PSD_ERR_PROTOCOL,
                              "%s: memory that could not be taken in; are too many files open?",
                              shm->conn->peer);
        }
    }
    return status;
}

/* ---- Life ---- */

struct psi_shm *
psi_shm_create(const struct psi_shm_args *args)
{
    struct psi_shm *shm = calloc(1, sizeof(*shm));

    if (shm == NULL) {
        return NULL;
    }
    shm->loop = args->loop;
    shm->conn = args->conn;
    shm->fd = args->fd;
    shm->mine = args->mine;
    shm->theirs = args->theirs;
    shm->bell = args->bell;
    psi_segment_close_fd(&shm->mine); /* mapped, and the peer has its own descriptor */
    psi_segment_close_fd(&shm->theirs);
    psi_segment_close_fd(&shm->bell);
    psi_ring_init(&shm->ring, (struct psi_ring_side *)(void *)shm->mine.base,
                  (const struct psi_ring_side *)(const void *)shm->theirs.base);
    shm->watch = (struct psi_loop_ring){
        .ring = &shm->ring,
        .neighbour = bell_of(shm),
        .ready = args->ready,
        .object = args->object,
        .ring_bell = ring_owed_bell,
        .shm = shm,
    };
    psi_loop_watch_ring(shm->loop, &shm->watch);
    return shm;
}

static void
free_loans(struct loan *loan)
{
    while (loan != NULL) {
        struct loan *next = loan->next;

        free(loan);
        loan = next;
    }
}

static void
destroy(void *object)
{
    struct psi_shm *shm = object;

    for (uint32_t i = 0; i < PSI_SHM_SEGMENTS_MAX; i++) {
        foreign_let_go(shm->foreign[i]);
    }
    for (uint32_t i = 0; i < shm->block_count; i++) {
        psi_segment_destroy(&shm->blocks[i].segment);
    }
    free_loans(shm->returning);
    free_loans(shm->spare_loans);
    psi_segment_destroy(&shm->mine);
    psi_segment_destroy(&shm->theirs);
    psi_segment_destroy(&shm->bell);
    free(shm->told);
    free(shm);
}

void
psi_shm_close(struct psi_shm *shm)
{
    psi_assert(!shm->closed);
    shm->closed = true;
    while (shm->loans != NULL) {
        struct loan *loan = shm->loans;

        loan_unlink(&shm->loans, loan);
        loan->shm = NULL; /* its owner still has it */
    }
    psi_loop_unwatch_ring(shm->loop, &shm->watch);
    psi_loop_free_later(shm->loop, destroy, shm); /* a waiting thread may be looking at the ring */
}
