/*
 * sparse_growth.c - a lane's rows grow from none to very many: the longest stop, and the memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sparse_growth.h"

#include <stdlib.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "base/resident.h"
#include "shard/bucket.h"
#include "sparse_ceiling.h"
#include "store/sparse/ahead.h"
#include "store/sparse/sparse.h"
#include "table/rule_args.h"

enum { BATCH = 4096, PLAIN_ROWS = 1 << 17 };

/* What the growth showed. */
struct growth {
    double seconds;
    uint64_t longest_ns;     /* of one push, on the wall */
    uint64_t longest_cpu_ns; /* in processor time */
    uint64_t plain_ns;       /* of one push to plain rows that are all there, on the wall */
    struct sparse_memory memory;
    uint64_t resident;
};

static int
compare(const void *a, const void *b)
{
    const uint64_t left = psi_bucket_mix(*(const uint64_t *)a);
    const uint64_t right = psi_bucket_mix(*(const uint64_t *)b);

    return (left > right) - (left < right);
}

static void
push(struct sparse *store, const uint64_t *ids, uint64_t step, const float *gradients,
     struct growth *growth)
{
    const struct sparse_change change = {
        .ids = ids, .gradients = gradients, .count = BATCH, .update = step + 1, .step = step};
    const uint64_t begun = psi_monotonic_ns();
    const uint64_t begun_cpu = psi_thread_cpu_ns();
    struct sparse_outcome outcome;
    uint64_t took;

    sparse_apply(store, &change, &outcome);
    psi_assert(outcome.created == BATCH);
    took = psi_thread_cpu_ns() - begun_cpu;
    growth->longest_cpu_ns = took > growth->longest_cpu_ns ? took : growth->longest_cpu_ns;
    took = psi_monotonic_ns() - begun;
    growth->longest_ns = took > growth->longest_ns ? took : growth->longest_ns;
}

/* As much work, and nothing grows: what takes long here, others on this machine have taken. */
static void
push_plain(struct plain_rows *plain, uint64_t step, const float *gradients, struct growth *growth)
{
    uint64_t ids[BATCH];
    uint64_t begun;
    uint64_t took;

    for (uint64_t i = 0; i < BATCH; i++) {
        ids[i] = psi_bucket_mix(step * BATCH + i) % PLAIN_ROWS;
    }
    begun = psi_monotonic_ns();
    plain_rows_push(plain, ids, BATCH, gradients, 1, 1);
    took = psi_monotonic_ns() - begun;
    growth->plain_ns = took > growth->plain_ns ? took : growth->plain_ns;
}

/* ahead: NULL: the lane touches its memory itself. */
static void
grow(struct sparse *store, struct ahead *ahead, struct plain_rows *plain, size_t rows,
     struct growth *growth)
{
    static float gradients[BATCH * SPARSE_WIDTH];
    const uint64_t begun = psi_monotonic_ns();
    struct psi_resident resident;
    uint64_t before;
    uint64_t shared;

    psi_resident_init(&resident);
    before = psi_resident_read(&resident, &shared);
    for (uint64_t step = 0; step < rows / BATCH; step++) {
        uint64_t ids[BATCH];

        for (uint64_t i = 0; i < BATCH; i++) {
            ids[i] = step * BATCH + i;
        }
        qsort(ids, BATCH, sizeof(ids[0]), compare);
        push(store, ids, step, gradients, growth);
        if (ahead != NULL) {
            ahead_note(ahead);
        }
        push_plain(plain, step, gradients, growth);
    }
    growth->seconds = (double)(psi_monotonic_ns() - begun) * 1e-9;
    growth->resident = psi_resident_read(&resident, &shared) - before;
    psi_resident_fini(&resident);
    sparse_memory(store, &growth->memory);
}

static void
print_growth(const struct growth *growth, bool ahead, FILE *lines)
{
    const double each = (double)growth->resident / (double)growth->memory.rows;

    printf("| %s | %llu | %.0f s | %.2f ms | %.2f ms | %.2f ms | %.2f ms | %.1f | %.1f |\n",
           ahead ? "touched ahead" : "touched by the lane", (unsigned long long)growth->memory.rows,
           growth->seconds, (double)growth->memory.longest_growth_ns * 1e-6,
           (double)growth->longest_cpu_ns * 1e-6, (double)growth->longest_ns * 1e-6,
           (double)growth->plain_ns * 1e-6, each,
           (double)growth->memory.total_bytes / (double)growth->memory.rows);
    fflush(stdout);
    if (lines != NULL) {
        fprintf(lines,
                "{\"name\": \"sparse store: growth%s\", \"rows\": %llu, \"value\": %.6g, "
                "\"unit\": \"ms\", \"goal_ms\": 10, \"push_cpu_ms\": %.6g, \"push_ms\": %.6g, "
                "\"plain_push_ms\": %.6g, \"resident_bytes_per_row\": %.2f}\n",
                ahead ? ", touched ahead" : "", (unsigned long long)growth->memory.rows,
                (double)growth->memory.longest_growth_ns * 1e-6,
                (double)growth->longest_cpu_ns * 1e-6, (double)growth->longest_ns * 1e-6,
                (double)growth->plain_ns * 1e-6, each);
    }
}

static psd_status
measure(size_t rows, bool ahead, FILE *lines, struct psd_error *err)
{
    struct psi_spec spec = {.name = "bench",
                            .dims = 1,
                            .shape = {SPARSE_WIDTH},
                            .count = SPARSE_WIDTH,
                            .rule = {.rule = PSD_RULE_ADAGRAD}};
    struct psi_row_policy policy = {0};
    const struct sparse_layout layout = {.spec = &spec,
                                         .policy = &policy,
                                         .bucket_bits = PSI_BUCKET_BITS,
                                         .bucket_count = 1 << PSI_BUCKET_BITS,
                                         .level = psi_kernel_level_best()};
    struct growth growth = {0};
    struct plain_rows plain;
    struct ahead *toucher = NULL;
    struct sparse *store;
    psd_status status;

    psi_rule_args_fill(&spec.rule);
    psi_row_policy_fill(&policy, PSI_BUCKET_BITS);
    status = sparse_create(&layout, &store, err);
    if (status != PSD_OK) {
        return status;
    }
    if (!plain_rows_init(&plain, PLAIN_ROWS) ||
        (ahead && (toucher = ahead_create(store)) == NULL)) {
        plain_rows_fini(&plain);
        sparse_destroy(store);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "growth: no memory");
    }
    grow(store, toucher, &plain, rows, &growth);
    ahead_destroy(toucher);
    print_growth(&growth, ahead, lines);
    plain_rows_fini(&plain);
    sparse_destroy(store);
    return PSD_OK;
}
psd_status
sparse_growth_run(size_t rows, FILE *lines, struct psd_error *err)
{
    psd_status status;

    printf(
        "\nGrowth from nothing, pushes of %d new ids. The longest time that one push took: for "
        "growth, the lane's processor time\n(goal: 10 ms); as a whole, processor time and on "
        "the wall; and on the wall as many ids of plain rows that are all\nthere. Bytes of memory "
        "per row, resident (goal: 160) and told.\n\n",
        BATCH);
    printf("| | rows | took | growth | push, CPU | push, wall | plain, wall | resident | told |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    status = measure(rows, false, lines, err);
    return status == PSD_OK ? measure(rows, true, lines, err) : status;
}
