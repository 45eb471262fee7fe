/*
 * plan_rows.c - sparse tables of a job: which rows there are, and who pushes which.
 *
 * Each place has as many rows as any other, and they are numbered in the order in which they travel. So
 * a sparse table is to the program and to the oracle what a dense one of [rows, width] would be, and
 * the rows of a place are one run of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "plan.h"
#include "shard/bucket.h"
#include "shard/shard.h"
#include "store/initial.h"

uint64_t
plan_rows(const struct table_plan *table)
{
    return table->count / table->width;
}

static void
sort_in(uint64_t *ids, uint64_t count, uint64_t id)
{
    for (; count > 0 && psi_bucket_before(id, ids[count - 1]); count--) {
        ids[count] = ids[count - 1];
    }
    ids[count] = id;
}

void
plan_row_ids(const struct table_plan *table, uint64_t *ids_p)
{
    const uint64_t rows = plan_rows(table) / table->places;
    const uint32_t bits = table->spills ? PSI_BUCKET_BITS_MIN : PSI_BUCKET_BITS;
    uint64_t *found = calloc(table->places, sizeof(*found));
    uint64_t left = plan_rows(table);

    psi_assert(found != NULL);
    for (uint64_t id = 0; left > 0; id++) {
        const uint32_t place = psi_bucket_place(psi_bucket_of(id, bits), bits, table->places);

        if (found[place] < rows) {
            sort_in(ids_p + place * rows, found[place]++, id);
            left--;
        }
    }
    free(found);
}

uint64_t
plan_chunk_count(const struct table_plan *table)
{
    return table->width > 0 ? table->places : psi_chunk_count(table->count);
}

uint64_t
plan_chunk_elements(const struct table_plan *table, uint64_t chunk)
{
    return table->width > 0 ? table->count / table->places
                            : psi_chunk_elements(table->count, chunk);
}

uint64_t
plan_chunk_first(const struct table_plan *table, uint64_t chunk)
{
    return table->width > 0 ? chunk * (table->count / table->places) : psi_chunk_first(chunk);
}

bool
plan_touches(const struct plan *plan, unsigned index, uint32_t rank, uint64_t step, uint64_t row)
{
    return plan->table[index].width == 0 ||
           (sim_mix(plan->seed ^ row, index, rank, step) % 3 == 0 &&
            sim_mix(plan->seed, index, rank, step ^ 1) % 7 != 0); /* now and then it has none */
}

void
plan_initial_rows(const struct plan *plan, unsigned index, uint64_t first, uint64_t count,
                  void *values_p)
{
    const struct table_plan *table = &plan->table[index];
    uint64_t *ids = malloc(plan_rows(table) * sizeof(*ids));

    psi_assert(ids != NULL && first % table->width == 0 && count % table->width == 0);
    plan_row_ids(table, ids);
    for (uint64_t i = 0; i < count; i += table->width) {
        store_initial(table->init, 0.5, plan->seed, table->dtype,
                      ids[(first + i) / table->width] * table->width, table->width,
                      (char *)values_p + i * psi_dtype_bytes(table->dtype));
    }
    free(ids);
}

/* Not where nobody has a copy of a server that dies, nor where a worker would save it. */
static bool
may_have_rows(const struct plan *plan)
{
    return (plan->replicas > 0 || plan->faults.server_lives == 0) && plan->save_every == 0 &&
           plan->load_step == 0;
}

/* Workers make sums of rows anew when a server dies, unless they wait for replacements of each other. Then
 * there are copies. Nobody joins them. */
static bool
may_have_sums_of_rows(const struct plan *plan)
{
    const bool are_remade = plan->server_wait_ms > 0 && plan->policy != PSI_DEATH_WAIT;
    const bool are_safe = plan->replicas > 0 || plan->faults.server_lives == 0;

    return (are_remade || are_safe) && plan->save_every == 0 && plan->load_step == 0 &&
           !plan_is_elastic(plan);
}

/* Then rows do not go: the oracle of files knows only rows that come and change. */
static bool
is_saved(const struct plan *plan)
{
    return plan->checkpoint_steps > 0 || plan->checkpoint_ms > 0;
}

static void
make_sparse(const struct plan *plan, struct table_plan *table, struct rng *rng)
{
    const uint64_t slots = plan->workers * plan->pushes_max + 1;
    uint64_t rows;

    table->width = (uint32_t)rng_between(rng, 1, 9);
    table->places = 0;
    for (uint32_t i = 0; i < plan->servers; i++) {
        table->places += plan->lanes[i];
    }
    rows = table->kind == KIND_ROUNDS ? rng_between(rng, 1, 30)
                                      : (slots + table->width - 1) / table->width;
    table->count = (uint64_t)table->places * rows * table->width;
    table->idle = table->kind == KIND_ROUNDS && !is_saved(plan) && rng_chance(rng, 40)
                      ? (uint32_t)rng_between(rng, 1, 4)
                      : 0;
    table->dtype = PSD_F32;
    table->ranges = false;
    if (table->rule.rule == PSD_RULE_MOMENTUM) { /* which moves rows that nobody touches */
        table->rule.rule = PSD_RULE_SGD;
        table->rule.momentum = 0;
    }
    if (table->init == PSD_INIT_RANK0) {
        table->init = PSD_INIT_UNIFORM;
    }
}

/* Its answers bring the rows that somebody gave: nobody pulls it. */
static void
make_sparse_sum(const struct plan *plan, struct table_plan *table, struct rng *rng)
{
    make_sparse(plan, table, rng);
    table->split = false;
    table->idle = 0;
}

void
plan_draw_rows(struct plan *plan, struct rng *rng)
{
    for (unsigned i = 0; i < plan->table_count && may_have_rows(plan); i++) {
        if (plan->table[i].use == PSD_USE_UPDATE && rng_chance(rng, 40)) {
            make_sparse(plan, &plan->table[i], rng);
            plan->table[i].spills = sim_mix(plan->seed, i, 33, 34) % 3 == 0;
        }
    }
    for (unsigned i = 0; i < plan->table_count && may_have_sums_of_rows(plan); i++) {
        if (plan->table[i].use == PSD_USE_SUM && rng_chance(rng, 40)) {
            make_sparse_sum(plan, &plan->table[i], rng);
        }
    }
    plan->rows_part_bytes = rng_chance(rng, 60) ? (uint32_t)rng_between(rng, 1, 400) : 0;
}

bool
plan_is_sparse_sum(const struct table_plan *table)
{
    return table->width > 0 && table->use == PSD_USE_SUM;
}

void
plan_spread_sums(const struct table_plan *table, const uint64_t *ids, uint64_t rows,
                 const struct plan_sums *sums, float *values_p)
{
    uint64_t at = 0;

    for (uint64_t i = 0; i < rows * table->width; i++) {
        values_p[i] = PLAN_ABSENT;
    }
    for (uint64_t row = 0; row < rows && at < sums->count; row++) {
        if (sums->ids[at] == ids[row]) {
            memcpy(values_p + row * table->width, sums->rows + at * table->width,
                   table->width * sizeof(float));
            at++;
        }
    }
    if (at < sums->count) { /* of an id that there is not, or twice, or not where it belongs */
        values_p[0] = NAN;
    }
}
