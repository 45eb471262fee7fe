/*
 * lone.c - sums of a job with one worker: each is the gradient itself, and no server hears of it.
 *
 * A push ends when it is submitted. Its sum is copied into the table's view, for pulls that come
 * later, and to the caller if it asks for it. A pull of a step whose push has not come yet waits for
 * it here. Everything else of the table (opening it, psd_load) goes to the servers as ever.
 *
 * A table is that lone for as long as the job lasts, or never: nobody may join, and no replacement
 * may have to hear from servers at which step it is.
 *
 * Invariant: the view holds the sum of step table->next_step - 1 of each chunk, with the bits that a
 * server would give it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/lone.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/table_view.h"

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define CLONES
#endif

/* Whatever NaN was given, servers publish one alone. True: there was one. */
#define DEFINE_COPY(name, type, magnitude, infinity, quiet)                                        \
    CLONES static bool name(uint8_t *to, const uint8_t *from, uint64_t count)                      \
    {                                                                                              \
        unsigned some = 0;                                                                         \
                                                                                                   \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            type bits;                                                                             \
                                                                                                   \
            memcpy(&bits, from + i * sizeof(bits), sizeof(bits));                                  \
            some |= (type)(bits & (magnitude)) > (infinity);                                       \
            bits = (type)(bits & (magnitude)) > (infinity) ? (quiet) : bits;                       \
            memcpy(to + i * sizeof(bits), &bits, sizeof(bits));                                    \
        }                                                                                          \
        return some != 0;                                                                          \
    }

DEFINE_COPY(copy_f32, uint32_t, UINT32_C(0x7fffffff), UINT32_C(0x7f800000), UINT32_C(0x7fc00000))
DEFINE_COPY(copy_f64, uint64_t, UINT64_C(0x7fffffffffffffff), UINT64_C(0x7ff0000000000000),
            UINT64_C(0x7ff8000000000000))
DEFINE_COPY(copy_f16, uint16_t, 0x7fffu, 0x7c00u, 0x7e00u)
DEFINE_COPY(copy_bf16, uint16_t, 0x7fffu, 0x7f80u, 0x7fc0u)

static bool
copy_canonical(psd_dtype dtype, uint8_t *to, const uint8_t *from, uint64_t count)
{
    switch (dtype) {
    case PSD_F32:
        return copy_f32(to, from, count);
    case PSD_F64:
        return copy_f64(to, from, count);
    case PSD_F16:
        return copy_f16(to, from, count);
    case PSD_BF16:
        return copy_bf16(to, from, count);
    }
    return false;
}

bool
psi_lone_is(const struct psi_client *client, const struct psi_spec *spec)
{
    return client->config.lone_sums && client->job.workers == 1 && !client->job.elastic &&
           client->job.policy != PSI_DEATH_WAIT && psi_spec_survives(spec);
}

psd_status
psi_lone_take(struct psd_op *op, struct psd_error *err)
{
    struct psd_table *table = op->table;

    op->is_local = table->is_lone && (psi_op_is_push(op) ||
                                      (op->transfer.type == PSI_FRAME_PULL && !op->transfer.empty));
    if (op->is_local && psi_table_view(table) == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY,
                        "table %s: no memory for its sum, which stays in this process",
                        table->spec.name);
    }
    if (op->is_local && !psi_op_is_push(op)) {
        snprintf(op->because, sizeof(op->because), "its sum comes with the push of step %llu",
                 (unsigned long long)op->transfer.step - 1);
    }
    return PSD_OK;
}

/* Where the view has the operation's first element. */
static uint8_t *
values_of(const struct psd_op *op)
{
    return op->table->view->base + op->transfer.first * op->table->element_bytes;
}

static void
end_well(struct psd_op *op)
{
    op->because[0] = '\0';
    op->value = op->table->next_step[op->first_chunk];
    op->touched = op->chunk_count;
    op->applied = op->chunk_count;
    op->remaining = 0;
    psi_op_succeed(op);
}

/* Of numbers that may be NaN, chunk by chunk, while they are in cache. */
static void
give_unchecked(const struct psd_op *op)
{
    const struct psi_transfer *transfer = &op->transfer;
    const size_t element_bytes = op->table->element_bytes;
    const bool brings = transfer->to != NULL && !transfer->to_view;

    for (uint64_t first = 0; first < transfer->count; first += PSD_CHUNK_ELEMENTS) {
        const uint64_t rest = transfer->count - first;
        const uint64_t count = rest < PSD_CHUNK_ELEMENTS ? rest : PSD_CHUNK_ELEMENTS;
        const uint8_t *from = (const uint8_t *)transfer->from + first * element_bytes;
        uint8_t *to = (uint8_t *)transfer->to + first * element_bytes;
        uint8_t *kept = values_of(op) + first * element_bytes;
        const bool changed = copy_canonical(op->table->spec.dtype, kept, from, count);

        if (brings && (changed || to != from)) {
            memmove(to, kept, count * element_bytes);
        }
    }
}

static void
give(const struct psd_op *op)
{
    const struct psi_transfer *transfer = &op->transfer;
    const uint64_t bytes = transfer->count * op->table->element_bytes;
    const bool brings = transfer->to != NULL && !transfer->to_view;

    if (transfer->empty) {
        memset(values_of(op), 0, bytes);
    } else if (op->table->spec.nan_policy == PSD_NAN_ALLOW) {
        give_unchecked(op);
        return;
    } else {
        psi_client_copy(op->client, values_of(op), transfer->from, bytes);
    }
    if (brings && (transfer->empty || transfer->to != transfer->from)) {
        psi_client_copy(op->client, transfer->to, values_of(op), bytes);
    }
}

static bool
is_here(const struct psd_op *op)
{
    const uint64_t *next = &op->table->next_step[op->first_chunk];
    uint64_t i = 0;

    while (i < op->chunk_count && next[i] >= op->transfer.step) {
        i++;
    }
    return i == op->chunk_count;
}

static void
look(struct psd_op *pull)
{
    if (!is_here(pull)) {
        return;
    }
    if (!pull->transfer.to_view) {
        psi_client_copy(pull->client, pull->transfer.to, values_of(pull),
                        pull->transfer.count * pull->table->element_bytes);
    }
    end_well(pull);
}

/* Pulls that were started before this push. */
static void
look_at_pulls(const struct psd_table *table)
{
    struct psd_op *older;

    for (struct psd_op *op = table->last_op; op != NULL; op = older) {
        older = op->table_prev;
        if (op->is_local) {
            look(op);
        }
    }
}

void
psi_lone_answer(struct psd_op *op)
{
    const struct psd_table *table = op->table;

    if (!psi_op_is_push(op)) {
        look(op);
        return;
    }
    give(op);
    end_well(op);
    look_at_pulls(table);
}
