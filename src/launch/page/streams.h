/*
 * streams.h - open pages: each has one answer that never ends, to which snapshots are added
 * (server-sent events).
 *
 * A message is shared by all streams that have yet to send it, the whole state at the beginning, too. A
 * page that reads too slowly is dropped, comes again by itself, and then gets everything at once: nothing
 * grows while nobody reads. One that is still at the beginning gets that to its end first: else a slow
 * line would never show anything.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_STREAMS_H
#define LAUNCH_PAGE_STREAMS_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    STREAMS_MAX = 16,
    STREAMS_QUEUE = 32, /* messages: at two a second, so long may a page read nothing */
};

struct stream;
struct message;

/* Thread: owned by the main thread of psd_run. */
struct streams {
    struct stream *list[STREAMS_MAX]; /* owned by their connections; NULL: free */
    unsigned count;
    struct message *whole; /* the state as of the last news; NULL: not asked for since */
};

/* Whether there is room for one more page. */
bool streams_have_room(const struct streams *streams);

/* Keeps a JSON document for pages that come before the next news. */
void streams_keep_whole(struct streams *streams, const char *json);

/* An answer for one more page, that begins with what was kept: event "snapshot". NULL: nothing was, or
 * there is no room or no memory. */
struct MHD_Response *streams_open(struct streams *streams, struct MHD_Connection *connection);

/* Sends a JSON document to all as an event of that name. */
void streams_send(struct streams *streams, const char *event, const char *json);

/* What is queued is sent, then the answers end. */
void streams_end(struct streams *streams);

/* At once, whatever is queued. The connections may be closed after that. */
void streams_drop(struct streams *streams);

#endif
