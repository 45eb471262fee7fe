/*
 * guest.c - a connection that we accepted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rpc/guest.h"

#include <stdio.h>

#include "base/fail.h"
#include "rpc/identity.h"
#include "rpc/post.h"

/* The last thing that is done with it here. */
static void
gone(struct psi_guest *guest, const char *peer, const struct psd_error *reason)
{
    guest->conn = NULL;
    guest->guests->events->on_gone(guest, peer, reason);
}

void
psi_guest_refuse(struct psi_guest *guest, psd_status status, const char *text)
{
    struct psi_conn *conn = guest->conn;
    char peer[PSI_ADDRESS_BYTES];

    if (guest->guests->events->on_refused != NULL) {
        guest->guests->events->on_refused(guest, text);
    }
    snprintf(peer, sizeof(peer), "%s", conn->peer);
    psi_refuse(conn, status, text);
    gone(guest, peer, NULL);
}

void
psi_guest_close(struct psi_guest *guest)
{
    if (guest->conn != NULL) {
        guest->conn->ops->close(guest->conn);
        guest->conn = NULL;
    }
}

void
psi_guest_doom(struct psi_guest *guest)
{
    guest->doomed = true;
    guest->guests->some_doomed = true;
}

/* One of them; the end of one may doom others, or free them. */
static struct psi_guest *
find_doomed(const struct psi_guests *guests)
{
    struct psi_guest *guest = guests->first;

    while (guest != NULL && (!guest->doomed || guest->conn == NULL)) {
        guest = guest->next;
    }
    return guest;
}

/* A function of its own: what it has on the stack is not cleared on every turn. */
static void
cut_doomed(struct psi_guests *guests)
{
    struct psi_guest *guest;
    struct psd_error reason;

    psi_fail(&reason, PSD_ERR_BUSY, "a frame for it could not be queued");
    while ((guest = find_doomed(guests)) != NULL) {
        char peer[PSI_ADDRESS_BYTES];

        snprintf(peer, sizeof(peer), "%s", guest->conn->peer);
        psi_guest_close(guest);
        gone(guest, peer, &reason);
    }
}

void
psi_guests_cut_doomed(struct psi_guests *guests)
{
    if (guests->some_doomed) {
        guests->some_doomed = false;
        cut_doomed(guests);
    }
}

psd_status
psi_guest_speaks_as(const struct psi_guest *guest, uint32_t rank, const struct psi_view *view,
                    uint32_t since, struct psd_error *err)
{
    const struct psi_frame *frame = &guest->inbox.frame;
    const struct psi_stamp stamp = {
        .rank = frame->rank, .incarnation = frame->incarnation, .view = frame->view};

    if (frame->rank == rank && psi_view_admits(view, &stamp, since)) {
        return PSD_OK;
    }
    if (frame->rank == rank && frame->view < since && psi_view_admits(view, &stamp, 0)) {
        /* The place was here before, went, and came back: it knows the first of these views alone. */
        return psi_fail(err, PSD_ERR_STATE, "%s of view %u; the place is here since view %u",
                        psi_frame_type_name(frame->type), frame->view, since);
    }
    return psi_fail(err, PSD_ERR_PROTOCOL,
                    "%s as worker %u incarnation %u, met as worker %u in view %u; its view is %u",
                    psi_frame_type_name(frame->type), frame->rank, frame->incarnation, rank,
                    view->id, frame->view);
}

/* ---- events of the connection -------------------------------------------------------------- */

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    struct psi_guest *guest = owner;
    const struct psi_guest_events *events = guest->guests->events;
    const size_t limit = guest->met ? events->payload_max : PSI_FRAME_HELLO_MAX;
    const psd_status status = psi_inbox_prefix(&guest->inbox, prefix, limit, size_p, err);

    (void)conn;
    if (events->on_prefix != NULL) {
        events->on_prefix(guest);
    }
    if (guest->met) {
        return status;
    }
    if (status == PSD_ERR_VERSION || status == PSD_ERR_REFUSED) {
        *size_p = (struct psi_frame_size){0};
        psi_guest_refuse(guest, status, err->text);
        return PSD_OK; /* it ends, once the reason is out */
    }
    if (status == PSD_OK && guest->inbox.frame.type != PSI_FRAME_HELLO) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s before HELLO",
                        psi_frame_type_name(guest->inbox.frame.type));
    }
    return status;
}

static psd_status
on_head(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
        struct psi_sink *sink_p, struct psd_error *err)
{
    struct psi_guest *guest = owner;
    const struct psi_guest_events *events = guest->guests->events;
    const psd_status status = psi_inbox_meta(&guest->inbox, head, head_bytes, err);

    (void)conn;
    if (status != PSD_OK) {
        return status;
    }
    return guest->met && events->on_head != NULL ? events->on_head(guest, sink_p, err)
                                                 : psi_inbox_body(&guest->inbox, sink_p, err);
}

static psd_status
meet(struct psi_guest *guest, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_hello hello;
    char text[PSI_TEXT_MAX];
    const psd_status status = psi_hello_decode(payload, bytes, &hello, err);

    if (status != PSD_OK) {
        psi_guest_refuse(guest, status, err->text);
        return PSD_OK;
    }
    if (!psi_identity_allows(guest->conn->identity, &hello)) {
        snprintf(text, sizeof(text), "HELLO of role %u rank %u from %s", hello.role, hello.rank,
                 guest->conn->identity);
        psi_guest_refuse(guest, PSD_ERR_REFUSED, text);
        return PSD_OK;
    }
    guest->met = true;
    return guest->guests->events->on_hello(guest, &hello, err);
}

static psd_status
on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes, void *payload,
         size_t payload_bytes, struct psd_error *err)
{
    struct psi_guest *guest = owner;
    psd_status status = psi_inbox_meta(&guest->inbox, head, head_bytes, err);

    (void)conn;
    if (status == PSD_OK) {
        status = psi_inbox_verify(&guest->inbox, payload, payload_bytes, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    return guest->met ? guest->guests->events->on_frame(guest, payload, payload_bytes, err)
                      : meet(guest, payload, payload_bytes, err);
}

static void
on_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    gone(owner, conn->peer, reason);
}

static const struct psi_conn_events conn_events = {
    .on_prefix = on_prefix,
    .on_head = on_head,
    .on_frame = on_frame,
    .on_close = on_close,
};

/* ---- begin and end ------------------------------------------------------------------------- */

void
psi_guest_begin(struct psi_guest *guest, struct psi_guests *guests, struct psi_conn *conn,
                const struct psi_conn_events **events_p, void **owner_p)
{
    guest->guests = guests;
    guest->conn = conn;
    guest->next = guests->first;
    if (guests->first != NULL) {
        guests->first->prev = guest;
    }
    guests->first = guest;
    guests->count++;
    *events_p = &conn_events;
    *owner_p = guest;
}

void
psi_guest_end(struct psi_guest *guest)
{
    struct psi_guests *guests = guest->guests;

    psi_guest_close(guest);
    if (guest->prev != NULL) {
        guest->prev->next = guest->next;
    } else {
        guests->first = guest->next;
    }
    if (guest->next != NULL) {
        guest->next->prev = guest->prev;
    }
    guests->count--;
    psi_inbox_fini(&guest->inbox);
}
