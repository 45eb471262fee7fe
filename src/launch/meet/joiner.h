/*
 * joiner.h - a psd_run that joins the job of another one (join.h): the agent of its own process.
 *
 * It looks for the coordinator, connects, proves the secret and says who it is. Then an agent
 * (agent.h) does here what the coordinator tells it; this process hands the bytes on. When the
 * coordinator is lost or begins anew, everything here ends, and it looks again, as long as it may.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_JOINER_H
#define LAUNCH_JOINER_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

enum { JOINER_ADDRESS_BYTES = 320 };

/* Where the coordinator is, "tcp://HOST:PORT". Asked before every attempt: it may have moved.
 * PSD_PENDING: nobody is there yet, err says what was looked at. PSD_ERR_STATE: the job is over,
 * *code_p is its exit code. Anything else: there is no use in looking on. */
typedef psd_status joiner_find(void *context, char address_p[JOINER_ADDRESS_BYTES], int *code_p,
                               struct psd_error *err);

/* A sign of life, every second. An error ends this psd_run. */
typedef psd_status joiner_beat(void *context, struct psd_error *err);

struct joiner_config {
    uint32_t rank;
    uint32_t size;
    uint64_t incarnation;   /* of this psd_run: more than that of any before it with this rank */
    uint32_t wait_ms;       /* how long to look for a coordinator, each time */
    const char *hint;       /* (optional) what may be wrong while nobody is found */
    const char *advertised; /* (optional) address under which others reach this one */
    bool saves;             /* the job is saved before one that was asked to leave does */
    int secret_fd;
    char *const *environment;
    joiner_find *find;
    joiner_beat *beat; /* (optional) */
    void *context;     /* of both */
};

/* Takes part until the job is over. Returns the exit code of psd_run: that of the job, or 128 + the
 * signal that asked it to leave. Call it before any thread. */
int joiner_run(const struct joiner_config *config);

#endif
