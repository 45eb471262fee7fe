/*
 * cold_none.c - of a build without LMDB: tables that want a cold store are refused.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/cold.h"

#include "base/fail.h"

static psd_status
refuse(void *self, const char *table, size_t record_bytes, struct cold **cold_p,
       struct psd_error *err)
{
    (void)self;
    (void)record_bytes;
    (void)cold_p;
    return psi_fail(err, PSD_ERR_INVALID,
                    "sparse table %s: full is spill, but this server was built without LMDB: "
                    "install liblmdb-dev and build it again, or choose refuse or oldest",
                    table);
}

struct cold_place *
cold_place_create(const char *directory)
{
    static struct cold_place place = {.open = refuse};

    (void)directory;
    return &place;
}

void
cold_place_destroy(struct cold_place *place)
{
    (void)place;
}
