/*
 * carrier_shm_copies.c - large copies that a crew helps with, on their way to and from peers on this host.
 *
 * What is sent gets its record in the ring at once, but it is shown only when its payload is in its
 * block: at the latest when bells are rung. What is heard goes to where it belongs, and its owner is
 * told when it is there: at the latest before anything else is heard or happens. So several copies are
 * under way at a time, and everything but the copying is done by the loop's own thread, in order.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/crew.h"
#include "base/fail.h"
#include "base/timed_copy.h"
#include "transport/loop/loop.h"
#include "transport/stream/carrier_shm.h"
#include "transport/stream/carrier_shm_state.h"

enum {
    WORTH_BYTES = 128 << 10, /* less is copied at once */
    PIECE_BYTES = 64 << 10,
    COPIES_MAX = PSI_CREW_TASKS_MAX, /* under way, each way */
    HEAD_KEPT = PSI_PREFIX_BYTES + 64,
};

struct copy {
    struct psi_crew_task task;
    bool begun; /* false: the crew does not help with this one */
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
    size_t piece_bytes;
};

struct sending {
    struct psi_shm *shm;
    struct copy copy;
    uint64_t end; /* of its record */
    bool urgent;
};

struct hearing {
    struct psi_shm *shm; /* NULL: the connection is gone */
    struct copy copy;
    struct heard heard;
    uint8_t head[HEAD_KEPT];
};

/* Thread: owned by the loop; what copies say of their bytes is read by the crew while they are under way. */
struct copies {
    struct sending sends[COPIES_MAX];
    uint32_t send_first;
    uint32_t send_count;
    struct hearing hears[COPIES_MAX];
    uint32_t hear_first;
    uint32_t hear_count;
};

static struct copies *
copies_of(struct psi_loop *loop)
{
    if (loop->copies == NULL) {
        loop->copies = calloc(1, sizeof(struct copies));
        loop->show_copies = loop->copies != NULL ? psi_shm_show_all : NULL;
        loop->hear_copies = loop->copies != NULL ? psi_shm_hear_all : NULL;
    }
    return loop->copies;
}

/* ---- A copy -------------------------------------------------------------------------------- */

static void
copy_piece(void *object, uint32_t part)
{
    const struct copy *copy = object;
    const size_t at = part * copy->piece_bytes;
    const size_t rest = copy->bytes - at;

    memcpy(copy->to + at, copy->from + at, rest < copy->piece_bytes ? rest : copy->piece_bytes);
}

/* `copy` stays where it is until it is finished. */
static void
copy_begin(struct psi_loop *loop, struct copy *copy, void *to, const void *from, size_t bytes)
{
    const size_t least = (bytes + PSI_CREW_PARTS_MAX - 1) / PSI_CREW_PARTS_MAX;

    *copy = (struct copy){.to = to, .from = from, .bytes = bytes};
    copy->piece_bytes = least > PIECE_BYTES ? least : PIECE_BYTES;
    copy->task = (struct psi_crew_task){
        .run = copy_piece,
        .object = copy,
        .parts = (uint32_t)((bytes + copy->piece_bytes - 1) / copy->piece_bytes),
        .bytes = bytes,
    };
    copy->begun = psi_crew_begin(loop->crew, &copy->task);
}

static void
copy_finish(struct psi_loop *loop, struct copy *copy)
{
    const uint64_t begun_ns = psi_monotonic_ns();

    if (copy->begun) {
        psi_crew_finish(loop->crew, &copy->task);
    } else {
        memcpy(copy->to, copy->from, copy->bytes);
    }
    loop->counts.copied_ns += psi_monotonic_ns() - begun_ns;
}

/* ---- Sending ------------------------------------------------------------------------------- */

/* Only while bells are held: whoever holds them rings them soon. */
bool
psi_shm_may_put_off(struct psi_shm *shm, size_t bytes)
{
    struct psi_loop *loop = shm->loop;
    const struct copies *copies;

    if (loop->crew == NULL || !loop->holds_bells || bytes < WORTH_BYTES) {
        return false;
    }
    copies = copies_of(loop);
    return copies != NULL && copies->send_count < COPIES_MAX;
}

void
psi_shm_put_off_sending(struct psi_shm *shm, void *to, const void *from, size_t bytes, bool urgent)
{
    struct copies *copies = shm->loop->copies;
    struct sending *sending =
        &copies->sends[(copies->send_first + copies->send_count) % COPIES_MAX];

    sending->shm = shm;
    sending->end = psi_ring_put_off(&shm->ring);
    sending->urgent = urgent;
    shm->put_off++;
    copies->send_count++;
    copy_begin(shm->loop, &sending->copy, to, from, bytes);
}

void
psi_shm_show_all(struct psi_loop *loop)
{
    struct copies *copies = loop->copies;

    while (copies->send_count > 0) {
        struct sending *sending = &copies->sends[copies->send_first];

        copy_finish(loop, &sending->copy);
        sending->shm->put_off--;
        copies->send_first = (copies->send_first + 1) % COPIES_MAX;
        copies->send_count--;
        psi_shm_commit_to(sending->shm, sending->end, sending->urgent, false);
    }
}

/* ---- Hearing ------------------------------------------------------------------------------- */

bool
psi_shm_hears_later(const struct psi_loop *loop)
{
    const struct copies *copies = loop->copies;

    return copies != NULL && copies->hear_count > 0;
}

bool
psi_shm_put_off_hearing(struct psi_shm *shm, const struct heard *heard)
{
    struct psi_loop *loop = shm->loop;
    struct copies *copies;
    struct hearing *hearing;

    if (loop->crew == NULL || heard->payload_bytes < WORTH_BYTES || heard->head_bytes > HEAD_KEPT ||
        copies_of(loop) == NULL) {
        return false;
    }
    copies = loop->copies;
    if (copies->hear_count == COPIES_MAX) {
        return false;
    }
    hearing = &copies->hears[(copies->hear_first + copies->hear_count) % COPIES_MAX];
    hearing->shm = shm;
    hearing->heard = *heard;
    memcpy(hearing->head, heard->head, heard->head_bytes);
    hearing->heard.head = hearing->head;
    copies->hear_count++;
    copy_begin(loop, &hearing->copy, heard->into, heard->payload, heard->payload_bytes);
    return true;
}

/* The payload is there. */
static psd_status
tell(struct psi_shm *shm, const struct heard *heard, struct psd_error *err)
{
    struct psi_conn *conn = shm->conn;
    struct psi_frame_size size = {0};
    void *payload = heard->loan == NULL ? (void *)(uintptr_t)heard->payload : heard->into;
    psd_status status;

    if (heard->loan != NULL) {
        psi_shm_give_back(heard->loan);
    }
    status = conn->events->on_prefix(conn->owner, conn, heard->head, &size, err);
    if (status == PSD_OK) {
        status = conn->events->on_frame(conn->owner, conn, heard->head, heard->head_bytes, payload,
                                        heard->payload_bytes, err);
    }
    return status;
}

/* An event may end any connection, and so what is behind in this list. */
void
psi_shm_hear_all(struct psi_loop *loop)
{
    struct copies *copies = loop->copies;

    while (copies->hear_count > 0) {
        struct hearing *hearing = &copies->hears[copies->hear_first];
        struct psi_shm *shm = hearing->shm;

        if (shm != NULL) {
            struct psd_error err;
            psd_status status;

            err.status = PSD_OK;
            copy_finish(loop, &hearing->copy);
            hearing->shm = NULL; /* an end of its connection finds it done */
            psi_loop_hold_bells(loop);
            status = tell(shm, &hearing->heard, &err);
            psi_loop_ring_bells(loop);
            if (!shm->closed) {
                shm->heard(shm->watch.object, status, &err);
            }
        }
        copies->hear_first = (copies->hear_first + 1) % COPIES_MAX;
        copies->hear_count--;
    }
}

/* ---- The end of a connection --------------------------------------------------------------- */

void
psi_shm_end_copies(struct psi_shm *shm)
{
    struct copies *copies = shm->loop->copies;

    psi_shm_finish_sending(shm); /* what was posted counts */
    for (uint32_t i = 0; copies != NULL && i < copies->hear_count; i++) {
        struct hearing *hearing = &copies->hears[(copies->hear_first + i) % COPIES_MAX];

        if (hearing->shm == shm) {
            copy_finish(shm->loop, &hearing->copy);
            hearing->shm = NULL;
            if (hearing->heard.loan != NULL) {
                psi_shm_give_back(hearing->heard.loan);
            }
        }
    }
}
