/*
 * save.h - rows as arrays, for the files of this folder.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_SAVE_H
#define STORE_SPARSE_SAVE_H

#include "store/sparse/state.h"

/* sparse_save(), of rows that were touched before step `until`; UINT32_MAX: of all. */
bool save_rows(const struct sparse *store, uint32_t bucket, uint32_t since, uint32_t until,
               uint64_t *cursor_p, struct sparse_rows *rows);

/* One row, to place `at` of the arrays. */
void save_row(const struct sparse *store, struct row *row, size_t at, struct sparse_rows *rows);

#endif
