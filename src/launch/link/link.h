/*
 * link.h - the line between psd_run and an agent: messages over a stream, both ways.
 *
 * The same on this machine (a socket pair) and over ssh (its standard input and output). Sending
 * never waits: what does not fit stays in a buffer, which link_pending() tells. The line also ties
 * the two lives together: when it closes, the agent ends everything it started.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_LINK_H
#define LAUNCH_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch/text/words.h"

enum {
    LINK_BYTES_MAX = 8 << 20,  /* of one message */
    LINK_NOISE_MAX = 64 << 10, /* before the greeting: what login scripts print */
    LINK_STREAMS = 2,          /* of a process: 0 stdout, 1 stderr */
};

/* Each side tells that it is there (LINK_PULSE), and gives the other up after its lease. */
enum {
    LINK_PULSE_MS = 1000,
    LINK_LEASE_MS = 5000,
    LINK_LEASE_HERE_MS = 10000, /* of the agent here, which has no network to be cut from */
};

/* Of LINK_OUTPUT's number: before these bytes, the unfinished line of the other stream ends. */
enum { LINK_OUTPUT_STREAM = 1, LINK_OUTPUT_BROKEN = 2 };

/* "Strings" are NUL-terminated, one after the other. */
enum link_kind {
    /* from psd_run */
    LINK_SECRET = 1, /* the bytes of the job's secret */
    LINK_SETUP,      /* strings, KEY=value: setup.h */
    LINK_REACH,      /* strings: HOST PORT to connect to, one each */
    LINK_SYNC,       /* strings: a directory and the digest it should have */
    LINK_FILES,      /* bytes: part of an archive for that directory; none: the end */
    LINK_START,      /* slot; number: arguments among the strings: children.h */
    LINK_SIGNAL,     /* slot; number: the signal */
    LINK_END,        /* number: grace in ms */
    /* from the agent */
    LINK_HELLO,        /* strings, KEY=value: host.h */
    LINK_SYNCED,       /* number: bytes that may be sent now, 0 all is there; strings: problems */
    LINK_SET_UP,       /* strings, KEY=value */
    LINK_REACHED,      /* strings: what could not be reached, and why */
    LINK_STARTED,      /* slot; number: pid; bytes: path of the program */
    LINK_START_FAILED, /* slot; number: errno */
    LINK_OUTPUT,       /* slot; bytes that the process printed; number: of the stream,
                          with LINK_OUTPUT_BROKEN */
    LINK_READY,        /* slot; bytes that it wrote to its ready descriptor */
    LINK_EXITED,       /* slot; number: as waitpid() tells it */
    LINK_PORT_TAKEN,   /* slot, before LINK_EXITED: somebody else has its port */
    LINK_LOG_FAILED,   /* slot; number: errno: the machine's own log of it ends here */
    LINK_HELD,    /* slot; number: enum children_drain; bytes: who holds its output (children.h) */
    LINK_READING, /* after LINK_END: output of processes that have ended is being read */
    LINK_NOTE,    /* slot; bytes: a line that a worker tells psd_run: notes.h */
    /* from both */
    LINK_PULSE, /* still here; number not 0: from psd_run, to be sent back at once */
    /* from psd_run */
    LINK_TELL,   /* slot of the master; a line for its stdin */
    LINK_MASTER, /* number: which life of the master it is; a string: where it listens */
    /* from the agent */
    LINK_MASTER_UNTOLD, /* members here cannot be told that; bytes: why */
};

/* Numbers of LINK_PULSE. */
enum { LINK_PULSE_ROLL = 1, LINK_PULSE_HERE = 2 };

struct link_message {
    uint32_t kind;
    uint32_t slot;
    int32_t number;
    uint32_t bytes;
    const char *data; /* valid until the next link_read() */
};

struct link_buffer {
    char *bytes; /* owned */
    size_t first;
    size_t count;
    size_t capacity;
};

/* Thread: owned by the one that reads it. */
struct link {
    int in;       /* -1: closed */
    int out;      /* may be the same descriptor */
    bool greeted; /* the other side's first words were found */
    bool failed;  /* nothing more can be sent */
    struct link_buffer received;
    struct link_buffer unsent;
};

/* Takes both descriptors, makes them non-blocking and greets. */
void link_init(struct link *link, int in, int out);
void link_fini(struct link *link);

/* Queues a message and sends what fits. */
void link_send(struct link *link, enum link_kind kind, uint32_t slot, int32_t number,
               const void *data, size_t bytes);
void link_send_words(struct link *link, enum link_kind kind, uint32_t slot, int32_t number,
                     const struct words *words);
void link_flush(struct link *link);
size_t link_pending(const struct link *link);

/* Reads what is there, up to a bound: 1 something, 0 nothing now, -1 the line is closed. */
int link_read(struct link *link);

/* The next whole message: 1; 0: none yet; -1: what came is no message. */
int link_next(struct link *link, struct link_message *message_p);

/* Overwrites what a message brought, where it was received. */
void link_forget(struct link *link, const struct link_message *message);

/* The strings of a message. PSD_ERR_INVALID: the last one does not end. */
psd_status link_words(const struct link_message *message, struct words *words_p,
                      struct psd_error *err);

/* Before the greeting: what came instead of it, for a message to people. */
size_t link_noise(const struct link *link, char *text_p, size_t size);

#endif
