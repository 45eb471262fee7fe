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
#include "store/sparse/tier.h"

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

/* Where rows go, and how. */
struct looking {
    const struct sparse *store;
    convert_fn convert; /* NULL: as they are */
    size_t row_bytes;
    char *rows;
};

static void
write_row(const struct looking *looking, size_t place, struct row *row)
{
    char *to = looking->rows + place * looking->row_bytes;

    if (looking->convert != NULL) {
        looking->convert(to, row_values(row), looking->store->width);
    } else {
        memcpy(to, row_values(row), looking->row_bytes);
    }
}

static void
write_cold(void *context, size_t place, const void *record)
{
    const struct looking *looking = context;

    write_row(looking, place, tier_row(looking->store, record));
}

void
sparse_lookup(struct sparse *store, const uint64_t *ids, size_t count, void *rows)
{
    struct looking looking = {
        .store = store,
        .convert = from_real(store),
        .row_bytes = store->width * psi_dtype_bytes(store->spec->dtype),
        .rows = rows,
    };
    const struct tier_asking asking = {.store = store, .found = write_cold, .context = &looking};
    const uint32_t value_bytes = store->width * (uint32_t)sizeof(float);
    struct finder finder PSI_UNINITIALIZED;

    finder_init(&finder, store, ids, count, ROW_HEAD_BYTES + value_bytes);
    for (size_t i = 0; i < count; i++) {
        struct row *row = finder_row(store, ids[i], finder_next(&finder));

        if (row != NULL) {
            write_row(&looking, i, row);
            continue;
        }
        write_initial(store, ids[i], looking.rows + i * looking.row_bytes);
        if (tier_may_have(store, psi_bucket_mix(ids[i]))) {
            tier_ask(&asking, psi_bucket_mix(ids[i]), i);
        }
    }
    if (store->tier != NULL) {
        tier_ask_rest(&asking);
    }
}
