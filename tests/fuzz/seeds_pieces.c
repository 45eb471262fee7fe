/*
 * seeds_pieces.c - the first inputs of the target `pieces`: pieces of small tables.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pieces_table.h"
#include "seeds.h"
#include "shard/bucket.h"
#include "store/sum.h"

enum { ROWS = 3, STEPS = 3, PIECE_BYTES = 8192 };

/* Ids of the place, in order. */
static void
find_ids(const struct psi_spec *spec, uint64_t *ids)
{
    uint32_t count = 0;

    for (uint64_t id = 0; count < ROWS; id++) {
        const uint32_t bucket = psi_bucket_of(id, spec->bucket_bits);
        uint32_t at = count;

        if (psi_bucket_place(bucket, spec->bucket_bits, PIECES_PLACES) != PIECES_PLACE) {
            continue;
        }
        for (; at > 0 && psi_bucket_before(id, ids[at - 1]); at--) {
            ids[at] = ids[at - 1];
        }
        ids[at] = id;
        count++;
    }
}

static void
train(struct store *store, const struct psi_spec *spec)
{
    static const uint32_t gradients[ROWS * 2] = {0};
    uint64_t ids[ROWS];
    const struct store_rows rows = {.ids = ids, .rows = gradients, .count = ROWS};
    const struct leaf leaf = {.data = &rows};

    find_ids(spec, ids);
    for (uint32_t step = 0; step < STEPS; step++) {
        struct store_trouble trouble;
        const struct store_change change = {.leaves = &leaf,
                                            .leaf_count = 1,
                                            .update = step + 1,
                                            .step = step,
                                            .from = step % 2,
                                            .to = 1 - step % 2,
                                            .trouble = &trouble};

        psi_assert(store->ops->apply(store, 0, &change) == STORE_OK);
    }
}

/* In pieces of that room. */
static void
write_table(const char *directory, unsigned which, size_t room, const char *const *names)
{
    struct psi_spec spec;
    struct store *store = pieces_table(&spec, which);
    struct store_walk walk = {0};

    train(store, &spec);
    for (unsigned i = 0; !walk.is_done; i++) {
        static _Alignas(8) uint8_t bytes[8 + PIECE_BYTES];

        bytes[7] = (uint8_t)which;
        write_seed(directory, "pieces", names[i], bytes + 7,
                   1 + store->ops->piece(store, &walk, bytes + 8, room));
    }
    store->ops->destroy(store);
}

void
write_pieces_seeds(const char *directory)
{
    static const char *const f32[] = {"f32"};
    static const char *const f16[] = {"f16"};
    static const char *const sum[] = {"sum"};
    static const char *const parts[] = {"part0", "part1", "part2", "part3", "part4", "part5"};

    write_table(directory, 0, PIECE_BYTES, f32);
    write_table(directory, 1, PIECE_BYTES, f16);
    write_table(directory, PIECES_SUM, PIECE_BYTES, sum);
    write_table(directory, 0, 160, parts);
}
