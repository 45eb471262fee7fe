/*
 * tidings.h - what ps_master tells whoever started it, one line each, over the pipe of --ready_fd.
 *
 * psd_run sees which process ended and which machine is silent; the master sees who stopped talking
 * first. Both write and read the lines here, so that there is one place that knows how they look.
 */
#ifndef PSI_BASE_TIDINGS_H
#define PSI_BASE_TIDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PSI_TIDING_TEXT = 512,  /* bytes of the reason, with the final NUL */
    PSI_TIDING_LINE = 1024, /* ... of a line: well below PIPE_BUF, so it is written whole */
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
    PSI_TIDING_PLACE,   /* who has a server's part now, and its copy: place */
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

/* Of the copy of a server's part. */
enum psi_copy_state {
    PSI_COPY_NONE,
    PSI_COPY_FORMING, /* it may lack something */
    PSI_COPY_WHOLE,
    PSI_COPY_NEEDLESS, /* workers can make anew all that the server has */
};

#define PSI_TIDING_NOBODY UINT32_MAX

/* Processes of servers, by the index that they were started with. */
struct psi_tiding_place {
    uint32_t by;   /* has the part; PSI_TIDING_NOBODY: it is awaited */
    uint32_t copy; /* has its copy; PSI_TIDING_NOBODY: none */
    enum psi_copy_state state;
};

/* END with role PSI_TIDING_MASTER: nobody was lost, the master itself has the reason. */
struct psi_tiding {
    enum psi_tiding_kind kind;
    enum psi_tiding_role role;
    uint32_t rank;
    uint64_t step;
    uint64_t life; /* the number that the process of a server drew; 0: not told */
    int code;
    enum psi_loss loss;
    struct psi_tiding_place place;
    char text[PSI_TIDING_TEXT];
};

/* The line, with its end; what is not printable in the text becomes a blank. Returns its bytes. */
size_t psi_tiding_format(const struct psi_tiding *tiding, char line_p[PSI_TIDING_LINE]);

/* A line without its end. Returns false if it is none of these. */
bool psi_tiding_parse(const char *line, struct psi_tiding *tiding_p);

/* The other way, to the master's stdin: the process of a server that was started with this index, and
 * drew this number, has ended. Its parent has seen it. */
struct psi_gone {
    uint32_t server;
    uint64_t life;
};

/* As above. */
size_t psi_gone_format(const struct psi_gone *gone, char line_p[PSI_TIDING_LINE]);
bool psi_gone_parse(const char *line, struct psi_gone *gone_p);

#endif
