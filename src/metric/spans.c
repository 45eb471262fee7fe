/*
 * spans.c - what a process did from when to when.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metric/spans.h"

#define US_NS UINT64_C(1000)

enum {
    SPARSE_MAX = 62,
    LOOK_BACK = 32, /* tables whose rounds are open at a time; more get spans of their own */
};

static uint32_t
as_us(uint64_t us)
{
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

static void
thin_out(struct psi_spans *spans)
{
    uint32_t kept = 0;

    spans->sparse++;
    for (uint32_t i = 0; i < spans->count; i++) {
        if (psi_spans_want(spans, spans->span[i].step)) {
            spans->span[kept++] = spans->span[i];
        }
    }
    spans->lost += spans->count - kept;
    spans->count = kept;
}

void
psi_spans_add(struct psi_spans *spans, const struct psi_span *span, uint64_t begin_ns,
              uint64_t end_ns)
{
    struct psi_span *kept;

    while (spans->count == PSI_SPANS_MAX && spans->sparse < SPARSE_MAX) {
        thin_out(spans);
    }
    if (spans->count == PSI_SPANS_MAX || !psi_spans_want(spans, span->step)) {
        spans->lost++;
        return;
    }
    kept = &spans->span[spans->count++];
    *kept = *span;
    kept->begin_us = begin_ns < US_NS ? 1 : begin_ns / US_NS;
    kept->us = as_us(end_ns > begin_ns ? (end_ns - begin_ns) / US_NS : 0);
}

void
psi_spans_add_round(struct psi_spans *spans, const struct psi_span *span, uint64_t begin_ns,
                    uint64_t end_ns)
{
    const uint32_t first = spans->count > LOOK_BACK ? spans->count - LOOK_BACK : 0;

    for (uint32_t i = spans->count; i > first; i--) {
        struct psi_span *open = &spans->span[i - 1];

        if (open->kind == span->kind && open->what == span->what && open->step == span->step) {
            const uint64_t begin_us =
                begin_ns / US_NS < open->begin_us ? begin_ns / US_NS : open->begin_us;
            const uint64_t end_us = end_ns / US_NS > open->begin_us + open->us
                                        ? end_ns / US_NS
                                        : open->begin_us + open->us;

            open->begin_us = begin_us == 0 ? 1 : begin_us;
            open->us = as_us(end_us - open->begin_us);
            open->apply_us = as_us((uint64_t)open->apply_us + span->apply_us);
            open->who = span->who; /* of the chunk that closed last */
            return;
        }
    }
    psi_spans_add(spans, span, begin_ns, end_ns);
}

/* Twice as many would still leave room: processes that are close to a limit do not go to and fro. */
void
psi_spans_told(struct psi_spans *spans)
{
    if (spans->count < PSI_SPANS_MAX / 4 && spans->sparse > 0) {
        spans->sparse--;
    }
    spans->count = 0;
}
