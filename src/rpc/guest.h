/*
 * guest.h - a connection that we accepted: a stranger until its HELLO, then somebody whose frames
 * the owner handles.
 *
 * The counterpart of peer.h: there we call, here we are called. A stranger may send one frame, a
 * HELLO, and it must agree with who the stranger has proved to be; anything else costs it its
 * connection, and nobody else anything. What a guest may do from then on is the owner's business.
 *
 * The owner keeps a struct psi_guest as the first member of what it knows about a connection, and
 * frees it in on_gone or later: nothing here touches a guest after on_gone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_RPC_GUEST_H
#define PSI_RPC_GUEST_H

#include "rpc/inbox.h"
#include "transport/transport.h"
#include "view/view.h"

struct psi_guest;

/* They run where the connection's events run. An event may end the guest that it is about, save
 * on_prefix and on_refused. */
struct psi_guest_events {
    size_t payload_max; /* of whoever has said HELLO */

    /* (optional) A frame begins: a sign of life. */
    void (*on_prefix)(struct psi_guest *guest);

    /* The HELLO. Welcomes the guest, refuses it, or lets it wait; an error cuts it without a word:
     * it may come again. */
    psd_status (*on_hello)(struct psi_guest *guest, const struct psi_hello *hello,
                           struct psd_error *err);

    /* (optional) Where the payload of inbox.frame goes. Absent: control bodies only. */
    psd_status (*on_head)(struct psi_guest *guest, struct psi_sink *sink_p, struct psd_error *err);

    /* A whole frame behind the HELLO, in inbox.frame and inbox.meta. */
    psd_status (*on_frame)(struct psi_guest *guest, void *payload, size_t bytes,
                           struct psd_error *err);

    /* (optional) It is being refused, for this reason. For the log. */
    void (*on_refused)(struct psi_guest *guest, const char *text);

    /* The connection is over: conn is NULL. reason is NULL if it was refused; peer says who it was.
     * Not called after psi_guest_close(). */
    void (*on_gone)(struct psi_guest *guest, const char *peer, const struct psd_error *reason);
};

/* All guests of one owner. Thread: owned by the loop thread (the client's: guarded by its lock). */
struct psi_guests {
    const struct psi_guest_events *events;
    struct psi_guest *first; /* the newest */
    uint32_t count;
    bool some_doomed;
};

/* Thread: as its psi_guests. */
struct psi_guest {
    struct psi_guests *guests;
    struct psi_guest *next;
    struct psi_guest *prev;
    struct psi_conn *conn; /* NULL: over */
    struct psi_inbox inbox;
    bool met;    /* has said HELLO */
    bool doomed; /* a frame for it could not be queued: it is cut, so that it asks again */
};

/* on_accept: adds a guest (all zero) and takes the connection's events. */
void psi_guest_begin(struct psi_guest *guest, struct psi_guests *guests, struct psi_conn *conn,
                     const struct psi_conn_events **events_p, void **owner_p);

/* Takes it out of its list, with its connection closed. The memory is the owner's. */
void psi_guest_end(struct psi_guest *guest);

/* Ends the connection at once, without an event. */
void psi_guest_close(struct psi_guest *guest);

/* Sends REFUSE with the reason, and ends the connection once it is out: on_refused, on_gone. */
void psi_guest_refuse(struct psi_guest *guest, psd_status status, const char *text);

/* Cuts it, but not now: nobody is cut while its own frame is being handled. */
void psi_guest_doom(struct psi_guest *guest);

/* Cuts the doomed: on_gone of each. Not inside an event. */
void psi_guests_cut_doomed(struct psi_guests *guests);

/* Data connections: is inbox.frame from the rank that it was met as, and does the view admit it
 * (psi_view_admits)? */
psd_status psi_guest_speaks_as(const struct psi_guest *guest, uint32_t rank,
                               const struct psi_view *view, uint32_t since, struct psd_error *err);

#endif
