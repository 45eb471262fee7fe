/*
 * readers.c - who looks at the values of a simulated job from outside.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "readers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/read/reader.h"
#include "job.h"
#include "table/dtype.h"

enum { READERS_MAX = 2, IDS_MAX = 64 };

struct reader {
    struct readers *readers;
    unsigned number;
    unsigned lives;
    struct node *node; /* NULL: no process */
    struct psi_reader *core;
    struct rng rng;
    bool is_reading;
    unsigned table;
    uint32_t count;
    uint64_t ids[IDS_MAX];
    uint64_t rows[IDS_MAX]; /* by their numbers */
    uint64_t steps[IDS_MAX];
    uint8_t *values;   /* owned */
    uint64_t next_ns;  /* of its own clock: the next reading, ... */
    uint64_t until_ns; /* ... or the end of its patience with this one */
};

struct readers {
    struct job *job;
    uint64_t *told_ns
        [TABLES_MAX]; /* owned; by chunk and version: since when a worker has had it; 0: none */
    uint64_t versions;
    struct reader reader[READERS_MAX];
};

static const struct table_plan *
plan_of(const struct reader *reader)
{
    return &reader->readers->job->plan.table[reader->table];
}

/* ---- what workers have --------------------------------------------------------------------- */

static uint64_t *
told(const struct readers *readers, unsigned table, uint64_t chunk, uint64_t version)
{
    return &readers->told_ns[table][chunk * readers->versions + version];
}

void
readers_note(struct readers *readers, unsigned table, uint64_t chunk, uint64_t version)
{
    if (readers != NULL && readers->told_ns[table] != NULL && version < readers->versions &&
        *told(readers, table, chunk, version) == 0) {
        *told(readers, table, chunk, version) = readers->job->sim->now_ns + 1;
    }
}

/* The highest version that any worker had by then. */
static uint64_t
known_by(const struct readers *readers, unsigned table, uint64_t chunk, uint64_t at_ns)
{
    uint64_t version = readers->versions;

    while (version-- > 0) {
        const uint64_t since_ns = *told(readers, table, chunk, version);

        if (since_ns != 0 && since_ns - 1 < at_ns) {
            return version;
        }
    }
    return 0;
}

/* ---- is it true? --------------------------------------------------------------------------- */

static void
fail(const struct reader *reader, uint64_t chunk, uint64_t step, const char *what)
{
    sim_fail(reader->readers->job->sim, "%s read table %s chunk %llu at step %llu: %s",
             reader->node->name, plan_of(reader)->name, (unsigned long long)chunk,
             (unsigned long long)step, what);
}

static void
check_age(const struct reader *reader, uint64_t chunk, uint64_t step, uint64_t age_ns)
{
    const struct readers *readers = reader->readers;
    const uint64_t now_ns = readers->job->sim->now_ns;
    const uint64_t since_ns = age_ns < now_ns ? now_ns - age_ns : 0;

    if (known_by(readers, reader->table, chunk, since_ns) > step) {
        fail(reader, chunk, step, "workers had a later one longer ago than it was told");
    }
}

static void
check_rows(const struct reader *reader, uint64_t age_ns)
{
    const struct table_plan *plan = plan_of(reader);
    const size_t bytes = plan->width * psi_dtype_bytes(plan->dtype);
    const uint64_t rows_of_chunk = plan_rows(plan) / plan->places;

    for (uint32_t i = 0; i < reader->count; i++) {
        const uint64_t chunk = reader->rows[i] / rows_of_chunk;
        const uint8_t *want =
            model_version(reader->readers->job->model, reader->table, chunk, reader->steps[i]);

        if (want == NULL) {
            fail(reader, chunk, reader->steps[i], "there is no such version");
        } else if (memcmp(reader->values + i * bytes,
                          want + reader->rows[i] % rows_of_chunk * bytes, bytes) != 0) {
            fail(reader, chunk, reader->steps[i], "a row is not what the model says");
        }
        check_age(reader, chunk, reader->steps[i], age_ns);
    }
}

static void
check_chunks(const struct reader *reader, const struct psi_read_answer *answer)
{
    const struct table_plan *plan = plan_of(reader);
    const size_t each = psi_dtype_bytes(plan->dtype);

    if (answer->oldest < reader->readers->job->plan.load_step) {
        return; /* workers have not loaded it yet: what was there before, the oracle does not know */
    }
    for (uint64_t chunk = 0; chunk < plan_chunk_count(plan); chunk++) {
        const uint8_t *have = reader->values + plan_chunk_first(plan, chunk) * each;
        const size_t bytes = plan_chunk_elements(plan, chunk) * each;
        uint64_t step = answer->newest + 1;
        bool is_right = false;

        while (!is_right && step-- > answer->oldest) {
            const void *want =
                model_version(reader->readers->job->model, reader->table, chunk, step);

            is_right = want != NULL && memcmp(have, want, bytes) == 0;
        }
        if (!is_right) {
            fail(reader, chunk, answer->newest, "it is no version between those that it was told");
        } else {
            check_age(reader, chunk, step, answer->age_ns);
        }
    }
}

/* ---- reading ------------------------------------------------------------------------------- */

static uint64_t
clock_ns(const struct reader *reader)
{
    return psi_now_ns(&reader->node->env);
}

static void
choose_rows(struct reader *reader)
{
    const struct table_plan *plan = plan_of(reader);
    const uint64_t rows = plan_rows(plan);
    uint64_t *ids = malloc(rows * sizeof(*ids));

    psi_assert(ids != NULL);
    plan_row_ids(plan, ids);
    reader->count = (uint32_t)rng_between(&reader->rng, 0, IDS_MAX);
    for (uint32_t i = 0; i < reader->count; i++) { /* some of them twice */
        reader->rows[i] = rng_below(&reader->rng, rows);
        reader->ids[i] = ids[reader->rows[i]];
    }
    free(ids);
}

static void
begin(struct reader *reader)
{
    const struct plan *plan = &reader->readers->job->plan;
    const struct psi_read_table *table;
    struct psi_read_args args = {0};
    struct psd_error err;

    reader->next_ns = clock_ns(reader) + rng_between(&reader->rng, 1, 60) * SIM_MS;
    reader->table = (unsigned)rng_below(&reader->rng, plan->table_count);
    table = psi_reader_find(reader->core, plan_of(reader)->name);
    if (table == NULL || table->spec.use == PSD_USE_SUM) {
        return;
    }
    if (plan_of(reader)->width > 0) {
        choose_rows(reader);
        args.count = reader->count;
        args.ids = reader->ids;
        args.steps = reader->steps;
    }
    reader->values = malloc((plan_of(reader)->count + IDS_MAX * plan_of(reader)->width) * 8);
    psi_assert(reader->values != NULL);
    args.table = table;
    args.values = reader->values;
    if (psi_reader_begin(reader->core, &args, &err) == PSD_OK) {
        reader->is_reading = true;
        reader->until_ns = clock_ns(reader) + rng_between(&reader->rng, 5, 5000) * SIM_MS;
    } else {
        free(reader->values);
        reader->values = NULL;
    }
}

static void
end(struct reader *reader)
{
    psi_reader_end(reader->core);
    free(reader->values);
    reader->values = NULL;
    reader->is_reading = false;
}

static void
look(struct reader *reader)
{
    struct psi_read_answer answer;
    struct psd_error err;
    const psd_status status = psi_reader_progress(reader->core, &answer, &err);

    if (status == PSD_PENDING && clock_ns(reader) < reader->until_ns) {
        return;
    }
    if (status == PSD_OK && plan_of(reader)->kind == KIND_ROUNDS) {
        reader->readers->job->sim->counters.readings++;
        if (plan_of(reader)->width > 0) {
            check_rows(reader, answer.age_ns);
        } else {
            check_chunks(reader, &answer);
        }
    }
    end(reader);
}

/* ---- a process ----------------------------------------------------------------------------- */

static void start(void *object, uint64_t number);
static void die(void *object, uint64_t life);

static void
leave_process(struct reader *reader)
{
    struct node *node = reader->node;

    free(reader->values);
    reader->values = NULL;
    reader->is_reading = false;
    psi_reader_destroy(reader->core);
    reader->core = NULL;
    net_node_gone(node);
    reader->node = NULL;
}

static void
settle(struct node *node)
{
    struct reader *reader = node->owner;
    uint64_t wake_ns;
    struct psd_error err;
    psd_status state;

    psi_reader_tick(reader->core);
    state = psi_reader_state(reader->core, &err);
    if (reader->is_reading) {
        look(reader);
    }
    if (state != PSD_OK && state != PSD_PENDING) {
        sim_trace(reader->readers->job->sim, node->name, "ends: %s", err.text);
        leave_process(reader);
        return;
    }
    if (!reader->is_reading && state == PSD_OK && clock_ns(reader) >= reader->next_ns) {
        begin(reader);
        psi_reader_tick(reader->core);
    }
    wake_ns = psi_reader_next_ns(reader->core);
    if (reader->is_reading && reader->until_ns < wake_ns) {
        wake_ns = reader->until_ns;
    } else if (!reader->is_reading && state == PSD_OK && reader->next_ns < wake_ns) {
        wake_ns = reader->next_ns;
    }
    net_wake_at(node, wake_ns);
}

static void
start(void *object, uint64_t number)
{
    struct readers *readers = object;
    struct reader *reader = &readers->reader[number];
    struct sim *sim = readers->job->sim;
    char name[24];
    struct psd_error err;

    if (readers->job->master->finished || readers->job->master->killed) {
        return;
    }
    snprintf(name, sizeof(name), "reader%u.%u", reader->number, ++reader->lives);
    reader->node = net_node_create(&readers->job->net, name);
    reader->node->settle = settle;
    reader->node->owner = reader;
    reader->next_ns = 0;
    psi_assert(psi_reader_create(&reader->node->env, "sim://master", &reader->core, &err) ==
               PSD_OK);
    if (rng_chance(&reader->rng, 50)) {
        sim_at(sim, sim->now_ns + rng_between(&reader->rng, 1, 800) * SIM_MS, die, reader,
               reader->lives);
    }
    net_wake_at(reader->node, 0);
}

static void
die(void *object, uint64_t life)
{
    struct reader *reader = object;
    struct sim *sim = reader->readers->job->sim;

    if (reader->node == NULL || reader->lives != life) {
        return;
    }
    sim_trace(sim, reader->node->name, "killed");
    net_node_kill(reader->node);
    leave_process(reader);
    if (reader->lives < 4) {
        sim_at(sim, sim->now_ns + rng_between(&reader->rng, 1, 300) * SIM_MS, start,
               reader->readers, reader->number);
    }
}

struct readers *
readers_create(struct job *job)
{
    const struct plan *plan = &job->plan;
    struct readers *readers;

    if (plan->readers == 0) {
        return NULL;
    }
    readers = calloc(1, sizeof(*readers));
    psi_assert(readers != NULL && plan->readers <= READERS_MAX);
    readers->job = job;
    readers->versions = model_versions_max(plan);
    for (unsigned table = 0; table < plan->table_count; table++) {
        if (plan->table[table].kind == KIND_ROUNDS) {
            readers->told_ns[table] =
                calloc(plan_chunk_count(&plan->table[table]) * readers->versions, sizeof(uint64_t));
            psi_assert(readers->told_ns[table] != NULL);
        }
    }
    for (unsigned number = 0; number < plan->readers; number++) {
        struct reader *reader = &readers->reader[number];

        reader->readers = readers;
        reader->number = number;
        reader->rng.state = sim_mix(plan->seed, 40 + number, 41, 42);
        sim_at(job->sim, rng_below(&reader->rng, 400) * SIM_MS, start, readers, number);
    }
    return readers;
}

void
readers_destroy(struct readers *readers)
{
    if (readers == NULL) {
        return;
    }
    for (unsigned number = 0; number < READERS_MAX; number++) {
        if (readers->reader[number].node != NULL) {
            net_node_kill(readers->reader[number].node);
            leave_process(&readers->reader[number]);
        }
    }
    for (unsigned table = 0; table < TABLES_MAX; table++) {
        free(readers->told_ns[table]);
    }
    free(readers);
}
