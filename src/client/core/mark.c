/*
 * mark.c - what a worker did from when to when, for a timeline of the job: its pushes, and what its
 * program marks. Kept while somebody watches.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/core.h"
#include "client/core/state.h"

/* One that has ended, of a step that is told: the others are not worth a call. */
void
psi_mark_pushed(const struct psd_op *op)
{
    struct psi_client *client = op->client;
    struct psi_spans *spans = client->marked != NULL ? &client->marked->spans : NULL;

    if (spans == NULL || !psi_spans_want(spans, op->transfer.step) || !psi_op_is_push(op) ||
        op->transfer.step > PSI_TOLD_STEP_MAX) {
        return;
    }
    psi_spans_add(spans,
                  &(struct psi_span){.kind = PSI_SPAN_PUSH,
                                     .what = op->table->id,
                                     .who = UINT32_MAX,
                                     .step = op->transfer.step},
                  op->started_ns, psi_now_ns(client->env));
}

/* Its number; PSI_MARKS_MAX: there are too many. */
static uint32_t
name_number(struct marked *marked, const char *name)
{
    uint32_t number = 0;

    while (number < marked->names && strcmp(marked->name[number], name) != 0) {
        number++;
    }
    if (number == marked->names && number < PSI_MARKS_MAX) {
        memcpy(marked->name[marked->names++], name, PSI_SCALAR_NAME_MAX);
    }
    return number;
}

psd_status
psi_client_mark(struct psi_client *client, uint64_t step, const char *name, uint64_t begin_ns,
                uint64_t end_ns, struct psd_error *err)
{
    struct marked *marked = client->marked;
    char known[PSI_SCALAR_NAME_MAX];
    uint32_t number;

    if (step > PSI_TOLD_STEP_MAX || name == NULL || name[0] == '\0' || end_ns < begin_ns ||
        begin_ns / 1000 > PSI_TOLD_END_MAX) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "mark %.31s: step %" PRIu64 " from %" PRIu64 " to %" PRIu64
                        " ns, expected a name, a step of 2^62 at most and an end behind the begin",
                        name != NULL ? name : "", step, begin_ns, end_ns);
    }
    if (marked == NULL || !psi_spans_want(&marked->spans, step)) {
        return PSD_OK;
    }
    psi_name_cut(known, name);
    number = name_number(marked, known);
    if (number == PSI_MARKS_MAX) {
        marked->spans.lost++;
        return PSD_OK;
    }
    psi_spans_add(
        &marked->spans,
        &(struct psi_span){.kind = PSI_SPAN_MARK, .what = number, .who = UINT32_MAX, .step = step},
        begin_ns, end_ns);
    return PSD_OK;
}

void
psi_mark_tell(struct psi_client *client, struct psi_telling *telling)
{
    struct marked *marked = client->marked;

    if (marked == NULL) {
        client->marked = calloc(1, sizeof(*client->marked)); /* without it there is no timeline */
        return;
    }
    telling->marks = marked->names;
    memcpy(telling->mark, marked->name, marked->names * sizeof(marked->name[0]));
    telling->spans = marked->spans.count;
    memcpy(telling->span, marked->spans.span, marked->spans.count * sizeof(telling->span[0]));
    psi_metric_set(client->metrics, PSI_METRIC_SPANS_UNTOLD, marked->spans.lost);
}

void
psi_mark_told(struct psi_client *client)
{
    if (client->marked != NULL) {
        psi_spans_told(&client->marked->spans);
    }
}
