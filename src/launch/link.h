/*
 * link.h - the line between psd_run and its agent: small messages of fixed size.
 *
 * The line is also what ties the two lives together: when it closes, the agent ends everything it
 * started. What is long (arguments, environment) travels as a descriptor.
 */
#ifndef LAUNCH_LINK_H
#define LAUNCH_LINK_H

#include <stdint.h>

#include <psd/status.h>

enum link_request_kind { LINK_START = 1, LINK_SIGNAL = 2, LINK_END = 3 };

struct link_request {
    uint32_t kind;
    uint32_t slot;     /* START, SIGNAL */
    int32_t signal;    /* SIGNAL */
    uint32_t grace_ms; /* END */
    uint32_t argc;     /* START: strings in the block, arguments first */
    uint32_t envc;
};

/* The descriptors that come with LINK_START: a block of strings, the output, (optional) one more.
 */
enum { LINK_FD_BLOCK, LINK_FD_OUTPUT, LINK_FD_EXTRA, LINK_FDS };

enum link_report_kind { LINK_STARTED = 1, LINK_START_FAILED = 2, LINK_EXITED = 3 };

struct link_report {
    uint32_t kind;
    uint32_t slot;
    int32_t pid;
    int32_t code;   /* EXITED: exit code; START_FAILED: errno */
    int32_t signal; /* EXITED: the signal that ended it, or 0 */
};

/* Arguments and environment, packed into an anonymous file. Returns it, or -1. */
int link_pack(char *const *argv, char *const *environment, struct link_request *request);

/* The reverse: *strings_p holds argv, NULL, environment, NULL in one allocation. */
psd_status link_unpack(int block_fd, const struct link_request *request, char ***strings_p,
                       struct psd_error *err);

/* fds: LINK_FDS of them, -1 for none; or NULL. Returns 0 or -1 with errno. */
int link_send_request(int fd, const struct link_request *request, const int *fds);
int link_send_report(int fd, const struct link_report *report);

/* 1: a message; 0: nothing now (the line is non-blocking); -1: the line is closed. */
int link_next_request(int fd, struct link_request *request_p, int fds_p[LINK_FDS]);
int link_next_report(int fd, struct link_report *report_p);

#endif
