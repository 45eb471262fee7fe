/*
 * places.h - how many chunks a table has, and where: of a sparse table there is one on each place.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TABLE_PLACES_H
#define PSI_TABLE_PLACES_H

#include "shard/shard.h"
#include "table/spec.h"

uint64_t psi_table_chunks(const struct psi_spec *spec, const struct psi_loads *loads);

/* Places every chunk: places_p[chunk] (NULL: only the loads matter). Adds the table's bytes to the
 * loads; rows that are not there yet count for nothing. */
void psi_table_place(const struct psi_spec *spec, size_t element_bytes, struct psi_loads *loads,
                     uint16_t *places_p);

#endif
