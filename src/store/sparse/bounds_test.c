/*
 * bounds_test.c - how many rows a table keeps, and what it takes of the machine before it has any.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shard/bucket.h"
#include "store/sparse/sparse_bed.h"
#include "store/sparse/state.h"

enum { BITS = 10, BATCH = 500, WIDTH = 2 };

static uint64_t
rows_of(const struct sparse *store)
{
    struct sparse_memory memory;

    sparse_memory(store, &memory);
    return memory.rows;
}

/* What one of so many lanes has of a table. */
static struct sparse *
create_place(const struct psi_spec *spec, const struct psi_row_policy *policy, uint32_t place,
             uint32_t places, uint64_t memory_max)
{
    const uint32_t first = psi_bucket_first(place, BITS, places);
    const struct sparse_layout layout = {
        .spec = spec,
        .policy = policy,
        .bucket_bits = BITS,
        .first_bucket = first,
        .bucket_count = psi_bucket_first(place + 1, BITS, places) - first,
        .memory_max = memory_max,
        .level = psi_kernel_level_best(),
    };
    struct psd_error err = {0};
    struct sparse *store;

    if (sparse_create(&layout, &store, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    return store;
}

/* Ids that no call before had, of one place, sorted. */
static size_t
draw_ids(uint64_t *next_p, uint32_t place, uint32_t places, uint64_t *ids)
{
    size_t count = 0;

    for (int i = 0; i < BATCH; i++) {
        const uint64_t id = (*next_p)++;

        if (psi_bucket_place(psi_bucket_of(id, BITS), BITS, places) == place) {
            ids[count++] = id;
        }
    }
    return bed_sort(ids, count);
}

/* Pushes new ids until one is refused. Returns the rows that are there then. */
static uint64_t
fill(struct sparse *store, uint32_t place, uint32_t places)
{
    static const float gradients[BATCH * WIDTH] = {0};
    struct sparse_outcome outcome = {0};
    uint64_t next = 0;

    for (uint64_t step = 0; outcome.refused == 0; step++) {
        uint64_t ids[BATCH];
        const size_t count = draw_ids(&next, place, places, ids);

        assert_true(step < 10000);
        outcome = bed_apply(store, ids, gradients, count, step);
    }
    return rows_of(store);
}

/* If this fails, a job ends long before its table has capacity_rows, or the table has more. */
static void
test_a_table_keeps_its_capacity(void **state)
{
    static const uint64_t capacities[] = {1, 100, 1000, 10000, 100001};
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);

    (void)state;
    for (size_t i = 0; i < sizeof(capacities) / sizeof(capacities[0]); i++) {
        for (uint32_t places = 1; places <= 3; places++) {
            const struct psi_row_policy policy = {.admit_after = 1, .capacity_rows = capacities[i]};
            uint64_t rows = 0;

            for (uint32_t place = 0; place < places; place++) {
                struct sparse *store = create_place(&spec, &policy, place, places, 0);
                const uint64_t has = fill(store, place, places);

                assert_in_range(has, capacities[i] / places - capacities[i] / 512,
                                capacities[i] / places + capacities[i] / 512 + 1);
                rows += has;
                sparse_destroy(store);
            }
            assert_int_equal(rows, capacities[i]);
        }
    }
}

/* If this fails, buckets together have more rows than the table may, or rows that nobody may have. */
static void
test_shares_add_up(void **state)
{
    static const uint64_t capacities[] = {1, 1023, 1025, 1000003, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(capacities) / sizeof(capacities[0]); i++) {
        const struct psi_row_policy policy = {.capacity_rows = capacities[i]};
        uint64_t sum = 0;

        for (uint32_t bucket = 0; bucket < 1u << BITS; bucket++) {
            const uint64_t share = psi_row_policy_share(&policy, BITS, bucket, 1);

            assert_in_range(share, capacities[i] >> BITS, (capacities[i] >> BITS) + 1);
            sum += share;
            assert_int_equal(psi_row_policy_share(&policy, BITS, 0, bucket + 1), sum);
        }
        assert_int_equal(sum, capacities[i]);
    }
}

/* If this fails, a step that brings a bucket more rows than its share ends a job whose table has
 * room, or the bucket keeps them for ever. */
static void
test_a_bucket_may_have_more_for_a_while(void **state)
{
    enum { CAPACITY = 4 << BITS, MANY = 20 };
    static const float gradients[MANY * WIDTH] = {0};
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);
    const struct psi_row_policy policy = {
        .admit_after = 1, .capacity_rows = CAPACITY, .full = PSI_FULL_OLDEST};
    struct sparse *store = create_place(&spec, &policy, 0, 1, 0);
    struct sparse_outcome outcome;
    uint64_t ids[MANY + 1];
    size_t count = 0;

    (void)state;
    for (uint64_t id = 0; count <= MANY; id++) {
        if (psi_bucket_of(id, BITS) == 7) {
            ids[count++] = id;
        }
    }
    bed_sort(ids, MANY + 1);
    outcome = bed_apply(store, ids, gradients, MANY, 1);
    assert_int_equal(outcome.refused, 0);
    assert_int_equal(outcome.evicted, 0);
    assert_int_equal(sparse_bucket_info(store, 7).rows, MANY);
    outcome = bed_apply(store, ids + MANY, gradients, 1, 2);
    assert_int_equal(outcome.refused, 0);
    assert_int_equal(sparse_bucket_info(store, 7).rows, 4);
    sparse_destroy(store);
}

/* May anybody write where that is? */
static bool
is_writable(const void *address)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    bool writable = false;
    char line[512];

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        unsigned long first;
        unsigned long end;
        char rights[8];

        if (sscanf(line, "%lx-%lx %7s", &first, &end, rights) == 3 && (uintptr_t)address >= first &&
            (uintptr_t)address < end) {
            writable = strchr(rights, 'w') != NULL;
        }
    }
    fclose(maps);
    return writable;
}

/* If this fails, a small table takes as many addresses as the machine has memory, and a few of them
 * all that a limit leaves; or the system counts rows that never come as memory in use. */
static void
test_addresses_are_bounded(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);
    const struct psi_row_policy few = {.admit_after = 1, .capacity_rows = 1000};
    const struct psi_row_policy any = {.admit_after = 1};
    struct sparse *by_rows = create_place(&spec, &few, 0, 1, 0);
    struct sparse *by_bytes = create_place(&spec, &any, 0, 1, 64 << 20);
    const char *end = by_bytes->pool.slabs.base + by_bytes->pool.slabs.reserved;
    static const float gradient[WIDTH];
    const uint64_t id = 1;

    (void)state;
    assert_in_range(by_rows->pool.slabs.reserved, 1, 1000 * by_rows->pool.row_bytes + SLAB_BYTES);
    assert_in_range(by_bytes->pool.slabs.reserved, 64 << 20, (64 << 20) + SLAB_BYTES);
    assert_int_equal(bed_apply(by_bytes, &id, gradient, 1, 0).created, 1);
    assert_true(is_writable(by_bytes->pool.slabs.base));
    assert_false(is_writable(end - 1));
    assert_true(sparse_touch_ahead(by_bytes, 4 << 20) > 0);
    assert_true(is_writable(by_bytes->pool.slabs.base + (4 << 20) - 1));
    assert_false(is_writable(end - 1));
    sparse_destroy(by_rows);
    sparse_destroy(by_bytes);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_table_keeps_its_capacity),
        cmocka_unit_test(test_shares_add_up),
        cmocka_unit_test(test_a_bucket_may_have_more_for_a_while),
        cmocka_unit_test(test_addresses_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
