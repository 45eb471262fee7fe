/*
 * view_test.c - tables that are larger than what is under way at once, through views and from
 * psd_alloc memory: what is copied, what is read in place, and nobody waits for ever.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "bed.h"

enum { STEPS = 4, CHUNKS = 80, OP_MS = 20000 };

struct kind {
    const char *name;
    uint32_t staleness;
    uint32_t backup_workers;
    size_t offset; /* of the gradient, in bytes */
};

static const struct kind kinds[] = {
    {"synchronous", 0, 0, 0},
    {"stale", 1, 0, 0},
    {"asynchronous", PSD_STALENESS_UNBOUNDED, 0, 0},
    {"backup", 0, 1, 0},
    {"unaligned", 0, 0, 1},
};

/* The server's pages come into the view with the first values, and stay. */
static void
check_changes(struct worker *worker, const psd_table *table, uint64_t *changes_p)
{
    const char *transport = getenv("PSD_TRANSPORT");
    const bool in_place = transport == NULL || strcmp(transport, "tcp") != 0;
    const uint64_t changes = psd_view_changes(table);

    CHECK(worker, (changes > 0) == in_place && psd_view_changes(NULL) == 0);
    CHECK(worker, *changes_p == 0 || *changes_p == changes);
    *changes_p = changes;
}

/* Every element of a gradient is 1, the rate 0.01: after so many updates the values are known. */
static void
train(struct worker *worker, const struct kind *kind)
{
    const size_t count = (size_t)CHUNKS * PSD_CHUNK_ELEMENTS - 5;
    const float one = 1;
    const void *shown;
    uint64_t changes = 0;
    psd_table *table;
    void *memory;
    char *gradient;

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE(kind->name, PSD_F32, count, .staleness = kind->staleness,
                                          .backup_workers = kind->backup_workers),
                                    &table));
    CHECK_OK(worker, psd_alloc(worker->context, count * sizeof(float) + kind->offset, &memory));
    CHECK_OK(worker, psd_view(table, &shown));
    gradient = (char *)memory + kind->offset;
    for (size_t i = 0; i < count; i++) {
        memcpy(gradient + i * sizeof(one), &one, sizeof(one));
    }
    for (unsigned i = 0; i < STEPS; i++) {
        const uint64_t step = psd_table_step(table);
        psd_op *op;
        psd_status status;

        CHECK_OK(worker, psd_push_pull(table,
                                       TRANSFER(step, .gradient = gradient, .timeout_ms = OP_MS,
                                                .flags = PSD_TRANSFER_VIEW),
                                       &op));
        status = psd_wait(op, PSD_FOREVER);
        psd_op_release(op);
        if (status == PSD_ERR_DROPPED) {
            continue; /* backup workers: the others were first */
        }
        CHECK_OK(worker, status);
        for (size_t at = 0; at < count; at += PSD_CHUNK_ELEMENTS / 2 + 1) {
            CHECK(worker, ((const float *)shown)[at] < 0);
        }
        if (kind->staleness == 0 && kind->backup_workers == 0) {
            CHECK(worker, ((const float *)shown)[0] == ((const float *)shown)[count - 1]);
            check_changes(worker, table, &changes);
        } else {
            CHECK(worker, psd_view_changes(table) == 0); /* values are copied */
        }
    }
}

static void
train_all(struct worker *worker)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].backup_workers == 0 || psd_size(worker->context) > 1) {
            train(worker, &kinds[i]);
        }
    }
}

static void
run(uint32_t workers, uint32_t lanes)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = workers, .lanes = lanes});

    bed_start_workers(bed, train_all, NULL);
    bed_join_workers(bed);
    bed_stop(bed);
}

/* If this fails, a worker that waits patiently for answers waits for ever. */
static void
test_one_lane(void **state)
{
    (void)state;
    run(1, 1);
}

/* If this fails, ... also with others. */
static void
test_two_workers(void **state)
{
    (void)state;
    run(2, 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_lane),
        cmocka_unit_test(test_two_workers),
    };

    bed_begin();
    return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
