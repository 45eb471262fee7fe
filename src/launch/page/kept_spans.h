/*
 * kept_spans.h - what processes told of when they did what: the last of it, for a timeline.
 *
 * Thread: guarded by its owner.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_KEPT_SPANS_H
#define LAUNCH_PAGE_KEPT_SPANS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/message.h"

enum { KEPT_SPANS_MAX = 32768 };

struct kept_span {
    struct psi_span span;
    uint32_t slot; /* whose: as in feed_process() */
    uint32_t lane; /* of a server */
    char mark[PSI_SCALAR_NAME_MAX];
};

struct kept_spans {
    uint64_t number;        /* ever */
    struct kept_span *kept; /* owned; [number % KEPT_SPANS_MAX]; NULL: no memory, so none is kept */
};

void kept_spans_init(struct kept_spans *spans);
void kept_spans_fini(struct kept_spans *spans);

/* What a process has told. */
void kept_spans_take(struct kept_spans *spans, uint32_t slot, uint32_t lane,
                     const struct psi_telling *telling);

/* The one before `*at_p`, which is `number` at first: from the newest on. NULL: there is none. */
const struct kept_span *kept_spans_before(const struct kept_spans *spans, uint64_t *at_p);

#endif
