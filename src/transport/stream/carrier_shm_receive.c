/*
 * carrier_shm_receive.c - hearing a peer on this host: its records, its segments, and loans of its
 * memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/timed_copy.h"
#include "transport/loop/loop.h"
#include "transport/shm/descriptors.h"
#include "transport/stream/carrier_shm.h"
#include "transport/stream/carrier_shm_state.h"

_Static_assert(PSI_SHM_TURNS_MAX *RECORDS_AT_ONCE * sizeof(struct psi_shm_record) >= PSI_RING_BYTES,
               "so many turns hear a full ring");

enum { HEAD_MAX = PSI_PREFIX_BYTES + PSI_META_BYTES_MAX };

/* That one peer may have us map: addresses are not for one alone. */
#define FOREIGN_BYTES_MAX (UINT64_C(1) << 40)

void
psi_shm_foreign_let_go(struct foreign *foreign)
{
    if (foreign != NULL && --foreign->uses == 0) {
        psi_segment_destroy(&foreign->segment);
        free(foreign);
    }
}

void
psi_shm_loan_unlink(struct loan **list, struct loan *loan)
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

void
psi_shm_give_back(struct loan *loan)
{
    loan->loan.give_back(&loan->loan);
}

static void
give_back(struct psi_loan *public)
{
    struct loan *loan = (struct loan *)public;
    struct psi_shm *shm = loan->shm;
    struct loan **list;

    psi_shm_foreign_let_go(loan->from);
    if (shm == NULL) {
        free(loan);
        return;
    }
    psi_shm_loan_unlink(&shm->loans, loan);
    list = loan->block != 0 ? &shm->returning : &shm->spare_loans;
    loan->next = *list;
    *list = loan;
    (void)psi_shm_send_notes(shm, NULL); /* an error: the next frame meets it too */
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

static struct foreign *
foreign_of(const struct psi_shm *shm, uint32_t number)
{
    return number < shm->foreign_capacity ? shm->foreign[number] : NULL;
}

/* Room for one with that number. */
static bool
foreign_grow(struct psi_shm *shm, uint32_t number)
{
    const uint32_t capacity = number + 16;
    struct foreign **grown;

    if (number < shm->foreign_capacity) {
        return true;
    }
    grown = realloc((void *)shm->foreign, capacity * sizeof(struct foreign *));
    if (grown == NULL) {
        return false;
    }
    for (uint32_t i = shm->foreign_capacity; i < capacity; i++) {
        grown[i] = NULL;
    }
    shm->foreign = grown;
    shm->foreign_capacity = capacity;
    return true;
}

/* The segment that a record speaks of; its descriptor may still wait in the socket. */
static struct foreign *
find_foreign(struct psi_shm *shm, uint32_t number, struct psd_error *err)
{
    bool ended;

    if (number >= PSI_SHM_SEGMENTS_MAX) {
        return NULL;
    }
    if (foreign_of(shm, number) == NULL && psi_shm_read_socket(shm, &ended, err) != PSD_OK) {
        return NULL;
    }
    return foreign_of(shm, number);
}

static psd_status
fail_record(const struct psi_shm *shm, struct psd_error *err)
{
    return psi_fail(err, PSD_ERR_PROTOCOL, "%s: a record that makes no sense", shm->conn->peer);
}

/* Frames that were heard before this one are told before it. False: its connection is gone. */
static bool
hear_earlier(struct psi_shm *shm, const uint8_t *head, psd_status *status_p, struct psd_error *err)
{
    struct psi_conn *conn = shm->conn;
    struct psi_frame_size size = {0};

    if (psi_shm_hears_later(shm->loop)) {
        psi_shm_hear_all(shm->loop);
        if (!shm->closed) {
            *status_p = conn->events->on_prefix(conn->owner, conn, head, &size, err);
        }
    }
    return !shm->closed;
}

/* The payload is brought to where it goes, unless it is kept on loan or nobody wants it. */
static void
bring(struct psi_shm *shm, const struct psi_sink *sink, const uint8_t *payload, size_t bytes,
      struct loan *loan)
{
    if (sink->into != NULL) {
        psi_timed_copy(sink->into, payload, bytes, &shm->loop->counts.copied_ns);
    }
    if (loan != NULL && !sink->keep) {
        give_back(&loan->loan);
    }
}

/* Asks the owner where the payload goes. *done_p: all that is left to do is done by others, or later. */
static psd_status
place(struct psi_shm *shm, const uint8_t *head, const struct psi_shm_record *record,
      const uint8_t *payload, struct loan *loan, struct psi_sink *sink_p, bool *done_p,
      struct psd_error *err)
{
    struct psi_conn *conn = shm->conn;
    psd_status status;

    *done_p = false;
    if (loan != NULL) {
        sink_p->lent = payload;
        sink_p->loan = &loan->loan;
        sink_p->stays = record->block == 0;
    }
    status = conn->events->on_head(conn->owner, conn, head, record->head_bytes, sink_p, err);
    if (status == PSD_OK && !shm->closed && loan != NULL && sink_p->apart && sink_p->into != NULL) {
        const struct heard heard = {
            .head = head,
            .head_bytes = record->head_bytes,
            .into = sink_p->into,
            .payload = payload,
            .payload_bytes = record->payload_bytes,
            .loan = sink_p->keep ? NULL : loan,
        };

        *done_p = psi_shm_put_off_hearing(shm, &heard);
    }
    if (loan != NULL && (status != PSD_OK || (shm->closed && !sink_p->keep))) {
        give_back(&loan->loan);
    }
    return status;
}

/* Asks the owner where the payload goes, and brings it there unless it is kept on loan. */
static psd_status
deliver(struct psi_shm *shm, const uint8_t *head, const struct psi_shm_record *record,
        const uint8_t *payload, struct loan *loan, struct psd_error *err)
{
    struct psi_conn *conn = shm->conn;
    struct psi_sink sink = {0};
    psd_status status = PSD_OK;
    void *heard = NULL;
    bool done = false;

    if (record->payload_bytes > 0) {
        status = place(shm, head, record, payload, loan, &sink, &done, err);
    }
    if (status != PSD_OK || shm->closed || done) {
        return status;
    }
    if (!hear_earlier(shm, head, &status, err)) {
        if (loan != NULL && !sink.keep) {
            give_back(&loan->loan);
        }
        return PSD_OK;
    }
    if (record->payload_bytes > 0) {
        bring(shm, &sink, payload, record->payload_bytes, loan);
        heard = sink.keep ? (void *)(uintptr_t)payload : sink.into;
    }
    if (status == PSD_OK) {
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
    psi_shm_foreign_let_go(shm->foreign[record->segment]);
    shm->foreign[record->segment] = NULL;
    if (numbers_have(&shm->forgotten, record->segment)) {
        return fail_record(shm, err); /* it has not waited for our word */
    }
    numbers_add(&shm->forgotten, record->segment);
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
            psi_shm_tell_of_room(shm);
        }
        status = psi_shm_send_notes(shm, err);
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

    if (text->segment >= PSI_SHM_SEGMENTS_MAX || foreign_of(shm, text->segment) != NULL) {
        close(fd);
        return fail_record(shm, err);
    }
    foreign = calloc(1, sizeof(*foreign));
    if (foreign == NULL || !foreign_grow(shm, text->segment)) {
        free(foreign);
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
