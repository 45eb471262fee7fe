/*
 * parts_state.h - a push to a sparse table that does not fit one frame, and comes in several.
 *
 * Thread: owned by the lane's thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_PARTS_STATE_H
#define SERVER_PARTS_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

struct psd_error;
struct session;
struct slot;

/* Parts of a push to a sparse table that have come, until the last one does. */
struct row_parts {
    struct slot *slots; /* the last one first */
    bool any;
    uint32_t request; /* which they are of, if there are any, and ... */
    uint32_t table;   /* ... what that is about */
    uint32_t chunk;
    uint64_t step;
    bool lost;     /* not all of them are here */
    uint64_t last; /* the largest mixed id in them; only if ... */
    bool has_last; /* ... there is one */
};

/* Is the frame that is coming a part, or the last one of several? */
bool row_parts_go_on(const struct session *session);

/* A part is here, in session->receiving and session->rows. */
psd_status row_parts_add(struct session *session, struct psd_error *err);

/* The last part, or a push that is whole: session->receiving has all of it then, or is NULL. */
psd_status row_parts_end(struct session *session, struct psd_error *err);

/* Lets go of those that have come. */
void row_parts_drop(struct session *session);

#endif
