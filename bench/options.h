/*
 * options.h - the command line of psd_bench.
 */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

enum { BENCH_SIZES_MAX = 32, BENCH_SHAPES_MAX = 8, BENCH_REPEAT_MAX = 1001 };

/* How many processes a job has. */
struct bench_shape {
    uint32_t workers;
    uint32_t servers;
};

/* Thread: immutable once parsed. */
struct bench_options {
    bool answered; /* -h or --version was given and answered: leave */
    struct bench_shape shapes[BENCH_SHAPES_MAX];
    size_t shape_count;
    uint64_t sizes[BENCH_SIZES_MAX]; /* bytes */
    size_t size_count;
    bool sealed;         /* TLS as between hosts, beside bare TLS */
    double seconds;      /* of one timed run */
    uint32_t repeat;     /* timed runs of each */
    const char *json;    /* file for the results; NULL: none */
    const char *control; /* where the runner listens: this process is a worker */
};

psd_status bench_options_parse(int argc, char *const *argv, struct bench_options *options_p,
                               struct psd_error *err);

/* "64,4k,1M" into bytes; k and M are 1,024 and 1,048,576. */
psd_status bench_sizes_parse(const char *text, struct bench_options *options,
                             struct psd_error *err);

#endif
