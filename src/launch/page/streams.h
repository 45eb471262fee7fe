/*
 * streams.h - open pages: each has one answer that never ends, to which snapshots are added
 * (server-sent events).
 *
 * A message is shared by all streams that have yet to send it. A page that reads too slowly is dropped,
 * comes again by itself, and then gets everything at once: nothing grows while nobody reads.
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

/* Thread: owned by the main thread of psd_run. */
struct streams {
    struct stream *list[STREAMS_MAX]; /* owned by their connections; NULL: free */
    unsigned count;
};

/* An answer for one more page, that begins with `first`, a JSON document: event "snapshot". NULL: there
 * are too many, or no memory. */
struct MHD_Response *streams_open(struct streams *streams, struct MHD_Connection *connection,
                                  const char *first);

/* Sends a JSON document to all as an event of that name. */
void streams_send(struct streams *streams, const char *event, const char *json);

/* What is queued is sent, then the answers end. */
void streams_end(struct streams *streams);

/* At once, whatever is queued. The connections may be closed after that. */
void streams_drop(struct streams *streams);

#endif
