/*
 * ids.c - is a list of ids what it should be?
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "shard/bucket.h"
#include "store/sparse/sparse.h"

enum sparse_ids
sparse_check_ids(const uint64_t *ids, size_t count, uint32_t bucket_bits, uint32_t first,
                 uint32_t buckets, size_t *at_p)
{
    uint64_t before = 0;

    for (size_t i = 0; i < count; i++) {
        const uint64_t key = psi_bucket_mix(ids[i]);
        const uint32_t bucket = (uint32_t)(key >> (64 - bucket_bits));

        *at_p = i;
        if (i > 0 && key <= before) {
            return key == before ? SPARSE_IDS_REPEATED : SPARSE_IDS_UNSORTED;
        }
        if (bucket - first >= buckets) {
            return SPARSE_IDS_FOREIGN;
        }
        before = key;
    }
    return SPARSE_IDS_GOOD;
}

const char *
sparse_ids_text(enum sparse_ids what)
{
    static const char *const texts[] = {
        [SPARSE_IDS_GOOD] = "good",
        [SPARSE_IDS_UNSORTED] = "not sorted",
        [SPARSE_IDS_REPEATED] = "an id twice",
        [SPARSE_IDS_FOREIGN] = "of another lane's bucket",
    };

    return texts[what];
}
