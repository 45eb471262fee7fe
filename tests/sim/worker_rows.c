/*
 * worker_rows.c - sparse tables: of the step's gradient, the rows that this rank pushes; and lookups of
 * all rows that there are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/sparse_rows.h"
#include "client/core/sparse_sums.h"
#include "shard/bucket.h"
#include "worker_state.h"

/* What is pushed of a table. */
struct rows {
    uint64_t *ids; /* some of them twice */
    float *numbers;
    uint64_t count;
};

static bool
is_zero(const float *row, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++) {
        if (row[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool
is_pushed(const struct worker *worker, unsigned index, const struct cargo *cargo, uint64_t row,
          const float *gradient)
{
    const struct table_plan *plan = &plan_of(worker)->table[index];

    return plan->kind == KIND_ROUNDS
               ? plan_touches(plan_of(worker), index, worker->rank, cargo->step, row)
               : !is_zero(gradient, plan->width);
}

/* Some rows come as two halves, which are a row again when they are added. */
static void
add_row(struct rows *rows, uint64_t id, const float *gradient, uint32_t width)
{
    const unsigned parts = id % 5 == 0 ? 2 : 1;

    for (unsigned part = 0; part < parts; part++) {
        rows->ids[rows->count] = id;
        for (uint32_t i = 0; i < width; i++) {
            rows->numbers[rows->count * width + i] = gradient[i] / (float)parts;
        }
        rows->count++;
    }
}

static void
collect(const struct worker *worker, unsigned index, const struct cargo *cargo, const uint64_t *ids,
        struct rows *rows_p)
{
    const struct table_plan *plan = &plan_of(worker)->table[index];
    const float *gradient = (const float *)(const void *)cargo->gradient;

    for (uint64_t row = plan_rows(plan); row-- > 0;) { /* in another order than they travel */
        if (is_pushed(worker, index, cargo, row, gradient + row * plan->width)) {
            add_row(rows_p, ids[row], gradient + row * plan->width, plan->width);
        }
    }
}

/* What the program is given is in order of ids. */
static void
check_rising(struct worker *worker, const uint64_t *ids, uint64_t count)
{
    for (uint64_t i = 1; i < count; i++) {
        if (ids[i - 1] >= ids[i]) {
            sim_fail(worker->job->sim, "%s: id %llu comes behind id %llu in a sum",
                     worker->node->name, (unsigned long long)ids[i],
                     (unsigned long long)ids[i - 1]);
        }
    }
}

/* Brings them into the order in which rows are numbered. */
static void
travel(uint64_t *ids, float *rows, uint64_t count, uint32_t width)
{
    for (uint64_t i = 1; i < count; i++) {
        for (uint64_t k = i; k > 0 && psi_bucket_before(ids[k], ids[k - 1]); k--) {
            const uint64_t id = ids[k];

            ids[k] = ids[k - 1];
            ids[k - 1] = id;
            for (uint32_t c = 0; c < width; c++) {
                const float number = rows[k * width + c];

                rows[k * width + c] = rows[(k - 1) * width + c];
                rows[(k - 1) * width + c] = number;
            }
        }
    }
}

void
rows_transfer(struct worker *worker, unsigned flight, unsigned index, struct psi_transfer *args)
{
    static const uint8_t types[256] = {
        [PSI_FRAME_PUSH] = PSI_FRAME_SPARSE_PUSH,
        [PSI_FRAME_PULL] = PSI_FRAME_SPARSE_PULL,
        [PSI_FRAME_PUSH_PULL] = PSI_FRAME_SPARSE_PUSH_PULL,
    };
    const struct table_plan *plan = &plan_of(worker)->table[index];
    const struct cargo *cargo = &worker->flight[flight].cargo[index];
    struct psi_spec *spec = &worker->held[index].table->spec;
    const uint64_t count = plan_rows(plan);
    const uint32_t part_bytes = plan_of(worker)->rows_part_bytes;
    const bool is_of_one_step = plan->kind == KIND_ROUNDS && plan->backup == 0;
    const bool asks = args->to != NULL && !plan_is_sparse_sum(plan);
    uint64_t *ids = malloc(count * sizeof(*ids));
    struct rows rows = {.ids = malloc(2 * count * sizeof(*rows.ids)),
                        .numbers = malloc(2 * plan->count * sizeof(*rows.numbers))};
    struct psd_error err;

    psi_assert(ids != NULL && rows.ids != NULL && rows.numbers != NULL);
    plan_row_ids(plan, ids);
    args->type = types[args->type];
    if (psi_frame_has_gradient(args->type) && !args->empty) {
        collect(worker, index, cargo, ids, &rows);
    }
    const struct sparse_given given = {.push_count = rows.count,
                                       .push_ids = rows.ids,
                                       .gradients = rows.numbers,
                                       .adds_nothing = args->empty,
                                       .lookup_count = asks ? count : 0,
                                       .lookup_ids = ids,
                                       .values = args->to,
                                       .part_bytes = part_bytes,
                                       .answer_bytes = is_of_one_step ? part_bytes : 0};

    psi_assert(psi_sparse_rows_create(spec, plan->places, args->type, &given, &args->rows, &err) ==
               PSD_OK);
    args->empty = false;
    args->from = NULL;
    args->to = NULL;
    args->lent = false;
    free(ids);
    free(rows.ids);
    free(rows.numbers);
}

void
rows_summed(struct worker *worker, const struct record *record, const struct psd_op *op)
{
    const struct table_plan *plan = &plan_of(worker)->table[record->table];
    const struct sparse_sums *sums = psi_sparse_rows_sums(op->transfer.rows);
    const uint64_t count = psi_sparse_sums_count(sums);
    uint64_t *all = malloc(plan_rows(plan) * sizeof(*all));
    uint64_t *ids = malloc((count + 1) * sizeof(*ids));
    float *rows = malloc((count + 1) * plan->width * sizeof(*rows));

    psi_assert(all != NULL && ids != NULL && rows != NULL);
    plan_row_ids(plan, all);
    psi_assert(psi_sparse_sums_read(sums, ids, rows));
    check_rising(worker, ids, count);
    travel(ids, rows, count, plan->width);
    plan_spread_sums(plan, all, plan_rows(plan),
                     &(struct plan_sums){.ids = ids, .rows = rows, .count = count},
                     (void *)worker->flight[record->flight].cargo[record->table].values);
    free(all);
    free(ids);
    free(rows);
}
