/*
 * model.c - the oracle.
 *
 * Written without a look at the store: sums by the rule of docs/consistency.md, updates by the
 * formulas of psd.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "copies.h"
#include "half.h"
#include "rank_set.h"
#include "server/state.h"
#include "shard/shard.h"

/* One chunk of a bulk-synchronous table. */
struct chunk_model {
    uint64_t elements;
    uint64_t version;           /* rounds closed so far */
    uint8_t **value;            /* per version; steps + 2 of them */
    uint8_t *momentum;          /* MOMENTUM: of the newest version, ... */
    uint8_t *momentum_before;   /* ... and of the one before it */
    uint8_t *weights;           /* USE_SUM: what workers make of the means, ... */
    uint8_t *weights_before;    /* ... and had made before the newest */
    struct psi_ranks *in;       /* per round: who was in it */
    struct psi_ranks told;      /* of the newest version: who has been given it */
    bool is_taken_back;         /* the round of that version had closed once, and nobody was told */
    const struct chunk *life;   /* of its server, as far as it has been compared ... */
    uint64_t compared;          /* ... up to that version */
    const struct chunk *opened; /* by a life that had nothing of it ... */
    uint64_t opened_at;         /* ... at this version, ... */
    struct psi_ranks absent;    /* ... and awaits nothing of these ranks, who have left */
};

struct table_model {
    const struct table_plan *plan;
    size_t element_bytes;
    uint64_t chunk_count;
    uint64_t *ids;                   /* sparse: of all rows */
    struct chunk_model *chunk;       /* KIND_ROUNDS */
    bool *late;                      /* per round: closed without some that were chosen */
    bool lost_more;                  /* servers took what more ranks gave than were named */
    uint8_t *entry;                  /* KIND_SLOTS, KIND_LEDGER: enum ledger_entry per slot */
    uint64_t joined_at[WORKERS_MAX]; /* the first step of a rank; UINT64_MAX: not known yet */
};

struct partial {
    uint32_t rank;
    char table[16];
    uint64_t ahead;
    uint64_t step;
};

/* What a rank had given to open rounds, and was lost with servers. */
struct missing_part {
    uint32_t rank;
    char table[16];
    uint64_t chunks;
    uint64_t step;
};

enum { PARTIALS_MAX = 64, LOST_PARTS_MAX = 512 };

struct model {
    struct sim *sim;
    const struct plan *plan;
    struct table_model table[TABLES_MAX];
    uint32_t life[PROCESSES_MAX][LANES_MAX]; /* of the place: the latest that was seen */
    bool lost[WORKERS_MAX];
    bool left[WORKERS_MAX];
    struct partial partial[PARTIALS_MAX];
    unsigned partials;
    struct missing_part lost_part[LOST_PARTS_MAX];
    unsigned lost_parts;
    uint64_t adds_asked;
    uint64_t adds_done;
    bool *told; /* global steps that were the answer to an addition */
    uint64_t told_capacity;
    uint64_t rounds;
    bool forgotten;
    uint8_t *work[WORKERS_MAX];
    uint8_t *looked_up; /* sparse: rows of a place */
};

uint64_t
model_versions_max(const struct plan *plan)
{
    /* Who joins behind the last step begins two later, and so on. */
    return plan->steps + 2 + (plan_is_elastic(plan) ? 2 * plan->workers : 0);
}

static void
chunk_init(struct model *model, unsigned index, uint64_t chunk)
{
    struct table_model *table = &model->table[index];
    struct chunk_model *self = &table->chunk[chunk];
    size_t bytes;

    self->elements = plan_chunk_elements(table->plan, chunk);
    bytes = self->elements * table->element_bytes;
    self->value = calloc(model_versions_max(model->plan), sizeof(uint8_t *));
    self->in = calloc(model_versions_max(model->plan), sizeof(*self->in));
    self->version = model->plan->load_step;
    self->value[self->version] = malloc(bytes);
    self->momentum = calloc(1, bytes);
    self->momentum_before = calloc(1, bytes);
    self->weights = calloc(1, bytes);
    self->weights_before = calloc(1, bytes);
    psi_assert(self->value[self->version] != NULL && self->momentum != NULL &&
               self->momentum_before != NULL && self->weights != NULL &&
               self->weights_before != NULL);
    if (self->version == 0) {
        plan_initial(model->plan, index, plan_chunk_first(table->plan, chunk), self->elements,
                     self->value[0]);
        return;
    }
    plan_loaded(model->plan, index, PLAN_PART_VALUE, psi_chunk_first(chunk), self->elements,
                self->value[self->version]);
    plan_loaded(model->plan, index, PLAN_PART_STATE, psi_chunk_first(chunk), self->elements,
                self->momentum);
}

/* Of a chunk. */
static uint64_t
most_elements(const struct plan *plan)
{
    uint64_t most = 0;

    for (unsigned i = 0; i < plan->table_count; i++) {
        const uint64_t elements = plan_chunk_elements(&plan->table[i], 0);

        most = elements > most ? elements : most;
    }
    return most;
}

struct model *
model_create(struct sim *sim, const struct plan *plan)
{
    struct model *model = calloc(1, sizeof(*model));

    psi_assert(model != NULL);
    model->sim = sim;
    model->plan = plan;
    for (unsigned i = 0; i < plan->table_count; i++) {
        struct table_model *table = &model->table[i];

        table->plan = &plan->table[i];
        for (uint32_t rank = 0; rank < WORKERS_MAX; rank++) {
            table->joined_at[rank] = plan_is_elastic(plan) ? UINT64_MAX : 0;
        }
        table->element_bytes = psi_dtype_bytes(table->plan->dtype);
        table->chunk_count = plan_chunk_count(table->plan);
        if (table->plan->width > 0) {
            table->ids = malloc(plan_rows(table->plan) * sizeof(*table->ids));
            psi_assert(table->ids != NULL);
            plan_row_ids(table->plan, table->ids);
        }
        if (table->plan->kind == KIND_ROUNDS) {
            table->chunk = calloc(table->chunk_count, sizeof(*table->chunk));
            table->late = calloc(model_versions_max(plan), sizeof(*table->late));
            psi_assert(table->chunk != NULL && table->late != NULL);
            for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
                chunk_init(model, i, chunk);
            }
        } else {
            table->entry = calloc(plan->workers * plan->pushes_max + 1, 1);
        }
    }
    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        model->work[rank] = malloc(most_elements(plan) * sizeof(double));
        psi_assert(model->work[rank] != NULL);
    }
    model->looked_up = malloc(most_elements(plan) * sizeof(double));
    psi_assert(model->looked_up != NULL);
    return model;
}

void
model_destroy(struct model *model)
{
    for (unsigned i = 0; i < model->plan->table_count; i++) {
        struct table_model *table = &model->table[i];

        for (uint64_t c = 0; table->chunk != NULL && c < table->chunk_count; c++) {
            for (uint64_t v = 0; v < model_versions_max(model->plan); v++) {
                free(table->chunk[c].value[v]);
            }
            free(table->chunk[c].value);
            free(table->chunk[c].in);
            free(table->chunk[c].momentum);
            free(table->chunk[c].momentum_before);
            free(table->chunk[c].weights);
            free(table->chunk[c].weights_before);
        }
        free(table->chunk);
        free(table->late);
        free(table->entry);
        free(table->ids);
    }
    for (uint32_t rank = 0; rank < model->plan->workers; rank++) {
        free(model->work[rank]);
    }
    free(model->told);
    free(model->looked_up);
    free(model);
}

void
model_rank_lost(struct model *model, uint32_t rank)
{
    model->lost[rank] = true;
}

void
model_rank_left(struct model *model, uint32_t rank)
{
    model->left[rank] = true;
}

/* Do servers know how far the table is, whichever of them has died, or was taken for dead? Of sums there is no copy,
 * but where a replacement repeats steps. */
static bool
servers_know(const struct model *model, const struct table_model *table)
{
    const struct plan *plan = model->plan;
    const struct sim_counters *counters = &model->sim->counters;
    const bool copied = plan->replicas > 0 &&
                        (table->plan->use == PSD_USE_UPDATE || plan->policy == PSI_DEATH_WAIT);
    const bool none_lost =
        counters->server_kills == 0 && counters->server_lives == 0 && counters->promotions == 0;

    return plan->server_wait_ms == 0 || none_lost || copied;
}

/* Or a worker that has begun with it, and is there? */
static bool
anybody_knows(const struct model *model, const struct table_model *table)
{
    for (uint32_t rank = 0; rank < model->plan->workers; rank++) {
        if (table->joined_at[rank] != UINT64_MAX && !model->lost[rank] && !model->left[rank]) {
            return true;
        }
    }
    return servers_know(model, table);
}

static struct psi_ranks
lost_ranks(const struct model *model)
{
    struct psi_ranks lost = {0};

    for (uint32_t rank = 0; rank < model->plan->workers; rank++) {
        if (model->lost[rank]) {
            psi_ranks_add(&lost, rank);
        }
    }
    return lost;
}

/* As if the newest round had not closed. */
static void
take_back(struct model *model, const struct table_model *table, struct chunk_model *chunk)
{
    const size_t bytes = chunk->elements * table->element_bytes;

    free(chunk->value[chunk->version]);
    chunk->value[chunk->version] = NULL;
    memcpy(chunk->weights, chunk->weights_before, bytes);
    memcpy(chunk->momentum, chunk->momentum_before, bytes);
    chunk->version--;
    model->rounds--;
    chunk->told = rank_set_all(); /* there is nothing to make an earlier round anew from */
    chunk->is_taken_back = true;
}

/* The step may have closed, and died with its server before anybody who lives was told of it. Then it closes with the
 * rank. If it lives, it has closed without it: check_members() sees that. */
static bool
may_be_taken_back(const struct model *model, const struct chunk_model *chunk, uint64_t step)
{
    const struct psi_ranks lost = lost_ranks(model);

    return chunk->version == step + 1 && rank_set_is_within(&chunk->told, &lost);
}

void
model_joined(struct model *model, unsigned index, uint32_t rank, uint64_t step)
{
    struct table_model *table = &model->table[index];

    if (table->joined_at[rank] != UINT64_MAX) {
        return; /* a replacement: the rank has begun */
    }
    for (uint64_t c = 0; table->chunk != NULL && c < table->chunk_count; c++) {
        struct chunk_model *chunk = &table->chunk[c];

        if (chunk->version > step && !anybody_knows(model, table)) {
            model->forgotten = true;
        } else if (may_be_taken_back(model, chunk, step)) {
            take_back(model, table, chunk);
        } else if (chunk->version > step) {
            sim_fail(model->sim,
                     "table %s chunk %llu: worker %u begins with step %llu, but that has closed "
                     "without it",
                     table->plan->name, (unsigned long long)c, rank, (unsigned long long)step);
        }
    }
    table->joined_at[rank] = step;
}

bool
model_awaits(const struct model *model, unsigned index, uint32_t rank)
{
    return model->table[index].joined_at[rank] == UINT64_MAX;
}

bool
model_is_forgotten(const struct model *model)
{
    return model->forgotten;
}

void
model_note_partial(struct model *model, uint32_t rank, const char *table, uint64_t ahead,
                   uint64_t chunks, uint64_t step)
{
    struct partial *partial = &model->partial[model->partials];

    (void)chunks;
    psi_assert(model->partials < PARTIALS_MAX);
    model->partials++;
    partial->rank = rank;
    partial->ahead = ahead;
    partial->step = step;
    memcpy(partial->table, table, strnlen(table, sizeof(partial->table) - 1));
}

static int
find_table(const struct model *model, const char *name)
{
    for (unsigned i = 0; i < model->plan->table_count; i++) {
        if (strcmp(model->plan->table[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

void
model_note_lost_part(struct model *model, uint32_t rank, const char *table, uint64_t chunks,
                     uint64_t step)
{
    struct missing_part *part = &model->lost_part[model->lost_parts];
    const struct table_model *of = &model->table[find_table(model, table)];

    if (of->joined_at[rank] != UINT64_MAX && step < of->joined_at[rank]) {
        sim_fail(
            model->sim,
            "table %s: what worker %u gave to step %llu is said to be lost, but it has part in "
            "steps from %llu on",
            table, rank, (unsigned long long)step, (unsigned long long)of->joined_at[rank]);
    }
    psi_assert(model->lost_parts < LOST_PARTS_MAX);
    model->lost_parts++;
    part->rank = rank;
    part->chunks = chunks;
    part->step = step;
    memcpy(part->table, table, strnlen(table, sizeof(part->table) - 1));
}

void
model_note_lost_more(struct model *model, const char *table)
{
    model->table[find_table(model, table)].lost_more = true;
}

void
model_note_late(struct model *model, const char *name, uint64_t step)
{
    const int index = find_table(model, name);

    psi_assert(index >= 0 && step < model_versions_max(model->plan));
    model->table[index].late[step] = true;
}

uint64_t
model_rounds(const struct model *model)
{
    return model->rounds;
}

/* ---- rounds -------------------------------------------------------------------------------- */

/* left += right, element by element. */
static void
add_to(void *left, const void *right, uint64_t count, psd_dtype dtype)
{
    for (uint64_t i = 0; i < count; i++) {
        if (dtype == PSD_F64) {
            ((double *)left)[i] = ((double *)left)[i] + ((const double *)right)[i];
        } else {
            ((float *)left)[i] = ((float *)left)[i] + ((const float *)right)[i];
        }
    }
}

/* The tree over ranks: a node is the sum of its two halves, or the one that is there. */
static uint8_t *
tree_sum(uint8_t *node[WORKERS_MAX], uint64_t count, psd_dtype dtype)
{
    for (unsigned width = 1; width < WORKERS_MAX; width *= 2) {
        for (unsigned i = 0; i + width < WORKERS_MAX; i += 2 * width) {
            if (node[i] == NULL) {
                node[i] = node[i + width];
            } else if (node[i + width] != NULL) {
                add_to(node[i], node[i + width], count, dtype);
            }
        }
    }
    return node[0];
}

static double
get(const void *values, uint64_t i, psd_dtype dtype)
{
    return dtype == PSD_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

/* One element of an update, in the arithmetic of the table's type. */
#define DEFINE_UPDATE(real)                                                                        \
    static real update_##real(const struct table_plan *table, real w, real g, real *m)             \
    {                                                                                              \
        const real rate = (real)table->rule.learning_rate;                                         \
                                                                                                   \
        switch (table->rule.rule) {                                                                \
        case PSD_RULE_ADD:                                                                         \
            return w + g;                                                                          \
        case PSD_RULE_SGD:                                                                         \
            return w - rate * g;                                                                   \
        default:                                                                                   \
            *m = (real)table->rule.momentum * *m + g;                                              \
            return w - rate * *m;                                                                  \
        }                                                                                          \
    }
DEFINE_UPDATE(float)
DEFINE_UPDATE(double)
#undef DEFINE_UPDATE

static void
next_version(const struct table_plan *table, struct chunk_model *chunk, const uint8_t *sum,
             unsigned leaves, uint8_t *to)
{
    const uint8_t *from = chunk->value[chunk->version];
    const bool mean = table->reduce == PSD_REDUCE_MEAN && leaves > 1;

    for (uint64_t i = 0; i < chunk->elements; i++) {
        if (table->dtype == PSD_F64) {
            double g = sum == NULL ? 0 : ((const double *)sum)[i];
            double *m = (double *)chunk->momentum + i;

            g = mean ? g / leaves : g;
            ((double *)to)[i] = table->use == PSD_USE_SUM
                                    ? g
                                    : update_double(table, ((const double *)from)[i], g, m);
        } else {
            float g = sum == NULL ? 0 : ((const float *)sum)[i];
            float *m = (float *)chunk->momentum + i;

            g = mean ? g / (float)leaves : g;
            ((float *)to)[i] =
                table->use == PSD_USE_SUM ? g : update_float(table, ((const float *)from)[i], g, m);
        }
    }
}

static bool
touches(const struct model *model, unsigned index, const struct psi_ranks *in, uint64_t step,
        uint64_t row)
{
    for (uint32_t rank = 0; rank < model->plan->workers; rank++) {
        if (psi_ranks_has(in, rank) && !plan_is_empty(model->plan, index, rank, step) &&
            plan_touches(model->plan, index, rank, step, row)) {
            return true;
        }
    }
    return false;
}

/* Has nobody pushed the row for so many steps that it goes at the end of this one, in which are these? */
static bool
is_idle(const struct model *model, unsigned index, const struct chunk_model *chunk,
        const struct psi_ranks *in, uint64_t row)
{
    const uint32_t idle = model->plan->table[index].idle;
    const uint64_t step = chunk->version;

    if (idle == 0 || step < idle || touches(model, index, in, step, row)) {
        return false;
    }
    for (uint64_t back = 1; back <= idle; back++) {
        if (touches(model, index, &chunk->in[step - back], step - back, row)) {
            return false;
        }
    }
    return true;
}

/* Row by row: who has no gradient for a row is no leaf of its tree; a row that nobody has stays as it
 * is. But the mean divides by all who are in the round. */
static void
next_rows(struct model *model, unsigned index, uint64_t number, uint8_t *node[WORKERS_MAX],
          unsigned leaves, const struct psi_ranks *in, uint8_t *to)
{
    const struct table_model *table = &model->table[index];
    const struct table_plan *plan = table->plan;
    const struct chunk_model *chunk = &table->chunk[number];
    const float *initial = (const float *)(const void *)chunk->value[0];
    const float *from = (const float *)(const void *)chunk->value[chunk->version];
    const uint64_t first_row = plan_chunk_first(plan, number) / plan->width;

    memcpy(to, from, chunk->elements * sizeof(float));
    for (uint64_t i = 0; i < chunk->elements && plan->use == PSD_USE_SUM; i++) {
        ((float *)(void *)to)[i] = PLAN_ABSENT; /* it is of this round alone */
    }
    for (uint64_t at = 0; at < chunk->elements; at += plan->width) {
        uint8_t *row[WORKERS_MAX] = {NULL};
        const float *sum;

        for (uint32_t rank = 0; rank < model->plan->workers; rank++) {
            if (node[rank] != NULL && plan_touches(model->plan, index, rank, chunk->version,
                                                   first_row + at / plan->width)) {
                row[rank] = node[rank] + at * sizeof(float);
            }
        }
        sum = (const float *)(const void *)tree_sum(row, plan->width, PSD_F32);
        for (uint64_t i = 0; sum != NULL && i < plan->width; i++) {
            const bool mean = plan->reduce == PSD_REDUCE_MEAN && leaves > 1;
            const float g = mean ? sum[i] / (float)leaves : sum[i];
            float none = 0;

            ((float *)(void *)to)[at + i] =
                plan->use == PSD_USE_SUM ? g : update_float(plan, from[at + i], g, &none);
        }
        if (is_idle(model, index, chunk, in, first_row + at / plan->width)) {
            memcpy(to + at * sizeof(float), initial + at, plan->width * sizeof(float));
        }
    }
}

/* Computes the version after round `chunk->version`, given who was in it. */
static void
advance(struct model *model, unsigned index, uint64_t number, const struct psi_ranks *in)
{
    struct table_model *table = &model->table[index];
    struct chunk_model *chunk = &table->chunk[number];
    const struct table_plan *plan = table->plan;
    const bool sum_use = plan->use == PSD_USE_SUM;
    const uint64_t step = chunk->version;
    uint8_t *node[WORKERS_MAX] = {NULL};
    unsigned leaves = 0;
    uint8_t *to = malloc(chunk->elements * table->element_bytes);

    psi_assert(to != NULL && step + 1 < model_versions_max(model->plan));
    for (uint32_t rank = 0; rank < model->plan->workers; rank++) {
        if (psi_ranks_has(in, rank) && !plan_is_empty(model->plan, index, rank, step)) {
            plan_gradient(model->plan, index, rank, step, plan_chunk_first(plan, number),
                          chunk->elements, sum_use ? chunk->weights : chunk->value[step],
                          model->work[rank]);
            node[rank] = model->work[rank];
            leaves++;
        }
    }
    memcpy(chunk->momentum_before, chunk->momentum, chunk->elements * table->element_bytes);
    if (rank_set_is_empty(in) && !sum_use) { /* nobody was left: no update */
        memcpy(to, chunk->value[step], chunk->elements * table->element_bytes);
    } else if (plan->width > 0) {
        next_rows(model, index, number, node, leaves, in, to);
    } else {
        next_version(plan, chunk, tree_sum(node, chunk->elements, plan->dtype), leaves, to);
    }
    chunk->value[step + 1] = to;
    chunk->in[step] = *in;
    chunk->told = (struct psi_ranks){0};
    chunk->is_taken_back = false;
    chunk->version++;
    model->rounds++;
    if (sum_use) {
        memcpy(chunk->weights_before, chunk->weights, chunk->elements * table->element_bytes);
        add_to(chunk->weights, to, chunk->elements, plan->dtype);
    }
}

/* May exactly these ranks have been in the round? */
static void
check_members(struct model *model, const struct table_model *table, uint64_t number,
              const struct psi_ranks *in)
{
    const struct plan *plan = model->plan;
    const struct chunk_model *chunk = &table->chunk[number];
    const uint64_t round = chunk->version;
    unsigned present = 0;
    unsigned live = 0;

    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        const bool is_in = psi_ranks_has(in, rank);

        if (round < table->joined_at[rank] || round >= plan_leaves_at(plan, rank)) {
            if (is_in) {
                sim_fail(model->sim,
                         "table %s chunk %llu: worker %u is in round %llu, in which it has no part",
                         table->plan->name, (unsigned long long)number, rank,
                         (unsigned long long)round);
            }
            continue;
        }
        present += is_in;
        live += !model->lost[rank];
        if (table->plan->backup > 0) {
            continue;
        }
        if (!is_in && !(plan->policy == PSI_DEATH_CONTINUE && model->lost[rank])) {
            sim_fail(model->sim,
                     "table %s chunk %llu: round %llu closed without worker %u, which "
                     "is not lost",
                     table->plan->name, (unsigned long long)number, (unsigned long long)round,
                     rank);
        }
        if (is_in && round > plan->load_step && round > table->joined_at[rank] &&
            !psi_ranks_has(&chunk->in[round - 1], rank)) {
            sim_fail(model->sim,
                     "table %s chunk %llu: worker %u is in round %llu but was not in "
                     "the one before",
                     table->plan->name, (unsigned long long)number, rank,
                     (unsigned long long)round);
        }
    }
    if (table->plan->backup > 0 && !table->late[round]) {
        const unsigned quorum = plan->workers - table->plan->backup;
        const unsigned lost = plan->workers - live; /* may have been chosen, and died */

        if (present + lost < quorum) {
            sim_fail(model->sim,
                     "table %s chunk %llu: round %llu closed with %u of %u workers, "
                     "%u are needed",
                     table->plan->name, (unsigned long long)number, (unsigned long long)round,
                     present, plan->workers, quorum);
        }
    }
}

static void
compare(struct model *model, const struct table_model *table, uint64_t number, uint64_t version,
        const void *have)
{
    const struct chunk_model *chunk = &table->chunk[number];
    const psd_dtype dtype = table->plan->dtype;

    if (memcmp(have, chunk->value[version], chunk->elements * table->element_bytes) == 0) {
        return;
    }
    for (uint64_t i = 0; i < chunk->elements; i++) {
        if (memcmp((const uint8_t *)have + i * table->element_bytes,
                   chunk->value[version] + i * table->element_bytes, table->element_bytes) != 0) {
            sim_fail(model->sim,
                     "table %s chunk %llu version %llu: element %llu is %.9g in the "
                     "lane, %.9g by the model",
                     table->plan->name, (unsigned long long)number, (unsigned long long)version,
                     (unsigned long long)i, get(have, i, dtype),
                     get(chunk->value[version], i, dtype));
            return;
        }
    }
}

/* Before its first round there is none. */
static void
spread_sums(const struct table_plan *plan, const struct chunk *chunk, const struct store_rows *all,
            float *values_p)
{
    const struct store *store = chunk->table->store;
    const struct store_rows rows = store->ops->sums(store, chunk->place);
    const struct plan_sums sums = {.ids = rows.ids, .rows = rows.rows, .count = rows.count};

    if (chunk->updates == 0) {
        memset(values_p, 0, all->count * plan->width * sizeof(*values_p));
    } else {
        plan_spread_sums(plan, all->ids, all->count, &sums, values_p);
    }
}

/* Of rows: a copy, until the next call. */
static const void *
value_of(struct model *model, const struct table_model *table, const struct chunk *chunk,
         uint32_t buffer)
{
    struct store *store = chunk->table->store;

    if (table->plan->width > 0) {
        const uint64_t rows = plan_rows(table->plan) / table->plan->places;
        const struct store_rows asked = {.ids = table->ids + chunk->index * rows,
                                         .count = (uint32_t)rows};

        if (plan_is_sparse_sum(table->plan)) {
            spread_sums(table->plan, chunk, &asked, (void *)model->looked_up);
            return model->looked_up;
        }
        store->ops->lookup(store, chunk->place, buffer, &asked, model->looked_up);
        return model->looked_up;
    }
    return store->ops->read(store, chunk->place, buffer).base;
}

static struct psi_ranks
ranks_in(const struct model *model, const struct chunk *have, uint64_t round)
{
    struct psi_ranks in = {0};

    for (uint32_t rank = 0; rank < model->plan->workers; rank++) {
        if (have->clock.next[rank] > round) {
            psi_ranks_add(&in, rank);
        }
    }
    return in;
}

/* The newest round, of which nobody who lives was told, may close once more without those who died
 * with the server: what they had given died with it. */
static bool
may_be_made_anew(const struct model *model, const struct chunk_model *chunk, uint64_t version,
                 const struct psi_ranks *in)
{
    const struct psi_ranks was_in = version > 0 ? chunk->in[version - 1] : (struct psi_ranks){0};
    const struct psi_ranks missing = rank_set_minus(&was_in, in);
    const struct psi_ranks lost = lost_ranks(model);

    return version > 0 && version == chunk->version && rank_set_is_within(in, &was_in) &&
           rank_set_is_within(&missing, &lost) && rank_set_is_within(&chunk->told, &lost);
}

static void
make_anew(struct model *model, unsigned index, uint32_t number, const struct psi_ranks *in)
{
    const struct table_model *table = &model->table[index];
    struct chunk_model *chunk = &table->chunk[number];

    take_back(model, table, chunk);
    advance(model, index, number, in);
    sim_trace(model->sim, "model", "table %s chunk %u: round %llu closed anew, with %u",
              table->plan->name, number, (unsigned long long)(chunk->version - 1),
              psi_ranks_count(in));
}

/* The newest round has closed once more with others than before: their gradients may make no difference to the value.
 * A life that began with nothing knows who was in the rounds that it has closed itself. */
static bool
knows_others(const struct chunk_model *chunk, const struct chunk *have, const struct psi_ranks *in)
{
    const uint64_t version = have->clock.version;

    if (version == 0 || version != chunk->version ||
        (have->table->again && (chunk->opened != have || version == chunk->opened_at))) {
        return false;
    }
    return memcmp(in, &chunk->in[version - 1], sizeof(*in)) != 0;
}

/* A server's other life makes anew what an earlier one had, whoever was told of it then: the same
 * bits. */
static void
observe_again(struct model *model, unsigned index, const struct chunk *have)
{
    const struct table_model *table = &model->table[index];
    struct chunk_model *chunk = &table->chunk[have->index];
    const uint64_t version = have->clock.version;
    struct psi_ranks given;
    struct psi_ranks in;
    const void *value;

    if (have->adopting == NULL && have->ready && chunk->opened != have) {
        chunk->opened = have;
        chunk->opened_at = version;
        chunk->absent = ranks_in(model, have, version);
    }
    if (have->adopting != NULL || have->blank || !have->ready ||
        version < model->plan->load_step || /* it has to be loaded first */
        (chunk->life == have && chunk->compared == have->clock.version)) {
        return;
    }
    chunk->life = have;
    chunk->compared = version;
    given = ranks_in(model, have, version - 1);
    in = chunk->opened == have ? rank_set_minus(&given, &chunk->absent) : given;
    value = value_of(model, table, have, have->current);
    if ((memcmp(value, chunk->value[version], chunk->elements * table->element_bytes) != 0 ||
         knows_others(chunk, have, &in)) &&
        may_be_made_anew(model, chunk, version, &in)) {
        make_anew(model, index, have->index, &in);
    }
    compare(model, table, have->index, version, value);
}

static void
observe_chunk(struct model *model, unsigned index, const struct chunk *have, bool is_promoted)
{
    struct table_model *table = &model->table[index];
    struct chunk_model *chunk = &table->chunk[have->index];
    const bool backup = table->plan->backup > 0;
    const bool elastic = plan_is_elastic(model->plan);
    static const struct psi_ranks nobody;
    struct psi_ranks in;

    if ((have->table->again || is_promoted) && have->clock.version <= chunk->version) {
        observe_again(model, index, have);
        return;
    }
    if (have->clock.version == chunk->version || !have->ready ||
        (have->clock.version == 0 && chunk->version == model->plan->load_step)) {
        return; /* nothing has happened, or it has to be loaded first */
    }
    if ((have->clock.version != chunk->version + 1 && !backup && !elastic) ||
        have->clock.version + 2 > model_versions_max(model->plan)) {
        sim_fail(model->sim, "table %s chunk %u: version went from %llu to %llu in one event",
                 table->plan->name, have->index, (unsigned long long)chunk->version,
                 (unsigned long long)have->clock.version);
        return;
    }
    in = ranks_in(model, have, chunk->version);
    if (elastic && have->table->again && chunk->opened != have) {
        /* All who knew have left with what they gave. One that has joined begins behind it. */
        chunk->opened = have;
        chunk->opened_at = have->clock.version;
        chunk->absent = ranks_in(model, have, have->clock.version);
        in = nobody;
    }
    check_members(model, table, have->index, &in);
    advance(model, index, have->index, &in);
    while (chunk->version < have->clock.version) { /* and rounds whose ranks have all left */
        check_members(model, table, have->index, &nobody);
        advance(model, index, have->index, &nobody);
    }
    if (!have->blank) {
        compare(model, table, have->index, chunk->version,
                value_of(model, table, have, have->current));
    }
    /* Of a round without anybody there is no value before it: nobody has part in that step. */
    if (have->table->retain && !rank_set_is_empty(&chunk->in[chunk->version - 1])) {
        compare(model, table, have->index, chunk->version - 1,
                value_of(model, table, have, 1 - have->current));
    }
    sim_trace(model->sim, "model", "table %s chunk %u: round %llu closed with %u",
              table->plan->name, have->index, (unsigned long long)(chunk->version - 1),
              psi_ranks_count(&in));
}

/* A life that has a successor may not know yet, and open what was opened in its absence. What it
 * does beyond what is known counts, and is looked at. */
static bool
is_history(const struct model *model, unsigned index, const struct lane *lane,
           const struct chunk *have)
{
    const struct chunk_model *chunk = &model->table[index].chunk[have->index];

    return lane->job.incarnation < model->life[lane->config.server][lane->config.lane] &&
           have->clock.version <= chunk->version + chunk->is_taken_back;
}

/* A lane that has handed its place over goes on, but tells nobody of what it closes: that closes once more in the lane
 * that has the place. If the move is off, it has been told of after all. */
static bool
is_untold(const struct lane *lane, const struct chunk *have)
{
    return copies_has_given(lane) && have->clock.committed < have->clock.version;
}

void
model_observe(struct model *model, const struct lane *lane)
{
    uint32_t *life = &model->life[lane->config.server][lane->config.lane];

    if (!lane->config.is_standby && lane->job.incarnation > *life) {
        *life = lane->job.incarnation;
    }
    if (lane->mirror != NULL) {
        return; /* copies.c looks at it */
    }
    for (const struct table *table = lane->tables; table != NULL; table = table->next) {
        const int index = find_table(model, table->spec.name);

        psi_assert(index >= 0);
        if (model->table[index].chunk == NULL || table->prepared < table->chunk_count ||
            plan_is_lone(model->plan, (unsigned)index)) {
            continue;
        }
        for (uint64_t i = 0; i < table->chunk_count && !model->sim->failed; i++) {
            const struct chunk *chunk = &table->chunks[i];

            if (!is_history(model, (unsigned)index, lane, chunk) && !is_untold(lane, chunk)) {
                observe_chunk(model, (unsigned)index, chunk, lane->promoted != 0);
            }
        }
    }
}

const void *
model_version(const struct model *model, unsigned table, uint64_t chunk, uint64_t version)
{
    return version < model_versions_max(model->plan)
               ? model->table[table].chunk[chunk].value[version]
               : NULL;
}

void
model_kept(struct model *model, unsigned table, uint64_t chunk, uint64_t version)
{
    struct psi_ranks alone = {0};

    psi_ranks_add(&alone, 0);
    while (model->table[table].chunk[chunk].version < version &&
           version < model_versions_max(model->plan)) {
        advance(model, table, chunk, &alone);
    }
}

void
model_told(struct model *model, unsigned table, uint64_t chunk, uint64_t version, uint32_t rank)
{
    struct chunk_model *of = &model->table[table].chunk[chunk];

    if (version == of->version) {
        psi_ranks_add(&of->told, rank);
    }
}

/* ---- slots and ledgers --------------------------------------------------------------------- */

void
model_ledger(struct model *model, unsigned table, uint32_t rank, uint64_t number,
             enum ledger_entry entry)
{
    uint8_t *slot =
        &model->table[table].entry[plan_slot(model->plan, model->table[table].plan, rank, number)];

    if (*slot != LEDGER_DONE) { /* a repeated push does not take the acknowledgement back */
        *slot = (uint8_t)entry;
    }
}

void
model_slot_done(struct model *model, unsigned table, uint32_t rank, uint64_t step)
{
    model_ledger(model, table, rank, step, LEDGER_DONE);
}

/* Whose acknowledged pushes must be seen. */
struct reader {
    bool everybodys;
    uint32_t rank; /* else: of this rank, those below `own` */
    uint64_t own;
    bool is_rounded; /* what is read has the table's type, f16 */
    const char *where;
};

/* One chunk's slots against what is known of each push. Returns the sum of the hot amounts that are
 * in. */
static float
check_entries(struct model *model, unsigned index, const float *slots, const struct reader *reader)
{
    const struct plan *plan = model->plan;
    const struct table_model *table = &model->table[index];
    float hot = 0;

    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        for (uint64_t number = 0; number < plan->pushes_max; number++) {
            const uint64_t slot = plan_slot(plan, table->plan, rank, number);
            const uint8_t entry = table->entry[slot];
            const float have = slots[slot];
            const bool must =
                entry == LEDGER_DONE &&
                (reader->everybodys || (reader->rank == rank && number < reader->own));
            const bool may = entry == LEDGER_DONE || entry == LEDGER_UNKNOWN;

            if ((have != 0 && have != 1) || (must && have != 1) || (!may && have != 0)) {
                sim_fail(model->sim, "table %s: push %llu of worker %u (%s) is counted %g times %s",
                         table->plan->name, (unsigned long long)number, rank,
                         entry == LEDGER_DONE      ? "acknowledged"
                         : entry == LEDGER_UNKNOWN ? "unknown"
                                                   : "never applied",
                         (double)have, reader->where);
                return 0;
            }
            hot += have != 0 ? plan_hot_amount(rank, number) : 0;
        }
    }
    return hot;
}

static void
check_chunk_slots(struct model *model, unsigned index, const float *slots,
                  const struct reader *reader)
{
    const struct table_model *table = &model->table[index];
    const float sum = check_entries(model, index, slots, reader);
    /* Many pushes add up to more than a half can hold, unless it is the master values. */
    const float hot = reader->is_rounded ? sim_unhalf(sim_half(sum)) : sum;
    const float have = slots[plan_hot_slot(model->plan, table->plan)];

    if (!model->sim->failed && table->plan->kind == KIND_LEDGER && have != hot) {
        sim_fail(model->sim, "table %s: the shared slot is %g %s, the pushes seen add up to %g",
                 table->plan->name, (double)have, reader->where, (double)hot);
    }
}

/* Stale-synchronous: all of every live worker's steps below step - staleness. */
static void
check_bound(struct model *model, unsigned index, uint64_t step, const float *slots)
{
    const struct plan *plan = model->plan;
    const struct table_plan *table = model->table[index].plan;

    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        const bool may_miss = plan->policy == PSI_DEATH_CONTINUE && model->lost[rank];

        for (uint64_t old = model->table[index].joined_at[rank];
             old < step && old + table->staleness < step && !may_miss &&
             old < plan_leaves_at(plan, rank);
             old++) {
            if (slots[plan_slot(plan, table, rank, old)] != 1) {
                sim_fail(model->sim,
                         "table %s: a pull at step %llu (staleness %u) lacks step %llu "
                         "of worker %u",
                         table->name, (unsigned long long)step, table->staleness,
                         (unsigned long long)old, rank);
                return;
            }
        }
    }
}

/* The slots at the beginning of a chunk as floats, whatever the table's type. */
static const float *
widen_slots(struct model *model, const struct table_model *table, const void *values)
{
    const uint64_t count = plan_hot_slot(model->plan, table->plan) + 1;
    float *wide = (float *)(void *)model->work[0];

    if (table->plan->dtype != PSD_F16) {
        return values;
    }
    for (uint64_t i = 0; i < count; i++) {
        wide[i] = sim_unhalf(((const uint16_t *)values)[i]);
    }
    return wide;
}

void
model_check_slots(struct model *model, unsigned index, uint32_t rank, uint64_t own, uint64_t step,
                  const void *values)
{
    const struct table_model *table = &model->table[index];
    const struct reader reader = {.rank = rank,
                                  .own = own,
                                  .is_rounded = table->plan->dtype == PSD_F16,
                                  .where = "in what a worker pulled"};

    for (uint64_t chunk = 0; chunk < table->chunk_count && !model->sim->failed; chunk++) {
        const float *slots = widen_slots(
            model, table,
            (const uint8_t *)values + plan_chunk_first(table->plan, chunk) * table->element_bytes);

        check_chunk_slots(model, index, slots, &reader);
        if (table->plan->kind == KIND_SLOTS) {
            check_bound(model, index, step, slots);
        }
    }
}

/* ---- saves --------------------------------------------------------------------------------- */

/* A chunk that meets in rounds: its value and its optimizer state are of that very version. */
static void
check_saved_round(struct model *model, const struct table_model *table, uint64_t number,
                  const struct model_saved *saved, const uint8_t *parts)
{
    const struct chunk_model *chunk = &table->chunk[number];
    const size_t bytes = chunk->elements * table->element_bytes;
    const void *momentum = chunk->version == saved->step       ? chunk->momentum
                           : chunk->version == saved->step + 1 ? chunk->momentum_before
                                                               : NULL;
    const bool has_state = plan_parts(table->plan).state > 0 && momentum != NULL;

    if (saved->step > chunk->version || memcmp(parts, chunk->value[saved->step], bytes) != 0) {
        sim_fail(model->sim, "table %s chunk %llu: what was saved is not version %llu",
                 table->plan->name, (unsigned long long)number, (unsigned long long)saved->step);
    } else if (has_state && memcmp(parts + bytes, momentum, bytes) != 0) {
        sim_fail(model->sim,
                 "table %s chunk %llu: the optimizer state that was saved is not that of version "
                 "%llu",
                 table->plan->name, (unsigned long long)number, (unsigned long long)saved->step);
    } else if (saved->updates != saved->step && table->plan->backup == 0 &&
               !(plan_is_elastic(model->plan) && saved->updates < saved->step)) {
        sim_fail(model->sim, "table %s: saved at step %llu as the outcome of %llu updates",
                 table->plan->name, (unsigned long long)saved->step,
                 (unsigned long long)saved->updates);
    }
}

/* A chunk of slots: any moment, but all of it of one. */
static void
check_saved_slots(struct model *model, unsigned index, uint64_t elements,
                  const struct model_saved *saved, const uint8_t *parts)
{
    const struct table_model *table = &model->table[index];
    const struct reader reader = {.rank = saved->rank, .own = saved->own, .where = "in a save"};
    const uint8_t *master = parts + elements * table->element_bytes;

    if (table->plan->dtype != PSD_F16) {
        check_chunk_slots(model, index, (const float *)(const void *)parts, &reader);
        return;
    }
    for (uint64_t i = 0; i < elements; i++) {
        const uint16_t value = ((const uint16_t *)(const void *)parts)[i];
        float wide;

        memcpy(&wide, master + i * sizeof(wide), sizeof(wide));
        if (value != sim_half(wide)) {
            sim_fail(model->sim, "table %s: saved %g with a master value of %g", table->plan->name,
                     (double)sim_unhalf(value), (double)wide);
            return;
        }
    }
    memcpy(model->work[0], master, elements * sizeof(float));
    check_chunk_slots(model, index, (const float *)(void *)model->work[0], &reader);
}

void
model_check_saved(struct model *model, unsigned index, const struct model_saved *saved)
{
    const struct table_model *table = &model->table[index];
    const size_t bytes = plan_parts(table->plan).bytes;

    for (uint64_t chunk = 0; chunk < table->chunk_count && !model->sim->failed; chunk++) {
        const uint8_t *parts = saved->parts + plan_chunk_first(table->plan, chunk) * bytes;

        if (table->chunk != NULL) {
            check_saved_round(model, table, chunk, saved, parts);
        } else {
            check_saved_slots(model, index, plan_chunk_elements(table->plan, chunk), saved, parts);
        }
    }
}

/* ---- the global step ----------------------------------------------------------------------- */

void
model_step_asked(struct model *model, uint64_t addend)
{
    model->adds_asked += addend;
}

/* All add one, or nothing: a number that was the answer to an addition is nobody else's. */
void
model_step_done(struct model *model, uint64_t addend, uint64_t value)
{
    model->adds_done += addend;
    if (addend == 0) {
        return;
    }
    if (value >= model->told_capacity) {
        const uint64_t capacity = 2 * value + 64;
        bool *grown = realloc(model->told, capacity * sizeof(*grown));

        psi_assert(grown != NULL);
        memset(grown + model->told_capacity, 0, (capacity - model->told_capacity) * sizeof(*grown));
        model->told = grown;
        model->told_capacity = capacity;
    }
    if (model->told[value]) {
        sim_fail(model->sim, "two additions to the global step were told %llu",
                 (unsigned long long)value);
    }
    model->told[value] = true;
}

uint64_t
model_steps(const struct model *model)
{
    return model->adds_done;
}

void
model_final(struct model *model, const struct lane *lane, bool may_lack)
{
    const struct reader reader = {.everybodys = true, .where = "at the end"};

    if (lane->config.is_standby || !lane->joined ||
        lane->job.incarnation < model->life[lane->config.server][lane->config.lane]) {
        return; /* another one has the place */
    }
    for (const struct table *table = lane->tables; table != NULL; table = table->next) {
        const int index = find_table(model, table->spec.name);

        for (uint64_t i = 0; model->table[index].entry != NULL && i < table->chunk_count &&
                             table->prepared == table->chunk_count && !model->sim->failed;
             i++) {
            const struct chunk *chunk = &table->chunks[i];
            const void *master =
                table->store->ops->part(table->store, chunk->place, PSI_PART_MASTER, 0).base;

            check_chunk_slots(model, (unsigned)index,
                              master != NULL
                                  ? master
                                  : value_of(model, &model->table[index], chunk, chunk->current),
                              &reader);
        }
    }
    if (lane->config.server == 0 && lane->config.lane == 0 &&
        ((lane->global.value < model->adds_done && !may_lack) ||
         lane->global.value > model->adds_asked)) {
        sim_fail(model->sim,
                 "global step is %llu: %llu additions were asked for, %llu acknowledged",
                 (unsigned long long)lane->global.value, (unsigned long long)model->adds_asked,
                 (unsigned long long)model->adds_done);
    }
}

/* ---- the end ------------------------------------------------------------------------------- */

/* In how many chunks of that step the rank is missing because servers died, as their copies said. */
static uint64_t
lost_chunks(const struct model *model, const struct table_model *table, uint32_t rank,
            uint64_t step)
{
    uint64_t chunks = 0;

    for (unsigned i = 0; i < model->lost_parts; i++) {
        const struct missing_part *part = &model->lost_part[i];

        if (part->rank == rank && part->step == step &&
            strcmp(part->table, table->plan->name) == 0) {
            chunks += part->chunks;
        }
    }
    return chunks;
}

/* A rank that left: the first round of each chunk without it. They differ by one step at most, and
 * by none unless the master said so, or a copy that took the place of a server. */
static void
check_left(struct model *model, const struct table_model *table, uint32_t rank)
{
    const uint64_t first = table->joined_at[rank] > model->plan->load_step ? table->joined_at[rank]
                                                                           : model->plan->load_step;
    uint64_t lowest = UINT64_MAX;
    uint64_t in_lowest = 0;
    uint64_t out_lowest = 0;
    uint64_t lost;

    for (uint64_t c = 0; c < table->chunk_count; c++) {
        const struct chunk_model *chunk = &table->chunk[c];

        for (uint64_t round = first; round < chunk->version && round < lowest; round++) {
            if (!psi_ranks_has(&chunk->in[round], rank)) {
                lowest = round;
            }
        }
    }
    for (uint64_t c = 0; c < table->chunk_count && lowest != UINT64_MAX; c++) {
        const struct chunk_model *chunk = &table->chunk[c];

        if (chunk->version > lowest) {
            const bool in = psi_ranks_has(&chunk->in[lowest], rank);

            in_lowest += in;
            out_lowest += !in;
        }
        if (chunk->version > lowest + 1 && psi_ranks_has(&chunk->in[lowest + 1], rank)) {
            sim_fail(model->sim,
                     "table %s: worker %u left at step %llu, but is in the next one of "
                     "chunk %llu",
                     table->plan->name, rank, (unsigned long long)lowest, (unsigned long long)c);
        }
    }
    if (in_lowest == 0 || out_lowest == 0 || table->lost_more) {
        return;
    }
    lost = lost_chunks(model, table, rank, lowest);
    for (unsigned i = 0; i < model->partials; i++) {
        const struct partial *partial = &model->partial[i];

        if (partial->rank == rank && partial->step == lowest &&
            strcmp(partial->table, table->plan->name) == 0 && partial->ahead >= in_lowest &&
            partial->ahead <= table->chunk_count - out_lowest + lost) {
            return;
        }
    }
    if (out_lowest <= lost) {
        return; /* the master said that it is complete, and then servers died */
    }
    sim_fail(model->sim,
             "table %s: worker %u counts in %llu of %llu chunks of step %llu, and "
             "nobody said so",
             table->plan->name, rank, (unsigned long long)in_lowest,
             (unsigned long long)(in_lowest + out_lowest), (unsigned long long)lowest);
}

/* With backup workers one set of ranks is in a round, whatever the chunk and the table of the
 * group, unless the master said so. Where the job goes on without the dead, these may be missing
 * from some. */
static void
check_same_sets(struct model *model, const struct table_model *first,
                const struct table_model *table)
{
    const struct psi_ranks may_differ =
        model->plan->policy == PSI_DEATH_CONTINUE ? lost_ranks(model) : (struct psi_ranks){0};

    for (uint64_t c = 0; c < table->chunk_count; c++) {
        const struct chunk_model *chunk = &table->chunk[c];
        const struct psi_ranks *in = first->chunk[0].in;

        for (uint64_t round = 0; round < chunk->version && round < first->chunk[0].version;
             round++) {
            const bool late = first != table && (first->late[round] || table->late[round]);

            const struct psi_ranks more = rank_set_minus(&chunk->in[round], &in[round]);
            const struct psi_ranks less = rank_set_minus(&in[round], &chunk->in[round]);

            if (!late && (!rank_set_is_within(&more, &may_differ) ||
                          !rank_set_is_within(&less, &may_differ))) {
                sim_fail(
                    model->sim,
                    "round %llu: chunk 0 of table %s closed with %u workers, chunk %llu of table "
                    "%s with %u, not all the same",
                    (unsigned long long)round, first->plan->name, psi_ranks_count(&in[round]),
                    (unsigned long long)c, table->plan->name, psi_ranks_count(&chunk->in[round]));
                return;
            }
        }
    }
}

/* The first table with as many backup workers. */
static const struct table_model *
first_of_group(const struct model *model, const struct table_model *table)
{
    const struct table_model *first = model->table;

    while (first->plan->backup != table->plan->backup) {
        first++;
    }
    return first;
}

void
model_end(struct model *model)
{
    for (unsigned i = 0; i < model->plan->table_count && !model->sim->failed; i++) {
        const struct table_model *table = &model->table[i];

        if (table->chunk == NULL) {
            continue;
        }
        if (table->plan->backup > 0) {
            check_same_sets(model, table, table);
            check_same_sets(model, first_of_group(model, table), table);
            continue;
        }
        for (uint32_t rank = 0; rank < model->plan->workers; rank++) {
            check_left(model, table, rank);
        }
    }
}
