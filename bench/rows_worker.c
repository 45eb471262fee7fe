/*
 * rows_worker.c - a worker of a Poseidon job that asks for rows of sparse tables and pushes them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rows_worker.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "measured.h"
#include "rows.h"

/* A table is filled in pushes of so many bytes at most. */
enum { FILL_BYTES = 4 << 20 };

/* Thread: owned by the worker's thread. */
struct rows_table {
    struct rows_table *next;
    psd_table *table;
    struct rows rows;
    uint64_t flags; /* of this order */
    uint64_t step;
    uint64_t round; /* the next one; of lookups alone, too */
};

/* ---- Operations ---- */

static psd_status
look_up(struct rows_table *table, const uint64_t *ids, uint64_t count, void *values,
        struct psd_error *err)
{
    const struct psd_rows rows = {.struct_size = sizeof(rows),
                                  .step = table->step,
                                  .lookup_count = count,
                                  .lookup_ids = ids,
                                  .values = values};
    psd_op *op;
    const psd_status status = measured_heard(psd_sparse_lookup(table->table, &rows, &op), err);

    return status == PSD_OK ? measured_finish(op, err) : status;
}

static psd_status
push(struct rows_table *table, const uint64_t *ids, const float *gradients, uint64_t count,
     struct psd_error *err)
{
    const struct psd_rows rows = {.struct_size = sizeof(rows),
                                  .step = table->step++,
                                  .push_count = count,
                                  .push_ids = ids,
                                  .gradients = gradients};
    psd_op *op;
    const psd_status status = measured_heard(psd_sparse_push(table->table, &rows, &op), err);

    return status == PSD_OK ? measured_finish(op, err) : status;
}

/* The push of this round, and the rows of the next. */
static psd_status
push_and_look_up(struct rows_table *table, struct psd_error *err)
{
    const uint64_t count = table->rows.order.batch;
    const struct psd_rows rows = {.struct_size = sizeof(rows),
                                  .step = table->step++,
                                  .push_count = count,
                                  .push_ids = rows_ids(&table->rows, table->round),
                                  .gradients = rows_gradients(&table->rows, table->round),
                                  .lookup_count = count,
                                  .lookup_ids = rows_ids(&table->rows, table->round + 1),
                                  .values = table->rows.values};
    psd_op *op;
    const psd_status status = measured_heard(psd_sparse_push_lookup(table->table, &rows, &op), err);

    return status == PSD_OK ? measured_finish(op, err) : status;
}

static psd_status
do_round(void *owner, uint64_t round, struct psd_error *err)
{
    struct rows_table *table = owner;
    const uint64_t *ids = rows_ids(&table->rows, table->round);
    const uint64_t count = table->rows.order.batch;
    psd_status status;

    (void)round;
    if ((table->flags & TEAM_PUSH) == 0) {
        status = look_up(table, ids, count, table->rows.values, err);
    } else if ((table->flags & TEAM_LOOKUP) == 0) {
        status = push(table, ids, rows_gradients(&table->rows, table->round), count, err);
    } else {
        status = push_and_look_up(table, err);
    }
    table->round++;
    return status;
}

/* ---- What they must hold ---- */

static psd_status
check(struct rows_table *table, uint64_t rounds, struct psd_error *err)
{
    const size_t numbers = (size_t)ROWS_SAMPLES * table->rows.order.width;
    float *values;
    psd_status status;

    if ((table->flags & TEAM_NEW) != 0) {
        status = look_up(table, rows_ids(&table->rows, table->round - 1), table->rows.order.batch,
                         table->rows.values, err);
        return status == PSD_OK ? rows_check_new(&table->rows, table->round - 1, err) : status;
    }
    for (uint64_t i = rounds; i > 0 && (table->flags & TEAM_PUSH) != 0; i--) {
        rows_pushed(&table->rows, table->round - i);
    }
    values = malloc(numbers * sizeof(*values));
    if (values == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory to check some rows");
    }
    status = look_up(table, table->rows.sample_ids, ROWS_SAMPLES, values, err);
    if (status == PSD_OK) {
        status = rows_check_samples(&table->rows, values, err);
    }
    free(values);
    return status;
}

/* ---- Tables ---- */

static psd_status
open_table(struct rows_worker *worker, const struct team_order *order, struct rows_table *table,
           struct psd_error *err)
{
    const struct psd_rule_args rule = {.struct_size = sizeof(rule),
                                       .rule = PSD_RULE_ADAGRAD,
                                       .learning_rate = ROWS_RATE,
                                       .epsilon = ROWS_EPSILON};
    const bool evict = (order->flags & TEAM_EVICT) != 0;
    char name[32];
    const struct psd_sparse_args args = {
        .struct_size = sizeof(args),
        .name = name,
        .dtype = PSD_F32,
        .width = (uint32_t)order->width,
        .use = PSD_USE_UPDATE,
        .reduce = PSD_REDUCE_SUM,
        .rule = &rule,
        .capacity_rows = evict ? order->ids : 0,
        .full = evict ? PSD_FULL_OLDEST : PSD_FULL_REFUSE,
    };

    snprintf(name, sizeof(name), "rows%u", worker->count++);
    return measured_heard(psd_sparse_open(worker->context, &args, &table->table), err);
}

/* Each worker pushes its part of every stretch of ids. */
static psd_status
fill(struct rows_table *table, struct psd_error *err)
{
    const struct rows *rows = &table->rows;
    const uint64_t width = rows->order.width;
    const uint64_t each = FILL_BYTES / (width * sizeof(float));
    uint64_t *ids = malloc(each * sizeof(*ids));
    float *gradients = malloc(each * width * sizeof(*gradients));
    psd_status status = ids != NULL && gradients != NULL
                            ? PSD_OK
                            : psi_fail(err, PSD_ERR_NO_MEMORY, "no memory to fill a table");

    for (uint64_t first = 0; first < rows->order.ids && status == PSD_OK;
         first += each * rows->workers) {
        uint64_t count = 0;

        for (uint64_t id = first + rows->rank * each; count < each && id < rows->order.ids; id++) {
            for (uint32_t column = 0; column < width; column++) {
                gradients[count * width + column] = rows_number(id, column);
            }
            ids[count++] = id;
        }
        status = push(table, ids, gradients, count, err);
    }
    free(ids);
    free(gradients);
    return status;
}

static psd_status
make_table(struct rows_worker *worker, const struct team_order *order, struct rows_table **table_p,
           struct psd_error *err)
{
    struct rows_table *table = calloc(1, sizeof(*table));
    psd_status status;

    if (table == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a table");
    }
    table->next = worker->first;
    worker->first = table;
    status =
        rows_init(&table->rows, order, psd_rank(worker->context), psd_size(worker->context), err);
    if (status == PSD_OK) {
        status = open_table(worker, order, table, err);
    }
    if (status == PSD_OK && (order->flags & TEAM_NEW) == 0) {
        status = fill(table, err);
        rows_filled(&table->rows);
    }
    *table_p = table;
    return status;
}

psd_status
rows_worker_follow(struct rows_worker *worker, const struct team_order *order,
                   struct team_times *times, struct psd_error *err)
{
    struct rows_table *table = worker->first;
    psd_status status = PSD_OK;

    while (table != NULL && !rows_are_those(&table->rows, order)) {
        table = table->next;
    }
    if (table == NULL) {
        status = make_table(worker, order, &table, err);
    }
    if (status != PSD_OK || order->rounds == 0) {
        return status;
    }
    table->flags = order->flags;
    status = measured_heard(psd_barrier(worker->context, PSD_FOREVER), err);
    if (status == PSD_OK) {
        status = rows_run(order, do_round, table, times, err);
    }
    return status == PSD_OK ? check(table, order->rounds, err) : status;
}

void
rows_worker_fini(struct rows_worker *worker)
{
    while (worker->first != NULL) {
        struct rows_table *table = worker->first;

        worker->first = table->next;
        rows_fini(&table->rows);
        free(table);
    }
}
