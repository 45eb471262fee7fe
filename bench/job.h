/*
 * job.h - a Poseidon job whose workers are this program, started by psd_run.
 */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include <sys/types.h>

#include "crew.h"

/* Thread: owned by the runner. */
struct job {
    struct crew crew;
    pid_t pid;          /* psd_run */
    char directory[64]; /* logs, and the socket the workers call; removed when all went well */
};

psd_status job_start(uint32_t workers, uint32_t servers, struct job *job_p, struct psd_error *err);

/* Lets the workers leave and waits for the job. PSD_ERR_JOB_FAILED: it did not end well; the logs
 * stay and the message says where. */
psd_status job_end(struct job *job, struct psd_error *err);

/* After a failure: stops the job, keeps the logs and says where they are. */
void job_abandon(struct job *job);

#endif
