/*
 * options.h - the command line of psd_bench.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#include "results.h"

enum { BENCH_SIZES_MAX = 32 };

/* What shall be measured. */
enum bench_what {
    BENCH_ALL,
    BENCH_SUITE,    /* what the project's targets name */
    BENCH_CEILINGS, /* the ceilings alone */
    BENCH_START,    /* from the command to the first barrier, by number of workers */
    BENCH_TRAIN,    /* the tensors of whole models, beside an emulated backward */
    BENCH_SURVIVAL, /* jobs that survive their servers beside the same that do not */
    BENCH_SPARSE,   /* rows of sparse tables in one lane */
    BENCH_CORES,    /* what several threads of a worker give, beside as many without us */
    BENCH_CHOSEN,   /* one kind of job, described by options */
};

struct bench_sizes {
    size_t count;
    uint64_t bytes[BENCH_SIZES_MAX];
};

/* Thread: immutable once parsed. */
struct bench_options {
    bool answered; /* -h or --version was given and answered: leave */
    enum bench_what what;
    bool quick;
    bool large; /* also what takes gigabytes and minutes */
    bool alone; /* without peers */
    bool shm;   /* transports to measure */
    bool tcp;
    bool sealed; /* TLS as between hosts, beside bare TLS */
    uint32_t workers;
    uint32_t servers;
    uint32_t cores; /* that it and everything it starts runs on; 0: those it may use */
    struct bench_sizes sizes;
    bool sizes_chosen;    /* not the default ones */
    uint32_t backward_ms; /* that a backward of `train` takes; 0: as models.c says */
    double seconds;       /* of one timed run */
    uint32_t repeat;      /* timed runs of each */
    const char *json;     /* file for the results; NULL: none */
    const char *launch;   /* command that brings the workers; NULL: psd_run does */
    const char *control;  /* where the runner listens: this process is a worker */
};

psd_status bench_options_parse(int argc, char *const *argv, struct bench_options *options_p,
                               struct psd_error *err);

/* "64,4k,1M" into bytes; k and M are 1,024 and 1,048,576. */
psd_status bench_sizes_parse(const char *text, struct bench_sizes *sizes_p, struct psd_error *err);

#endif
