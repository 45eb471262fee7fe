/*
 * pair_queue.c - parcels to the copy: numbered, kept until the copy has them, sent again after a cut.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "base/fail.h"
#include "rpc/post.h"
#include "server/state.h"

enum {
    SEND_QUEUE_BYTES = 4 << 20, /* handed to the connection, which has a limit of its own */
};

struct parcel *
parcel_create(uint8_t type, size_t bytes)
{
    const size_t head = (sizeof(struct parcel) + 63) / 64 * 64;
    struct parcel *parcel = aligned_alloc(64, head + (bytes + 63) / 64 * 64);

    if (parcel != NULL) {
        *parcel = (struct parcel){
            .frame = {.type = type}, .body = (uint8_t *)parcel + head, .bytes = bytes};
    }
    return parcel;
}

static void
destroy(struct parcel *parcel)
{
    free(parcel->kept);
    free(parcel);
}

void
parcel_free(struct parcel *parcel)
{
    if (parcel != NULL && parcel->borrowed) {
        parcel->over = true;
    } else if (parcel != NULL) {
        destroy(parcel);
    }
}

static void
sent(void *owner, uint64_t cookie)
{
    struct parcel *parcel = owner;

    (void)cookie;
    parcel->borrowed = false;
    if (parcel->over) {
        destroy(parcel);
    }
}

/* What is lent takes no memory of its own. */
static uint64_t *
bytes_with(struct pair *pair, const struct parcel *parcel)
{
    return parcel->is_lent ? &pair->lent_bytes : &pair->bytes;
}

uint64_t
pair_enqueue(struct lane *lane, struct parcel *parcel)
{
    struct pair *pair = lane->pair;

    if (pair->first == NULL) {
        pair->burst_bytes = 0;
    }
    if (pair->first == NULL && pair->is_met) {
        pair->heard_ns = psi_now_ns(lane->env); /* from now on it is waited for */
    }
    parcel->frame.seq = ++pair->last;
    parcel->frame.view = lane->view.id;
    parcel->frame.incarnation = (uint16_t)lane->kept;
    *pair->end = parcel;
    pair->end = &parcel->next;
    if (pair->unsent == NULL) {
        pair->unsent = parcel;
    }
    *bytes_with(pair, parcel) += parcel->bytes;
    if (pair->bytes + pair->lent_bytes > pair->burst_bytes) {
        pair->burst_bytes = pair->bytes + pair->lent_bytes;
    }
    psi_fail_point(server_pair_parcel_queued);
    return pair->last;
}

static psd_status
post(const struct lane *lane, struct parcel *parcel)
{
    struct psi_conn *conn = lane->pair->peer.conn;
    const struct psi_payload payload = {
        .base = parcel->body,
        .bytes = parcel->bytes,
        .checksum = lane->config.checksum,
        .stable = parcel->in_slot || parcel->is_lent, /* until the copy has said that it has it */
        .release = sent,
        .owner = parcel,
    };
    psd_status status;

    if (parcel->bytes == 0) {
        return psi_post(conn, &parcel->frame);
    }
    parcel->borrowed = true;
    status = psi_post_payload(conn, &parcel->frame, NULL, &payload);
    if (status != PSD_OK) {
        parcel->borrowed = false;
    }
    return status;
}

void
pair_pump(struct lane *lane)
{
    struct pair *pair = lane->pair;

    pair->gathered = 0;
    while (pair->unsent != NULL && pair->is_met && !pair->is_broken &&
           pair->peer.state == PSI_PEER_UP &&
           pair->peer.conn->ops->queued_bytes(pair->peer.conn) < SEND_QUEUE_BYTES &&
           post(lane, pair->unsent) == PSD_OK) {
        pair->unsent = pair->unsent->next;
        psi_fail_point(server_pair_parcel_sent);
    }
}

void
pair_send_again(struct lane *lane)
{
    lane->pair->unsent = lane->pair->first;
}

struct parcel *
pair_take_acked(struct pair *pair)
{
    struct parcel *parcel = pair->first;

    if (parcel == NULL || parcel->frame.seq > pair->acked) {
        return NULL;
    }
    pair->first = parcel->next;
    if (pair->first == NULL) {
        pair->end = &pair->first;
    }
    if (pair->unsent == parcel) {
        pair->unsent = parcel->next;
    }
    *bytes_with(pair, parcel) -= parcel->bytes;
    if (parcel->in_slot) {
        parcel_slot_give(pair, parcel);
    }
    return parcel;
}

void
pair_empty(struct pair *pair)
{
    while (pair->first != NULL) {
        struct parcel *parcel = pair->first;

        pair->first = parcel->next;
        parcel_free(parcel);
    }
    pair->end = &pair->first;
    pair->unsent = NULL;
    pair->bytes = 0;
    pair->lent_bytes = 0;
}
