/*
 * tidings.h - what ps_master tells whoever started it, one line each, over the pipe of --ready_fd.
 *
 * psd_run sees which process ended and which machine is silent; the master sees who stopped talking
 * first. Both write and read the lines here, so that there is one place that knows how they look.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_TIDINGS_H
#define PSI_BASE_TIDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PSI_TIDING_TEXT = 512,  /* bytes of the reason, with the final NUL */
    PSI_TIDING_LINE = 1024, /* ... of a line: well below PIPE_BUF, so it is written whole */
    PSI_TIDING_LANES = 64,  /* of a server */
};

enum psi_tiding_kind {
    PSI_TIDING_JOINED,  /* a worker, or a server with all its lanes; of a server: life */
    PSI_TIDING_DONE,    /* a worker said goodbye; step: the last one that it reported */
    PSI_TIDING_CUT,     /* its connection ended; it may come back */
    PSI_TIDING_BACK,    /* ... and it has */
    PSI_TIDING_QUIET,   /* nothing came of it for half the time after which it counts as dead */
    PSI_TIDING_HEARD,   /* ... and now something has */
    PSI_TIDING_LOST,    /* it counts as dead: loss, text */
    PSI_TIDING_AWAITED, /* ... and the job waits for another life of it */
    PSI_TIDING_HOSTED,  /* ... in vain: another server takes its part */
    PSI_TIDING_COPIED,  /* ... not at all: its copy has its part */
    PSI_TIDING_PLACE,   /* who has a server's part now, and its copies: place */
    PSI_TIDING_CROSSED, /* no copy takes the place of that server's lane by the number in life */
    PSI_TIDING_COUNTS,  /* a worker that joined counts from that step on */
    PSI_TIDING_LEFT,    /* ... one that is gone no longer does */
    PSI_TIDING_MOVED, /* a lane of that server is in the process of server `to` now: lane, bytes */
    PSI_TIDING_DRAINED, /* a server that is to leave has nothing of the job any more: life */
    PSI_TIDING_HELD,    /* ... cannot give it away: text */
    PSI_TIDING_SAVED,   /* a checkpoint that was asked for is there: step; 0: there is none */
    PSI_TIDING_END, /* the job ends with code: because of whom, if it is anybody's fault; text */
};

enum psi_tiding_role { PSI_TIDING_MASTER, PSI_TIDING_SERVER, PSI_TIDING_WORKER };

enum psi_loss {
    PSI_LOSS_NONE,
    PSI_LOSS_SILENT,    /* connected, but nothing came for too long */
    PSI_LOSS_CLOSED,    /* its connection ended and was not renewed */
    PSI_LOSS_GAVE_UP,   /* it said itself that it cannot go on */
    PSI_LOSS_UNREACHED, /* it and others do not reach each other, although both reach the master */
};

/* The state of the copy of a server's part. If its lanes differ, it is the worst one's. */
enum psi_copy_state {
    PSI_COPY_NONE,
    PSI_COPY_FORMING, /* it may lack something */
    PSI_COPY_WHOLE,
    PSI_COPY_NEEDLESS, /* workers can make anew all that the server has */
};

#define PSI_TIDING_NOBODY UINT32_MAX

/* Where the lanes of a server are: processes of servers, by the index that they were started with. */
struct psi_tiding_place {
    uint32_t lanes;
    uint32_t by[PSI_TIDING_LANES];   /* has the lane; PSI_TIDING_NOBODY: it is awaited */
    uint32_t copy[PSI_TIDING_LANES]; /* has its copy; PSI_TIDING_NOBODY: none */
    enum psi_copy_state state;
};

/* How many lanes that process has, or copies; PSI_TIDING_NOBODY: how many nobody has. */
uint32_t psi_tiding_place_served(const struct psi_tiding_place *place, uint32_t index);
uint32_t psi_tiding_place_copied(const struct psi_tiding_place *place, uint32_t index);
bool psi_tiding_place_same(const struct psi_tiding_place *one,
                           const struct psi_tiding_place *other);

/* END with role PSI_TIDING_MASTER: nobody was lost, the master itself has the reason. */
struct psi_tiding {
    enum psi_tiding_kind kind;
    enum psi_tiding_role role;
    uint32_t rank;
    uint32_t lane;  /* CROSSED, MOVED */
    uint32_t to;    /* MOVED: the index of a process */
    uint64_t bytes; /* MOVED: of values in it */
    uint64_t step;
    uint64_t life; /* JOINED, END: the number that the process of a server drew; CROSSED: of a copy;
                      0: not told */
    int code;
    enum psi_loss loss;
    struct psi_tiding_place place;
    char text[PSI_TIDING_TEXT];
};

/* The line, with its end; what is not printable in the text becomes a blank. Returns its bytes. */
size_t psi_tiding_format(const struct psi_tiding *tiding, char line_p[PSI_TIDING_LINE]);

/* A line without its end. Returns false if it is none of these. */
bool psi_tiding_parse(const char *line, struct psi_tiding *tiding_p);

/* The other way, to the master's stdin. All but GONE, LEAVE and SAVE are said only to a master that has just
 * begun, and whose last life is over: what that one had told, and might be known to nobody else. */
enum psi_word_kind {
    PSI_WORD_GONE, /* the process of the server that was started with this index, and drew this
                         number, has ended: its parent has seen it */
    PSI_WORD_DONE, /* this worker has said goodbye */
    PSI_WORD_DEAD, /* this worker has ended without, or its machine is gone: it will not come back */
    PSI_WORD_CROSSED, /* no copy of this server's lane takes its place by this number, or one before it */
    PSI_WORD_LEAVE, /* that process of a server is to leave: its places move to the others first */
    PSI_WORD_SAVE,  /* a checkpoint now, if any are written: the job is about to be stopped */
    PSI_WORD_ALL,   /* that was all */
};

struct psi_word {
    enum psi_word_kind kind;
    uint32_t rank;   /* PSI_WORD_GONE, _LEAVE, _CROSSED: index of the server; else its rank */
    uint32_t lane;   /* PSI_WORD_CROSSED */
    uint64_t number; /* PSI_WORD_GONE, _LEAVE, _CROSSED */
};

/* As above. */
size_t psi_word_format(const struct psi_word *word, char line_p[PSI_TIDING_LINE]);
bool psi_word_parse(const char *line, struct psi_word *word_p);

#endif
