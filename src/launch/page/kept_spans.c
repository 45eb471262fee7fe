/*
 * kept_spans.c - what processes told of when they did what.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/kept_spans.h"

#include <stdlib.h>
#include <string.h>

void
kept_spans_init(struct kept_spans *spans)
{
    *spans = (struct kept_spans){.kept = calloc(KEPT_SPANS_MAX, sizeof(*spans->kept))};
}

void
kept_spans_fini(struct kept_spans *spans)
{
    free(spans->kept);
    *spans = (struct kept_spans){0};
}

void
kept_spans_take(struct kept_spans *spans, uint32_t slot, uint32_t lane,
                const struct psi_telling *telling)
{
    for (uint32_t i = 0; spans->kept != NULL && i < telling->spans; i++) {
        struct kept_span *kept = &spans->kept[spans->number++ % KEPT_SPANS_MAX];

        *kept = (struct kept_span){.span = telling->span[i], .slot = slot, .lane = lane};
        if (kept->span.kind == PSI_SPAN_MARK) {
            memcpy(kept->mark, telling->mark[kept->span.what], sizeof(kept->mark));
        }
    }
}

const struct kept_span *
kept_spans_before(const struct kept_spans *spans, uint64_t *at_p)
{
    if (*at_p == 0 || spans->number - *at_p >= KEPT_SPANS_MAX) {
        return NULL;
    }
    (*at_p)--;
    return &spans->kept[*at_p % KEPT_SPANS_MAX];
}
