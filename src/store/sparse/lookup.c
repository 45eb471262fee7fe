/*
 * lookup.c - rows by id, as they are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/fail.h"
#include "store/initial.h"
#include "store/kernels.h"
#include "store/sparse/finder.h"

typedef void (*convert_fn)(void *to, const void *from, size_t count);

static convert_fn
from_real(const struct sparse *store)
{
    return store->spec->dtype == PSD_F16    ? store->kernels->f16_from_f32
           : store->spec->dtype == PSD_BF16 ? store->kernels->bf16_from_f32
                                            : NULL;
}

static void
write_initial(const struct sparse *store, uint64_t id, void *to)
{
    store_initial(store->spec->init, store->spec->init_value, store->spec->seed, store->spec->dtype,
                  id * store->width, store->width, to);
}

void
sparse_lookup(struct sparse *store, const uint64_t *ids, size_t count, void *rows)
{
    const convert_fn convert = from_real(store);
    const size_t row_bytes = store->width * psi_dtype_bytes(store->spec->dtype);
    const uint32_t value_bytes = store->width * (uint32_t)sizeof(float);
    struct finder finder PSI_UNINITIALIZED;

    finder_init(&finder, store, ids, count, ROW_HEAD_BYTES + value_bytes);
    for (size_t i = 0; i < count; i++) {
        struct row *row = finder_row(store, ids[i], finder_next(&finder));
        char *to = (char *)rows + i * row_bytes;

        if (row == NULL) {
            write_initial(store, ids[i], to);
        } else if (convert != NULL) {
            convert(to, row_values(row), store->width);
        } else {
            memcpy(to, row_values(row), value_bytes);
        }
    }
}
