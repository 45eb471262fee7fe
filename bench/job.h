/*
 * job.h - a Poseidon job whose workers are this program.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include "group.h"
#include "subjects.h"

/* Thread: immutable. */
struct job_args {
    uint32_t workers;
    uint32_t servers;
    bool tcp; /* also where shared memory would do */
    enum subject_job job;
    bool sealed;        /* TLS, as between hosts */
    const char *launch; /* (optional) shell command that brings the workers of a job; the rest of
                           the arguments is its business then */
};

/* End it with group_end() or, after a failure, group_abandon(). */
psd_status job_start(const struct job_args *args, struct group *group_p, struct psd_error *err);

#endif
