/*
 * sparse_store.c - how fast a lane's rows are found and changed, beside a plain hash table.
 *
 * In one thread and without a network: a store and a plain hash table with the same rows take turns, on the
 * same batches of ids. Time is the thread's own processor time, because other programs may run. In
 * the end both must have the same bits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sparse_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "shard/bucket.h"
#include "sparse_ceiling.h"
#include "sparse_cold.h"
#include "sparse_growth.h"
#include "sparse_jobs.h"
#include "store/sparse/sparse.h"
#include "table/rule_args.h"
#include "timer.h"

enum { BATCH = 4096, BATCHES = 1024 };

#define RATE    0x1p-6
#define EPSILON 0x1p-20

/* Thread: owned by the main thread. */
struct contest {
    size_t rows;
    struct psi_spec spec;
    struct psi_row_policy policy;
    struct sparse *store;
    struct plain_rows plain;
    uint64_t (*ids)[BATCH]; /* of each batch: sorted, unique */
    float *gradients;       /* of one batch */
    float *values[2];       /* that were looked up: in the hash table, in the store */
    uint64_t update;
};

enum contestant { PLAIN, STORE, CONTESTANTS };

/* ---- Rows ---- */

static int
compare(const void *a, const void *b)
{
    const uint64_t left = psi_bucket_mix(*(const uint64_t *)a);
    const uint64_t right = psi_bucket_mix(*(const uint64_t *)b);

    return (left > right) - (left < right);
}

/* Each of the batches has ids of its own part of the rows by chance: each once. */
static void
draw_ids(struct contest *contest)
{
    const size_t stretch = contest->rows / BATCH;
    uint64_t random = 1;

    for (int batch = 0; batch < BATCHES; batch++) {
        for (size_t i = 0; i < BATCH; i++) {
            random += UINT64_C(0x9e3779b97f4a7c15);
            contest->ids[batch][i] = i * stretch + psi_bucket_mix(random) % stretch;
        }
        qsort(contest->ids[batch], BATCH, sizeof(uint64_t), compare);
    }
}

static void
push_store(struct contest *contest, const uint64_t *ids, size_t count)
{
    const struct sparse_change change = {.ids = ids,
                                         .gradients = contest->gradients,
                                         .count = count,
                                         .update = ++contest->update,
                                         .step = contest->update};
    struct sparse_outcome outcome;

    sparse_apply(contest->store, &change, &outcome);
    psi_assert(!outcome.not_finite && outcome.refused == 0);
}

/* All rows come to be with a gradient of their own. */
static void
fill(struct contest *contest)
{
    uint64_t ids[BATCH];

    for (size_t first = 0; first < contest->rows; first += BATCH) {
        const size_t count = contest->rows - first < BATCH ? contest->rows - first : BATCH;

        for (size_t i = 0; i < count; i++) {
            ids[i] = first + i;
        }
        qsort(ids, count, sizeof(uint64_t), compare);
        push_store(contest, ids, count);
        plain_rows_push(&contest->plain, ids, count, contest->gradients, (float)RATE,
                        (float)EPSILON);
    }
}

static psd_status
contest_create(struct contest *contest, size_t rows, struct psd_error *err)
{
    const struct sparse_layout layout = {.spec = &contest->spec,
                                         .policy = &contest->policy,
                                         .bucket_bits = PSI_BUCKET_BITS,
                                         .bucket_count = 1 << PSI_BUCKET_BITS,
                                         .level = psi_kernel_level_best()};
    psd_status status;

    *contest = (struct contest){
        .rows = rows,
        .spec = {.name = "bench",
                 .dtype = PSD_F32,
                 .dims = 1,
                 .shape = {SPARSE_WIDTH},
                 .count = SPARSE_WIDTH,
                 .use = PSD_USE_UPDATE,
                 .rule = {.rule = PSD_RULE_ADAGRAD, .learning_rate = RATE, .epsilon = EPSILON}},
    };
    psi_row_policy_fill(&contest->policy, PSI_BUCKET_BITS);
    status = sparse_create(&layout, &contest->store, err);
    if (status != PSD_OK) {
        return status;
    }
    contest->ids = malloc(sizeof(uint64_t[BATCHES][BATCH]));
    contest->gradients = malloc(sizeof(float[BATCH][SPARSE_WIDTH]));
    contest->values[PLAIN] = malloc(sizeof(float[BATCH][SPARSE_WIDTH]));
    contest->values[STORE] = malloc(sizeof(float[BATCH][SPARSE_WIDTH]));
    if (!plain_rows_init(&contest->plain, rows) || contest->ids == NULL ||
        contest->gradients == NULL || contest->values[PLAIN] == NULL ||
        contest->values[STORE] == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "%zu rows: no memory", rows);
    }
    for (size_t i = 0; i < (size_t)BATCH * SPARSE_WIDTH; i++) {
        contest->gradients[i] = (float)(i % 1021) * 0x1p-10f - 0.5f;
    }
    draw_ids(contest);
    fill(contest);
    return PSD_OK;
}

static void
contest_destroy(struct contest *contest)
{
    if (contest->store != NULL) {
        sparse_destroy(contest->store);
    }
    plain_rows_fini(&contest->plain);
    free(contest->ids);
    free(contest->gradients);
    free(contest->values[PLAIN]);
    free(contest->values[STORE]);
}

/* ---- Turns ---- */

typedef void (*work_fn)(struct contest *contest, enum contestant who, int batch);

static void
lookup(struct contest *contest, enum contestant who, int batch)
{
    if (who == STORE) {
        sparse_lookup(contest->store, contest->ids[batch], BATCH, contest->values[STORE]);
    } else {
        plain_rows_gather(&contest->plain, contest->ids[batch], BATCH, contest->values[PLAIN]);
    }
}

static void
push(struct contest *contest, enum contestant who, int batch)
{
    if (who == STORE) {
        push_store(contest, contest->ids[batch], BATCH);
    } else {
        plain_rows_push(&contest->plain, contest->ids[batch], BATCH, contest->gradients,
                        (float)RATE, (float)EPSILON);
    }
}

/* Nanoseconds for an id, over so many batches from `batch` on. */
static double
turn(struct contest *contest, work_fn work, enum contestant who, int batch, int batches)
{
    const uint64_t begun = psi_thread_cpu_ns();

    for (int i = 0; i < batches; i++) {
        work(contest, who, (batch + i) % BATCHES);
    }
    return (double)(psi_thread_cpu_ns() - begun) / batches / BATCH;
}

/* What is measured, and what is to be reached. */
struct event {
    const char *name;
    work_fn work;
    double goal;
};

static psd_status
same_values(struct contest *contest, const struct event *event, struct psd_error *err)
{
    for (int batch = 0; batch < BATCHES; batch++) {
        lookup(contest, PLAIN, batch);
        lookup(contest, STORE, batch);
        if (memcmp(contest->values[PLAIN], contest->values[STORE],
                   sizeof(float[BATCH][SPARSE_WIDTH])) != 0) {
            return psi_fail(err, PSD_ERR_CORRUPT, "%s, %zu rows: the values differ", event->name,
                            contest->rows);
        }
    }
    return PSD_OK;
}

static psd_status
measure(struct contest *contest, const struct event *event, const struct bench_options *options,
        FILE *lines, struct psd_error *err)
{
    double times[CONTESTANTS][RESULT_REPEAT_MAX];
    double ratios[RESULT_REPEAT_MAX];
    const double warm = turn(contest, event->work, STORE, 0, BATCHES) * BATCH;
    const int batches = options->seconds * 1e9 > warm ? (int)(options->seconds * 1e9 / warm) : 1;
    double plain;
    double store;
    double ratio;

    turn(contest, event->work, PLAIN, 0, BATCHES);
    for (uint32_t i = 0; i < options->repeat; i++) {
        for (enum contestant who = PLAIN; who < CONTESTANTS; who++) {
            times[who][i] = turn(contest, event->work, who, (int)i * 7, batches);
        }
        ratios[i] = times[PLAIN][i] / times[STORE][i];
    }
    plain = timer_median(times[PLAIN], options->repeat);
    store = timer_median(times[STORE], options->repeat);
    ratio = timer_median(ratios, options->repeat);
    printf("| %s | %zu | %.1f | %.1f | %.2f (%.2f to %.2f) | %.1f |\n", event->name, contest->rows,
           1e3 / store, 1e3 / plain, ratio, ratios[0], ratios[options->repeat - 1], event->goal);
    fflush(stdout); /* the rest takes a while */
    if (lines != NULL) {
        fprintf(lines,
                "{\"name\": \"sparse store: %s\", \"rows\": %zu, \"value\": %.6g, \"unit\": \"M "
                "ids/s\","
                " \"reference\": %.6g, \"reference_name\": \"plain hash table\", \"ratio\": %.4f, "
                "\"goal\": %.2f, \"repeat\": %u}\n",
                event->name, contest->rows, 1e3 / store, 1e3 / plain, ratio, event->goal,
                options->repeat);
    }
    return same_values(contest, event, err);
}

/* ---- All of it ---- */

static psd_status
measure_rows(size_t rows, const struct bench_options *options, FILE *lines, struct psd_error *err)
{
    static const struct event events[] = {
        {"lookup", lookup, 0.6},
        {"push, adagrad", push, 0.5},
    };
    struct contest contest;
    struct sparse_memory memory;
    psd_status status = contest_create(&contest, rows, err);

    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]) && status == PSD_OK; i++) {
        status = measure(&contest, &events[i], options, lines, err);
    }
    if (status == PSD_OK) {
        sparse_memory(contest.store, &memory);
        printf("| bytes per row | %zu | %.1f | %zu | | |\n", rows,
               (double)memory.total_bytes / (double)rows, sizeof(struct plain_row));
    }
    contest_destroy(&contest);
    return status;
}

psd_status
sparse_store_run(const struct bench_options *options, FILE *lines, struct psd_error *err)
{
    static const size_t sizes[] = {1000000, 10000000};
    struct timer_load load;
    psd_status status = PSD_OK;

    timer_load_begin(&load);
    printf("\nSparse tables: the rows of one lane, %d f32 with adagrad, batches of %d ids, one "
           "thread, beside a plain C hash\ntable with the same rows; million ids per second of the "
           "thread's processor time.\n\n",
           SPARSE_WIDTH, BATCH);
    printf("| work | rows | store | hash table | ratio | goal |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < 2 && status == PSD_OK; i++) {
        status = options->quick && i > 0
                     ? PSD_OK
                     : measure_rows(options->quick ? 100000 : sizes[i], options, lines, err);
    }
    if (status == PSD_OK) {
        status = sparse_jobs_run(options, lines, err);
    }
    if (status == PSD_OK) {
        status = sparse_cold_run(options->quick   ? 20000
                                 : options->large ? 2000000
                                                  : 500000,
                                 options->seconds, lines, err);
    }
    if (status == PSD_OK && options->large) {
        status = sparse_growth_run(50000000, lines, err);
    }
    if (status == PSD_OK) {
        printf("\nOther programs kept %.2f cores busy.\n", timer_load_foreign(&load));
    }
    return status;
}
