/*
 * sparse_ids.h - ids as a program gives them, in the order in which they travel.
 *
 * Pure: no table, no lock.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_CORE_SPARSE_IDS_H
#define PSI_CLIENT_CORE_SPARSE_IDS_H

#include <stdbool.h>
#include <stdint.h>

/* One of the program's ids. */
struct sparse_id {
    uint64_t mixed; /* psi_bucket_mix() of it */
    uint32_t at;    /* where it stood */
};

/* All of them by their mixed ids, the same ids in the order in which they stood. */
struct sparse_ids {
    struct sparse_id *list; /* owned */
    uint32_t count;
    uint32_t unique;
};

/* False: no memory. */
bool psi_sparse_ids_sort(struct sparse_ids *ids, const uint64_t *given, uint32_t count,
                         uint32_t bucket_bits);
void psi_sparse_ids_fini(struct sparse_ids *ids);

/* The first behind those with the id of the first-th. */
static inline uint32_t
psi_sparse_ids_end(const struct sparse_ids *ids, uint32_t first)
{
    uint32_t end = first + 1;

    while (end < ids->count && ids->list[end].mixed == ids->list[first].mixed) {
        end++;
    }
    return end;
}

#endif
