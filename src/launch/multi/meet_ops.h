/*
 * meet_ops.h - a way for the psd_run of a job to meet: who they are, and how the others find rank 0.
 *
 * One file each: meet_directory.c, meet_name.c, meet_slurm.c. multi_start.c lists them and asks them
 * in turn; nobody else knows which one was taken. Once they have met, they are all alike: join.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_MEET_OPS_H
#define LAUNCH_MEET_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

#include "launch/meet/joiner.h"
#include "launch/prepare/options.h"

struct multi_start;

/* Every hook runs on the main thread of psd_run. */
struct meet_ops {
    const char *name; /* for messages: how the user asked for it, "--rendezvous" */
    bool returns;     /* somebody starts a psd_run again that was lost: the job waits for it */

    /* Whether the command line asks for this way, or the environment does where nothing is asked
     * (multi_start_nothing_asked). */
    bool (*detect)(const struct launch_options *options);

    /* Who is who: sets rank, size and servers, and what else multi_start.h says is the way's. Refuses
     * options that do not go with it, and numbers that cannot be; given_ranks.h does all of that.
     * PSD_ERR_INVALID: usage. */
    psd_status (*roles)(struct multi_start *multi, struct psd_error *err);

    /* (optional) Takes this one's place among the others, when it is known. */
    psd_status (*enter)(struct multi_start *multi, struct psd_error *err);

    /* (optional) The descriptor of the job's secret, as of launch_secret_offer(); -1 with err.
     * Absent: it is in multi->secret_file, or fresh. */
    int (*secret)(struct multi_start *multi, struct psd_error *err);

    /* (optional) Rank 0: whoever helps to meet is started, before anything is open that it would
     * keep open. Called before every attempt. */
    psd_status (*begin)(struct multi_start *multi, int secret_fd, struct psd_error *err);

    /* (optional) Rank 0: listens on this port, of IPv6 or of IPv4. */
    psd_status (*publish)(struct multi_start *multi, bool v6, uint16_t port, struct psd_error *err);

    /* (optional) Rank 0: all have come. A later life of it finds multi->requeues more than 0. */
    void (*begun)(struct multi_start *multi);

    /* Other ranks: where rank 0 is. The context is the multi_start. */
    joiner_find *find;

    /* (optional) A sign of life, once a second. An error ends this psd_run. Likewise. */
    joiner_beat *beat;

    /* (optional) Rank 0: the job is over for good. all_know: nobody will come back and ask. */
    void (*over)(struct multi_start *multi, int code, bool all_know);

    /* (optional) The port that a batch system reserved for the process of a rank; 0: none. */
    uint16_t (*port_of)(const struct multi_start *multi, uint32_t rank);

    /* (optional) Leaves; frees multi->way, which may be NULL. */
    void (*close)(struct multi_start *multi);
};

extern const struct meet_ops meet_directory; /* --rendezvous DIR */
extern const struct meet_ops meet_name;      /* --coordinator HOST:PORT */
extern const struct meet_ops meet_slurm;     /* one psd_run for each task of a step */

#endif
