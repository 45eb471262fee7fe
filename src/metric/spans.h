/*
 * spans.h - what a process did from when to when, for a timeline of the job (psd_run trace).
 *
 * A worker keeps its pushes and what its program marks, a lane its rounds, until they are told. There
 * is room for so many; of more, all processes keep those of the same steps: the ones whose number is a
 * multiple of 2, or 4, and so on.
 *
 * Thread: guarded by its owner.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_METRIC_SPANS_H
#define PSI_METRIC_SPANS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PSI_SPANS_MAX = 128, /* kept at a time, and told in one METRICS */
    PSI_MARKS_MAX = 32,  /* names that a worker's program marks its time with */
};

enum psi_span_kind {
    PSI_SPAN_PUSH = 1, /* a worker's operation, from the call to its end */
    PSI_SPAN_ROUND =
        2, /* a lane's rounds of a table and step, from the first gradient to the value */
    PSI_SPAN_MARK = 3, /* what a worker's program says that it did: psd_mark() */
};

struct psi_span {
    uint8_t kind;
    uint32_t what; /* number of the table; a mark: of its name */
    uint32_t who;  /* a round: the worker that gave its gradient last; UINT32_MAX: nobody waited */
    uint32_t us;   /* how long */
    uint32_t apply_us; /* a round: of that, adding gradients and applying the rule */
    uint64_t step;
    uint64_t begin_us; /* on the clock of the process's machine; never 0 */
};

struct psi_spans {
    uint32_t sparse; /* steps that are a multiple of 2^sparse are kept */
    uint32_t count;
    uint64_t lost; /* ever */
    struct psi_span span[PSI_SPANS_MAX];
};

/* Is it worth looking at the clock? */
static inline bool
psi_spans_want(const struct psi_spans *spans, uint64_t step)
{
    return (step & ((UINT64_C(1) << spans->sparse) - 1)) == 0;
}

/* One that is wanted, with times in nanoseconds. */
void psi_spans_add(struct psi_spans *spans, const struct psi_span *span, uint64_t begin_ns,
                   uint64_t end_ns);

/* The same, but rounds of one table and step are one span: chunks close one after the other. */
void psi_spans_add_round(struct psi_spans *spans, const struct psi_span *span, uint64_t begin_ns,
                         uint64_t end_ns);

/* They were told. */
void psi_spans_told(struct psi_spans *spans);

#endif
