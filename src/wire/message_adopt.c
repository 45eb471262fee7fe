/*
 * message_adopt.c - results that outlive a server: ADOPT, and the lists of GOT and RELEASE.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "wire/pack.h"

void
psi_adopt_encode(struct psi_pack *pack, const struct psi_adopt *adopt)
{
    psi_pack_u32(pack, adopt->runs);
    for (uint32_t i = 0; i < adopt->runs; i++) {
        psi_pack_u32(pack, adopt->run[i].first);
        psi_pack_u32(pack, adopt->run[i].count);
        psi_pack_u64(pack, adopt->run[i].base);
        psi_pack_u8(pack, (uint8_t)adopt->run[i].has);
    }
}

psd_status
psi_adopt_decode(const uint8_t *bytes, size_t size, struct psi_adopt *adopt_p,
                 struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "ADOPT", bytes, size, err);
    adopt_p->runs = psi_unpack_u32(&unpack, "runs", 0, PSI_ADOPT_RUNS_MAX);
    for (uint32_t i = 0; i < adopt_p->runs && unpack.status == PSD_OK; i++) {
        struct psi_adopt_run *run = &adopt_p->run[i];

        run->first = psi_unpack_u32(&unpack, "run.first", 0, PSI_CHUNKS_MAX - 1);
        run->count = psi_unpack_u32(&unpack, "run.count", 1, PSI_CHUNKS_MAX - run->first);
        run->base = psi_unpack_u64(&unpack, "run.base");
        run->has = psi_unpack_u8(&unpack, "run.has", 0, PSI_HAS_KINDS - 1);
    }
    return unpack.status;
}

void
psi_results_encode(struct psi_pack *pack, const struct psi_results *results)
{
    psi_pack_u32(pack, results->count);
    for (uint32_t i = 0; i < results->count; i++) {
        psi_pack_u32(pack, results->result[i].table);
        psi_pack_u32(pack, results->result[i].chunk);
        psi_pack_u64(pack, results->result[i].step);
    }
}

psd_status
psi_results_decode(const uint8_t *bytes, size_t size, struct psi_results *results_p,
                   struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "GOT or RELEASE", bytes, size, err);
    results_p->count = psi_unpack_u32(&unpack, "count", 0, PSI_RESULTS_MAX);
    for (uint32_t i = 0; i < results_p->count && unpack.status == PSD_OK; i++) {
        results_p->result[i].table = psi_unpack_u32(&unpack, "table", 0, PSI_TABLES_MAX - 1);
        results_p->result[i].chunk = psi_unpack_u32(&unpack, "chunk", 0, PSI_CHUNKS_MAX - 1);
        results_p->result[i].step = psi_unpack_u64(&unpack, "step");
    }
    return unpack.status;
}
