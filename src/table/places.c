/*
 * places.c - how many chunks a table has, and where.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "table/places.h"

uint64_t
psi_table_chunks(const struct psi_spec *spec, const struct psi_loads *loads)
{
    return psi_spec_is_sparse(spec) ? loads->places : psi_chunk_count(spec->count);
}

void
psi_table_place(const struct psi_spec *spec, size_t element_bytes, struct psi_loads *loads,
                uint16_t *places_p)
{
    if (!psi_spec_is_sparse(spec)) {
        psi_shard_place(loads, spec->count, element_bytes, places_p);
        return;
    }
    for (uint32_t place = 0; places_p != NULL && place < loads->places; place++) {
        places_p[place] = (uint16_t)place;
    }
}
