/*
 * split.c - sums that are pushed by themselves, and pulled later, or never.
 *
 * When such a push has been answered its gradient is the caller's again. If its server dies then,
 * and no worker has read the sum, nobody can make it anew. So the push of a table that outlives its
 * servers brings the sum along, as a push_pull does, into memory of the table; a later pull is
 * answered from there. Callers who never push a sum by itself have no such memory.
 *
 * Invariant: what is here of a chunk is the whole result of one step, never a part of the next: over
 * a line that may end halfway it comes by way of a bounce (psd_op.in_place, keep.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/results.h"

struct split {
    uint8_t *values;  /* of all chunks */
    uint64_t *pushed; /* chunk -> behind the last step that was pushed by itself ... */
    uint64_t *here;   /* ... and behind the one whose sum is in values; 0: none */
};

static struct split *
create(const struct psd_table *table)
{
    struct split *split = calloc(1, sizeof(*split));

    if (split == NULL) {
        return NULL;
    }
    split->values = malloc(table->spec.count * table->element_bytes);
    split->pushed = calloc(table->chunk_count, sizeof(*split->pushed));
    split->here = calloc(table->chunk_count, sizeof(*split->here));
    if (split->values == NULL || split->pushed == NULL || split->here == NULL) {
        free(split->values);
        free(split->pushed);
        free(split->here);
        free(split);
        return NULL;
    }
    return split;
}

void
psi_split_destroy(struct psd_table *table)
{
    if (table->split != NULL) {
        free(table->split->values);
        free(table->split->pushed);
        free(table->split->here);
        free(table->split);
        table->split = NULL;
    }
}

static uint8_t *
values_of(const struct psd_op *op)
{
    return op->table->split->values + op->transfer.first * op->table->element_bytes;
}

psd_status
psi_split_push(struct psd_op *op, struct psd_error *err)
{
    struct psd_table *table = op->table;

    if (table->results == NULL || op->transfer.type != PSI_FRAME_PUSH) {
        return PSD_OK;
    }
    if (table->split == NULL) {
        table->split = create(table);
    }
    if (table->split == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY,
                        "push table %s: no memory for its sum, which is kept until it is pulled",
                        table->spec.name);
    }
    op->transfer.type = PSI_FRAME_PUSH_PULL;
    op->transfer.to = values_of(op);
    op->in_place = true;
    op->is_split = true;
    for (uint64_t i = 0; i < op->chunk_count; i++) {
        table->split->pushed[op->first_chunk + i] = op->transfer.step + 1;
    }
    return PSD_OK;
}

/* ---- pulls ---------------------------------------------------------------------------------- */

/* Are the sums that it wants here? */
static bool
is_here(const struct psd_op *op)
{
    uint64_t i = 0;

    while (i < op->chunk_count &&
           op->table->split->here[op->first_chunk + i] >= op->transfer.step) {
        i++;
    }
    return i == op->chunk_count;
}

bool
psi_split_pull(struct psd_op *op)
{
    const struct split *split = op->table->split;

    if (split == NULL || op->transfer.type != PSI_FRAME_PULL || op->transfer.to_view) {
        return false;
    }
    for (uint64_t i = 0; i < op->chunk_count; i++) {
        const uint64_t chunk = op->first_chunk + i;

        if (op->transfer.step == 0 ||
            (split->here[chunk] < op->transfer.step && split->pushed[chunk] < op->transfer.step)) {
            return false;
        }
    }
    snprintf(op->because, sizeof(op->because), "its sum comes with the push of step %llu",
             (unsigned long long)op->transfer.step - 1);
    return true;
}

void
psi_split_look(struct psd_op *op)
{
    if (!is_here(op)) {
        return;
    }
    if (!op->transfer.empty) {
        psi_client_copy(op->client, op->transfer.to, values_of(op),
                        op->transfer.count * op->table->element_bytes);
    }
    op->because[0] = '\0';
    op->value = op->table->split->here[op->first_chunk];
    op->applied = op->chunk_count;
    op->remaining = 0;
    psi_op_succeed(op);
}

/* ---- sums ----------------------------------------------------------------------------------- */

void
psi_split_came(const struct psd_op *op, uint32_t chunk)
{
    struct psd_table *table = op->table;
    struct psd_op *older;

    table->split->here[chunk] = op->transfer.step + 1;
    for (struct psd_op *other = table->last_op; other != NULL; other = older) {
        older = other->table_prev;
        if (other->is_local) {
            psi_split_look(other);
        }
    }
}
