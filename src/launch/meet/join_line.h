/*
 * join_line.h - the line between two psd_run that became one job: an authenticated connection that
 * carries the bytes of a link.h, and a few words of its own beside them.
 *
 * One end of a socket pair is ours, the other belongs to whoever speaks link.h: psd_run's view of a
 * machine (host.h) on one side, an agent on the other. They need not know that there is a network
 * between them. What one side does not read keeps the other from sending more than a window.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_JOIN_LINE_H
#define LAUNCH_JOIN_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch/link/link.h"
#include "launch/text/words.h"
#include "transport/transport.h"

enum {
    JOIN_WINDOW = 1 << 20, /* bytes on their way to one side */
    JOIN_CHUNK = PSI_META_BYTES_MAX,
    JOIN_GIVE_UP_MS = 2 * LINK_LEASE_MS, /* the lease judges silence, not the kernel */
};

enum join_kind {
    JOIN_HELLO = 1, /* strings, KEY=value: join.h */
    JOIN_WELCOME,   /* strings, KEY=value */
    JOIN_REFUSED,   /* number: exit code; a text */
    JOIN_BYTES,     /* of the link */
    JOIN_TAKEN,     /* number: so many of them were read */
    JOIN_CLOSED,    /* the agent's end of the link is closed */
    JOIN_LEAVING,   /* number: the signal that asks the sender to go */
    JOIN_OVER,      /* number: exit code of the job */
    JOIN_AGAIN,     /* the job is begun anew, a text says why: come back */
    JOIN_ASKED, /* number: the signal that asks the sender to go: it does when the job is saved */
    JOIN_KINDS,
};

struct join_frame {
    uint32_t kind;
    int32_t number;
    const char *data; /* valid until the event returns */
    size_t bytes;
};

/* Thread: owned by the loop's. */
struct join_line {
    struct psi_conn *conn; /* NULL: none */
    int fd;                /* our end of the pair, -1: none */
    size_t on_the_way;     /* bytes sent and not taken yet */
    size_t taken;          /* bytes handed on and not told */
    char *unread;          /* owned: bytes that fd did not take */
    size_t unread_first;
    size_t unread_bytes;
};

/* For psi_conn_events.on_prefix and on_frame: what a frame says. */
psd_status join_frame_size(const uint8_t *prefix, struct psi_frame_size *size_p,
                           struct psd_error *err);
psd_status join_frame_read(const uint8_t *head, size_t head_bytes, struct join_frame *frame_p,
                           struct psd_error *err);

/* Sends a word. What cannot be sent any more is dropped: on_close tells. */
void join_send(struct psi_conn *conn, enum join_kind kind, int32_t number, const void *data,
               size_t bytes);
void join_send_words(struct psi_conn *conn, enum join_kind kind, int32_t number,
                     const struct words *words);
psd_status join_frame_words(const struct join_frame *frame, struct words *words_p,
                            struct psd_error *err);

/* Makes the pair; returns the other end, -1 with err. */
int join_line_open(struct join_line *line, struct psi_conn *conn, struct psd_error *err);

/* The same with one end of a pair that is there, which it takes. */
psd_status join_line_adopt(struct join_line *line, struct psi_conn *conn, int fd,
                           struct psd_error *err);

/* Closes our end of the pair. The connection is the caller's. */
void join_line_close(struct join_line *line);

/* Takes JOIN_BYTES and JOIN_TAKEN. PSD_ERR_PROTOCOL: more than the window. */
psd_status join_line_take(struct join_line *line, const struct join_frame *frame,
                          struct psd_error *err);

/* Moves what can be moved. false: nothing will come any more, from the other end of the pair or, if
 * there is no connection left, from there. */
bool join_line_move(struct join_line *line);

/* What to wait for on fd, as poll() names it; 0: nothing. */
short join_line_wants(const struct join_line *line);

#endif
