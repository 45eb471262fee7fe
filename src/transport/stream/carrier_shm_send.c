/*
 * carrier_shm_send.c - sending to a peer on this host: what is lent where it lies, what is copied
 * into a block, and the notes about both.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/timed_copy.h"
#include "transport/shm/descriptors.h"
#include "transport/stream/carrier_shm.h"
#include "transport/stream/carrier_shm_state.h"

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

static bool
blocks_grow(struct psi_shm *shm)
{
    const uint32_t capacity = shm->block_capacity > 0 ? 2 * shm->block_capacity : BLOCKS_LEAST;
    struct block *grown;

    if (shm->block_count < shm->block_capacity) {
        return true;
    }
    grown = realloc(shm->blocks, capacity * sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    shm->blocks = grown;
    shm->block_capacity = capacity;
    return true;
}

/* PSD_PENDING: others have to come back first. */
static psd_status
block_create(struct psi_shm *shm, size_t bytes, struct block **block_p, struct psd_error *err)
{
    const uint32_t alike =
        psi_shm_is_large(bytes) ? shm->large_count : shm->block_count - shm->large_count;
    struct block *block;
    psd_status status;

    if (bytes > LARGE_BYTES) {
        return psi_fail(err, PSD_ERR_TOO_BIG, "send to %s: %zu bytes in one frame, at most %d",
                        shm->conn->peer, bytes, LARGE_BYTES);
    }
    if (alike == (psi_shm_is_large(bytes) ? LARGE_MAX : BLOCKS_MAX)) {
        return PSD_PENDING;
    }
    if (!blocks_grow(shm)) {
        return alike > 0
                   ? PSD_PENDING
                   : psi_fail(err, PSD_ERR_NO_MEMORY, "send to %s: no memory", shm->conn->peer);
    }
    block = &shm->blocks[shm->block_count];
    status = psi_segment_create(&block->segment,
                                psi_shm_is_large(bytes) ? LARGE_BYTES : BLOCK_BYTES, err);
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
    shm->large_count += psi_shm_is_large(bytes);
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

        if (block->lent_bytes == 0 &&
            psi_shm_is_large(block->segment.bytes) == psi_shm_is_large(bytes)) {
            *block_p = block;
            return PSD_OK;
        }
    }
    return block_create(shm, bytes, block_p, err);
}

static void
gather(struct psi_shm *shm, uint8_t *to, const struct psi_outgoing *frame)
{
    for (unsigned i = 0; i < frame->buffer_count; i++) {
        if (frame->buffers[i].bytes > 0) {
            psi_timed_copy(to, frame->buffers[i].base, frame->buffers[i].bytes,
                           &shm->loop->counts.copied_ns);
            to += frame->buffers[i].bytes;
        }
    }
}

/* The block is only taken: it is filled by the caller. */
static psd_status
put_into_block(struct psi_shm *shm, struct psi_shm_record *record, struct block **block_p,
               struct psd_error *err)
{
    struct block *block = NULL;
    const psd_status status = block_take(shm, record->payload_bytes, &block, err);

    if (status != PSD_OK) {
        return status;
    }
    block->lent_bytes = record->payload_bytes;
    shm->copied_bytes += record->payload_bytes;
    record->segment = block->told;
    record->offset = 0;
    record->block = (uint32_t)(block - shm->blocks) + 1;
    *block_p = block;
    return PSD_OK;
}

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
void
psi_shm_commit_to(struct psi_shm *shm, uint64_t end, bool urgent, bool cheap)
{
    struct psi_loop *loop = shm->loop;
    const uint32_t core = psi_loop_say_core(loop);

    psi_ring_commit_to(&shm->ring, end, urgent);
    if (shm->watch.owes != PSI_URGENT_BELL) {
        shm->watch.owes = urgent ? PSI_URGENT_BELL : PSI_PATIENT_BELL;
    }
    if (loop->holds_bells && (cheap || psi_bell_core(psi_shm_bell(shm)) == core)) {
        loop->owes_bells = true;
    } else {
        psi_shm_ring_bell(shm);
    }
}

static void
commit(struct psi_shm *shm, bool urgent, bool cheap)
{
    psi_assert(shm->put_off == 0);
    psi_shm_commit_to(shm, psi_ring_put_off(&shm->ring), urgent, cheap);
}

static void
write_frame(struct psi_shm *shm, uint8_t *to, const struct psi_shm_record *record,
            const struct psi_outgoing *frame)
{
    memcpy(to, record, sizeof(*record));
    memcpy(to + sizeof(*record), frame->head, record->head_bytes);
    if (record->kind == PSI_SHM_FRAME) {
        gather(shm, to + sizeof(*record) + record->head_bytes, frame);
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

static size_t
record_bytes(const struct psi_shm_record *record)
{
    return sizeof(*record) + record->head_bytes +
           (record->kind == PSI_SHM_FRAME ? record->payload_bytes : 0);
}

/* A payload that cannot stay where it is. later: somebody copies it while we go on. */
static psd_status
send_copy(struct psi_shm *shm, const struct psi_outgoing *frame, struct psi_shm_record *record,
          uint8_t *room, bool later, struct psd_error *err)
{
    struct block *block;
    const psd_status status = put_into_block(shm, record, &block, err);

    if (status != PSD_OK) {
        return status;
    }
    write_frame(shm, room, record, frame);
    if (later) {
        psi_shm_put_off_sending(shm, block->segment.base, frame->buffers[0].base,
                                record->payload_bytes, !frame->patient);
        return PSD_OK;
    }
    gather(shm, block->segment.base, frame);
    commit(shm, !frame->patient, false);
    return PSD_OK;
}

static psd_status
try_to_send(struct psi_shm *shm, const struct psi_outgoing *frame, bool lasting,
            struct psd_error *err)
{
    struct psi_shm_record record = {.kind = PSI_SHM_FRAME,
                                    .head_bytes = (uint32_t)frame->head_bytes,
                                    .payload_bytes = payload_bytes(frame)};
    const struct psi_lent *lent = NULL;
    bool later = false;
    psd_status status;
    uint8_t *room;

    shm->socket_full = false; /* until it is met again */
    if (record.payload_bytes > PSI_SHM_INLINE_MAX) {
        record.kind = PSI_SHM_LENT;
        lent = find_lent(shm, frame);
        later = lasting && lent == NULL && frame->buffer_count == 1 &&
                psi_shm_may_put_off(shm, record.payload_bytes);
    }
    if (!later) {
        psi_shm_finish_sending(shm); /* nothing overtakes what was put off */
    }
    room =
        reserve(shm, record_bytes(&record), &status, err); /* first: it costs nothing to let go */
    if (room == NULL) {
        return status;
    }
    if (record.kind == PSI_SHM_LENT && lent == NULL) {
        return send_copy(shm, frame, &record, room, later, err);
    }
    if (lent != NULL) {
        status = lend(shm, lent, frame, &record, err);
    }
    if (status == PSD_OK) {
        write_frame(shm, room, &record, frame);
        commit(shm, !frame->patient, true);
    }
    return status;
}

void
psi_shm_finish_sending(struct psi_shm *shm)
{
    if (shm->put_off > 0) {
        psi_shm_show_all(shm->loop);
    }
}

/* What finds no room, or no block, needs the peer to read: at once, however many records it waits for. */
psd_status
psi_shm_send(struct psi_shm *shm, const struct psi_outgoing *frame, bool lasting,
             struct psd_error *err)
{
    const psd_status status = try_to_send(shm, frame, lasting, err);

    psi_ring_set_waiting(&shm->ring, status == PSD_PENDING);
    if (status == PSD_PENDING && psi_shm_peer_sleeps(shm)) {
        psi_shm_wake(shm);
    }
    return status;
}

/* A record of which nothing but its kind and one number counts. */
static psd_status
send_note(struct psi_shm *shm, const struct psi_shm_record *record, struct psd_error *err)
{
    psd_status status;
    uint8_t *room;

    psi_shm_finish_sending(shm);
    room = reserve(shm, sizeof(*record), &status, err);
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

    for (uint32_t i = 0; numbers->count > 0 && status == PSD_OK; i++) {
        const struct psi_shm_record record = {.kind = kind, .segment = i};

        if (numbers_have(numbers, i)) {
            status = send_note(shm, &record, err);
        }
        if (numbers_have(numbers, i) && status == PSD_OK) {
            numbers_remove(numbers, i);
        }
    }
    return status;
}

/* Tells the peer what it has not been told yet, as far as there is room. */
psd_status
psi_shm_send_notes(struct psi_shm *shm, struct psd_error *err)
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
    if (status == PSD_OK && shm->forget.count > 0) {
        status = send_numbers(shm, PSI_SHM_FORGET, &shm->forget, err);
    }
    if (status == PSD_OK && shm->forgotten.count > 0) {
        status = send_numbers(shm, PSI_SHM_FORGOTTEN, &shm->forgotten, err);
    }
    return status == PSD_PENDING ? PSD_OK : status;
}

void
psi_shm_take_back(struct psi_shm *shm, uint32_t lent_id)
{
    if (lent_id < shm->told_capacity && shm->told[lent_id] != NOT_TOLD) {
        shm->numbers[shm->told[lent_id]] = NUMBER_LEAVING;
        numbers_add(&shm->forget, shm->told[lent_id]);
        shm->told[lent_id] = NOT_TOLD;
        (void)psi_shm_send_notes(shm, NULL); /* an error: the next frame meets it too */
    }
}
