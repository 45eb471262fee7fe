/*
 * sparse_cold.c - a lane's rows when memory does not hold them all, beside the same rows in memory.
 *
 * In one thread and without a network: two stores hear the same lookups and pushes, and must have the
 * same bits. Time is that on the wall, because reads may wait for a disk; and the ratio in the thread's
 * own processor time says what others on this machine have not taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sparse_cold.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "config/settings.h"
#include "rows.h"
#include "shard/bucket.h"
#include "sparse_ceiling.h"
#include "store/sparse/cold.h"
#include "store/sparse/sparse.h"
#include "table/rule_args.h"

#ifdef PSI_HAVE_LMDB

enum { BATCH = 4096, SETTLED = 3 }; /* times the rows in memory are drawn before the first run */

enum side { IN_MEMORY, COLD, SIDES };

/* Thread: owned by the main thread. */
struct cold_contest {
    size_t hot_rows;
    size_t rows;
    struct psi_spec spec;
    struct psi_row_policy policy[SIDES];
    struct sparse *store[SIDES];
    struct cold_place *place;
    uint64_t ids[BATCH];
    size_t count;
    float gradients[BATCH * SPARSE_WIDTH];
    float values[SIDES][BATCH * SPARSE_WIDTH];
    uint64_t random;
    uint64_t step;
    uint64_t longest_ns; /* of one push to the store that is not all in memory */
};

static int
compare(const void *a, const void *b)
{
    const uint64_t left = psi_bucket_mix(*(const uint64_t *)a);
    const uint64_t right = psi_bucket_mix(*(const uint64_t *)b);

    return (left > right) - (left < right);
}

static void
sort(struct cold_contest *contest, size_t drawn)
{
    qsort(contest->ids, drawn, sizeof(contest->ids[0]), compare);
    contest->count = 0;
    for (size_t i = 0; i < drawn; i++) {
        if (i == 0 || contest->ids[i] != contest->ids[contest->count - 1]) {
            contest->ids[contest->count++] = contest->ids[i];
        }
    }
}

static void
draw(struct cold_contest *contest, bool zipf)
{
    for (size_t i = 0; i < BATCH; i++) {
        contest->random += UINT64_C(0x9e3779b97f4a7c15);
        contest->ids[i] = zipf ? rows_zipf(&contest->random, contest->rows)
                               : psi_bucket_mix(contest->random) % contest->rows;
    }
    sort(contest, BATCH);
}

/* What one call took. */
struct spent {
    uint64_t wall_ns;
    uint64_t cpu_ns;
};

static struct spent
since(struct spent begun)
{
    return (struct spent){.wall_ns = psi_monotonic_ns() - begun.wall_ns,
                          .cpu_ns = psi_thread_cpu_ns() - begun.cpu_ns};
}

static struct spent
push(struct cold_contest *contest, enum side side)
{
    const struct sparse_change change = {.ids = contest->ids,
                                         .gradients = contest->gradients,
                                         .count = contest->count,
                                         .update = contest->step + 1,
                                         .step = contest->step};
    const struct spent begun = since((struct spent){0});
    struct sparse_outcome outcome;

    sparse_apply(contest->store[side], &change, &outcome);
    psi_assert(!outcome.not_finite && outcome.refused == 0);
    return since(begun);
}

static struct spent
look_up(struct cold_contest *contest, enum side side)
{
    const struct spent begun = since((struct spent){0});

    sparse_lookup(contest->store[side], contest->ids, contest->count, contest->values[side]);
    return since(begun);
}

static void
fill(struct cold_contest *contest)
{
    for (size_t first = 0; first < contest->rows; first += BATCH) {
        const size_t count = contest->rows - first < BATCH ? contest->rows - first : BATCH;

        for (size_t i = 0; i < count; i++) {
            contest->ids[i] = first + i;
        }
        sort(contest, count);
        (void)push(contest, IN_MEMORY);
        (void)push(contest, COLD);
        contest->step++;
    }
}

static psd_status
make(struct cold_contest *contest, enum side side, struct psd_error *err)
{
    const struct sparse_layout layout = {.spec = &contest->spec,
                                         .policy = &contest->policy[side],
                                         .bucket_bits = PSI_BUCKET_BITS,
                                         .bucket_count = 1 << PSI_BUCKET_BITS,
                                         .cold = contest->place,
                                         .level = psi_kernel_level_best()};

    psi_row_policy_fill(&contest->policy[side], PSI_BUCKET_BITS);
    return sparse_create(&layout, &contest->store[side], err);
}

static psd_status
contest_create(size_t hot_rows, size_t rows, struct cold_contest **contest_p, struct psd_error *err)
{
    const char *usual = psi_environment("TMPDIR");
    struct cold_contest *contest = calloc(1, sizeof(*contest));
    psd_status status;

    *contest_p = contest;
    if (contest == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "%zu rows: no memory", rows);
    }
    contest->hot_rows = hot_rows;
    contest->rows = rows;
    contest->spec = (struct psi_spec){.name = "bench",
                                      .dims = 1,
                                      .shape = {SPARSE_WIDTH},
                                      .count = SPARSE_WIDTH,
                                      .rule = {.rule = PSD_RULE_ADAGRAD}};
    psi_rule_args_fill(&contest->spec.rule);
    contest->policy[COLD] =
        (struct psi_row_policy){.capacity_rows = hot_rows, .full = PSI_FULL_SPILL};
    contest->place = cold_place_create(usual != NULL ? usual : "/var/tmp");
    status = make(contest, IN_MEMORY, err);
    if (status == PSD_OK) {
        status = make(contest, COLD, err);
    }
    if (status == PSD_OK) {
        for (size_t i = 0; i < (size_t)BATCH * SPARSE_WIDTH; i++) {
            contest->gradients[i] = (float)(i % 1021) * 0x1p-10f - 0.5f;
        }
        fill(contest);
    }
    return status;
}

static void
contest_destroy(struct cold_contest *contest)
{
    for (enum side side = 0; contest != NULL && side < SIDES; side++) {
        if (contest->store[side] != NULL) {
            sparse_destroy(contest->store[side]);
        }
    }
    if (contest != NULL) {
        cold_place_destroy(contest->place);
    }
    free(contest);
}

/* What a run showed. */
struct told {
    uint64_t ids;
    uint64_t lookup_ns[SIDES];
    uint64_t push_ns[SIDES];
    uint64_t cpu_ns[SIDES]; /* of both */
};

static void
count(struct told *told, enum side side, struct spent lookup, struct spent push)
{
    told->lookup_ns[side] += lookup.wall_ns;
    told->push_ns[side] += push.wall_ns;
    told->cpu_ns[side] += lookup.cpu_ns + push.cpu_ns;
}

/* Steps as those of training: the rows of a batch are looked up, then pushed. */
static psd_status
run(struct cold_contest *contest, bool zipf, double seconds, struct told *told,
    struct psd_error *err)
{
    const uint64_t begun = psi_monotonic_ns();

    *told = (struct told){0};
    contest->longest_ns = 0;
    while ((double)(psi_monotonic_ns() - begun) < seconds * 1e9) {
        struct spent took[SIDES];
        struct spent pushed;

        draw(contest, zipf);
        for (enum side side = 0; side < SIDES; side++) {
            took[side] = look_up(contest, side);
        }
        if (memcmp(contest->values[IN_MEMORY], contest->values[COLD],
                   contest->count * SPARSE_WIDTH * sizeof(float)) != 0) {
            return psi_fail(err, PSD_ERR_CORRUPT, "%zu rows: the values differ", contest->rows);
        }
        count(told, IN_MEMORY, took[IN_MEMORY], push(contest, IN_MEMORY));
        pushed = push(contest, COLD);
        count(told, COLD, took[COLD], pushed);
        contest->longest_ns =
            pushed.wall_ns > contest->longest_ns ? pushed.wall_ns : contest->longest_ns;
        contest->step++;
        told->ids += contest->count;
    }
    return PSD_OK;
}

static void
print(const struct cold_contest *contest, unsigned times, bool zipf, const struct told *told,
      uint64_t reads, FILE *lines)
{
    const double ids = (double)told->ids * 1e3; /* per second, in millions */
    const uint64_t both[SIDES] = {told->lookup_ns[0] + told->push_ns[0],
                                  told->lookup_ns[1] + told->push_ns[1]};
    const double ratio = (double)both[IN_MEMORY] / (double)both[COLD];
    const double of_cpu = (double)told->cpu_ns[IN_MEMORY] / (double)told->cpu_ns[COLD];

    printf("| %ux, %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f %% | %.1f ms |\n", times,
           zipf ? "zipf" : "uniform", ids / (double)told->lookup_ns[IN_MEMORY],
           ids / (double)told->lookup_ns[COLD], ids / (double)told->push_ns[IN_MEMORY],
           ids / (double)told->push_ns[COLD], ratio, of_cpu,
           100 * (double)reads / 2 / (double)told->ids, (double)contest->longest_ns * 1e-6);
    fflush(stdout);
    if (lines != NULL) {
        fprintf(lines,
                "{\"name\": \"sparse store: larger than memory, %ux, %s\", \"rows\": %zu, "
                "\"value\": %.6g, \"unit\": \"M ids/s\", \"reference\": %.6g, \"reference_name\": "
                "\"all in memory\", \"ratio\": %.4f, \"cpu_ratio\": %.4f%s}\n",
                times, zipf ? "zipf" : "uniform", contest->rows, ids / (double)both[COLD],
                ids / (double)both[IN_MEMORY], ratio, of_cpu,
                times == 4 && zipf ? ", \"goal\": 0.3" : "");
    }
}

/* Memory gets the rows that it wants. */
static void
settle(struct cold_contest *contest, bool zipf)
{
    for (size_t i = 0; i < SETTLED * contest->hot_rows / BATCH; i++) {
        draw(contest, zipf);
        (void)push(contest, IN_MEMORY);
        (void)push(contest, COLD);
        contest->step++;
    }
}

static psd_status
measure(size_t hot_rows, unsigned times, double seconds, FILE *lines, struct psd_error *err)
{
    struct cold_contest *contest;
    struct sparse_memory memory;
    struct told told;
    psd_status status = contest_create(hot_rows, hot_rows * times, &contest, err);

    for (int zipf = 1; zipf >= 0 && status == PSD_OK; zipf--) {
        uint64_t reads;

        settle(contest, zipf != 0);
        sparse_memory(contest->store[COLD], &memory);
        reads = memory.cold_reads;
        if (status == PSD_OK) {
            status = run(contest, zipf != 0, seconds, &told, err);
        }
        sparse_memory(contest->store[COLD], &memory);
        if (status == PSD_OK) {
            print(contest, times, zipf != 0, &told, memory.cold_reads - reads, lines);
        }
    }
    contest_destroy(contest);
    return status;
}

psd_status
sparse_cold_run(size_t hot_rows, double seconds, FILE *lines, struct psd_error *err)
{
    static const unsigned times[] = {1, 4, 10};
    psd_status status = PSD_OK;

    printf(
        "\nLarger than memory: memory holds %zu rows, and there are as many, 4 and 10 times as "
        "many. Lookup and push of batches of\n%d ids that are drawn anew, million ids per second "
        "on the wall, beside the same rows all in memory (goal of 4x, zipf: 0.3).\n"
        "Cold: of the ids of a batch. Longest: one push.\n\n",
        hot_rows, BATCH);
    printf("| rows, ids | lookup, in memory | larger | push, in memory | larger | ratio of both | "
           "processor | cold "
           "| longest |\n|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]) && status == PSD_OK; i++) {
        status = measure(hot_rows, times[i], seconds, lines, err);
    }
    return status;
}

#else

psd_status
sparse_cold_run(size_t hot_rows, double seconds, FILE *lines, struct psd_error *err)
{
    (void)hot_rows;
    (void)seconds;
    (void)lines;
    (void)err;
    printf("\nLarger than memory: not measured, this was built without LMDB.\n");
    return PSD_OK;
}

#endif
