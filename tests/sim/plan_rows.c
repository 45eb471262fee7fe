/*
 * plan_rows.c - sparse tables of a job: which rows there are, and who pushes which.
 *
 * Each place has as many rows as any other, and they are numbered in the order in which they travel. So
 * a sparse table is to the program and to the oracle what a dense one of [rows, width] would be, and
 * the rows of a place are one run of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

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
    uint64_t *found = calloc(table->places, sizeof(*found));
    uint64_t left = plan_rows(table);

    psi_assert(found != NULL);
    for (uint64_t id = 0; left > 0; id++) {
        const uint32_t place =
            psi_bucket_place(psi_bucket_of(id, PSI_BUCKET_BITS), PSI_BUCKET_BITS, table->places);

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

/* Not where servers would have to have copies of it, nor where workers would save it, or join. */
static bool
may_have_rows(const struct plan *plan)
{
    return plan->replicas == 0 && plan->faults.server_lives == 0 && plan->save_every == 0 &&
           plan->load_step == 0 && plan->max_servers == 0 && !plan_is_elastic(plan);
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

void
plan_draw_rows(struct plan *plan, struct rng *rng)
{
    for (unsigned i = 0; i < plan->table_count && may_have_rows(plan); i++) {
        if (plan->table[i].use == PSD_USE_UPDATE && rng_chance(rng, 40)) {
            make_sparse(plan, &plan->table[i], rng);
        }
    }
}
