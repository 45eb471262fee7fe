/*
 * pieces_table.h - the sparse tables of the target `pieces`, for it and for who writes its first inputs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FUZZ_PIECES_TABLE_H
#define FUZZ_PIECES_TABLE_H

#include "base/fail.h"
#include "store/sparse/kind.h"

enum { PIECES_TABLES = 3, PIECES_SUM = 2, PIECES_PLACES = 3, PIECES_PLACE = 1 };

/* The middle one of three lanes has it. `which`: 0, rows of f32; 1, of f16, with counters; 2, a sum of rows. */
static inline struct store *
pieces_table(struct psi_spec *spec, unsigned which)
{
    const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = PSD_RULE_ADAGRAD};
    const struct psd_sparse_args args = {.struct_size = sizeof(args),
                                         .name = "e",
                                         .width = 2,
                                         .dtype = which == 1 ? PSD_F16 : PSD_F32,
                                         .use = which == PIECES_SUM ? PSD_USE_SUM : PSD_USE_UPDATE,
                                         .rule = which == PIECES_SUM ? NULL : &rule,
                                         .admit_after = which == 1 ? 2 : 0};
    const struct store_ops *kind = which == PIECES_SUM ? &store_sparse_sum : &store_sparse;
    const struct store_layout layout = {.spec = spec,
                                        .chunks = 1,
                                        .first_chunk = PIECES_PLACE,
                                        .chunks_in_all = PIECES_PLACES,
                                        .memory_max = 64 << 20,
                                        .level = psi_kernel_level_best()};
    struct store *store = NULL;
    struct psd_error err;

    psi_assert(psi_spec_init_sparse(spec, &args, 1, &err) == PSD_OK);
    psi_assert(kind->create(&layout, &store, &err) == PSD_OK);
    return store;
}

#endif
