/*
 * troupe.h - programs started for one contestant, whose workers call the runner.
 *
 * A troupe has a directory for logs and for the socket at which the runner listens. Its programs
 * start the workers in whatever way is theirs; each worker calls, and the troupe is complete.
 */
#ifndef BENCH_TROUPE_H
#define BENCH_TROUPE_H

#include <sys/types.h>

#include "crew.h"

/* Thread: owned by the runner. */
struct troupe {
    char name[32]; /* for messages */
    bool restless; /* its programs do not sleep when they have nothing to do: they are stopped */
    struct crew crew;
    pid_t pids[CREW_MAX + 1]; /* of what was started here */
    uint32_t pid_count;
    int listener;
    char directory[64]; /* removed when all went well */
    char control[96];   /* the socket's path, for the workers' command lines */
};

psd_status troupe_init(struct troupe *troupe, const char *name, struct psd_error *err);

/* Starts a program; what it prints goes into the log. words and environment as in process.h. */
psd_status troupe_start(struct troupe *troupe, const char *const *words,
                        const char *const *environment, struct psd_error *err);

/* Waits until this many workers have called. */
psd_status troupe_gather(struct troupe *troupe, uint32_t workers, struct psd_error *err);

/* Lets the workers leave and waits for the programs. PSD_ERR_JOB_FAILED: one did not end well; the
 * logs stay and the message says where. */
psd_status troupe_end(struct troupe *troupe, struct psd_error *err);

/* After a failure: stops the programs, keeps the logs and says where they are. */
void troupe_abandon(struct troupe *troupe);

/* A worker's side: calls the runner. */
psd_status troupe_call(const char *control, int *fd_p, struct psd_error *err);

#endif
