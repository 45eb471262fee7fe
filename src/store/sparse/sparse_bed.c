/*
 * sparse_bed.c - what the tests of sparse stores share.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/sparse_bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shard/bucket.h"
#include "table/rule_args.h"

uint64_t
bed_draw(uint64_t *random)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    return psi_bucket_mix(*random);
}

uint64_t
bed_below(uint64_t *random, uint64_t limit)
{
    return bed_draw(random) % limit;
}

float
bed_number(uint64_t *random)
{
    return (float)bed_below(random, 1 << 24) * 0x1p-22f - 2;
}

static int
compare(const void *a, const void *b)
{
    const uint64_t left = psi_bucket_mix(*(const uint64_t *)a);
    const uint64_t right = psi_bucket_mix(*(const uint64_t *)b);

    return (left > right) - (left < right);
}

size_t
bed_sort(uint64_t *ids, size_t count)
{
    size_t kept = 0;

    qsort(ids, count, sizeof(ids[0]), compare);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || ids[i] != ids[kept - 1]) {
            ids[kept++] = ids[i];
        }
    }
    return kept;
}

struct psi_spec
bed_spec(psd_rule rule, uint32_t width)
{
    struct psi_spec spec = {
        .name = "embedding",
        .dtype = PSD_F32,
        .dims = 1,
        .shape = {width},
        .count = width,
        .use = PSD_USE_UPDATE,
        .rule = {.rule = rule},
        .init = PSD_INIT_NORMAL,
        .init_value = 0.1,
        .seed = 42,
    };

    psi_rule_args_fill(&spec.rule);
    return spec;
}

struct sparse *
bed_create(const struct psi_spec *spec, struct psi_row_policy *policy, uint32_t bucket_bits)
{
    struct sparse_layout layout = {.spec = spec,
                                   .policy = policy,
                                   .bucket_bits = bucket_bits,
                                   .bucket_count = 1u << bucket_bits,
                                   .level = psi_kernel_level_best()};
    struct psd_error err = {0};
    struct sparse *store;

    psi_row_policy_fill(policy, bucket_bits);
    if (sparse_create(&layout, &store, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    return store;
}

struct sparse_outcome
bed_apply(struct sparse *store, const uint64_t *ids, const float *gradients, size_t count,
          uint64_t step)
{
    const struct sparse_change change = {.ids = ids,
                                         .gradients = gradients,
                                         .count = count,
                                         .is_sum = true,
                                         .update = step + 1,
                                         .step = step};
    struct sparse_outcome outcome;

    sparse_apply(store, &change, &outcome);
    return outcome;
}

static void
make_room(struct bed_rows *all, size_t room, size_t width, size_t states)
{
    struct sparse_rows *rows = &all->rows;

    all->room = room;
    rows->ids = realloc(rows->ids, room * sizeof(uint64_t));
    rows->values = realloc(rows->values, room * width * sizeof(float));
    rows->state = realloc(rows->state, (room * states + 1) * sizeof(float));
    rows->steps = realloc(rows->steps, room * sizeof(uint32_t));
    rows->counts = realloc(rows->counts, room * sizeof(uint32_t));
    assert_true(rows->ids && rows->values && rows->state && rows->steps && rows->counts);
}

struct bed_rows
bed_save(const struct sparse *store, uint32_t bucket_bits, uint32_t since, size_t batch,
         const struct psi_spec *spec)
{
    const size_t width = spec->count;
    const size_t states = sparse_state_numbers(store);
    struct bed_rows all = {0};

    for (uint32_t bucket = 0; bucket < 1u << bucket_bits; bucket++) {
        uint64_t cursor = 0;
        bool more = true;

        while (more) {
            const size_t have = all.rows.count;
            struct sparse_rows next;

            if (all.room < have + batch) {
                make_room(&all, 2 * have + batch, width, states);
            }
            next = (struct sparse_rows){.count = batch,
                                        .ids = all.rows.ids + have,
                                        .values = all.rows.values + have * width,
                                        .state = all.rows.state + have * states,
                                        .steps = all.rows.steps + have,
                                        .counts = all.rows.counts + have};
            more = sparse_save(store, bucket, since, &cursor, &next);
            all.rows.count += next.count;
        }
    }
    return all;
}

void
bed_free(struct bed_rows *all)
{
    free(all->rows.ids);
    free(all->rows.values);
    free(all->rows.state);
    free(all->rows.steps);
    free(all->rows.counts);
    *all = (struct bed_rows){0};
}
