/*
 * lone.c - sums of a job with one worker: each is the gradient itself, and no server hears of it.
 *
 * The sum of a push is copied into the table's view, for pulls that come later, and to the caller if
 * it asks for it: at once if it is small, and else piece by piece, one with each turn of the core.
 * Copying a large one takes seconds, in which the master must hear from us. A pull of a step whose
 * push has not come yet waits for it here. Everything else of the table (opening it, psd_load) goes
 * to the servers as ever.
 *
 * A table is that lone for as long as the job lasts, or never: nobody may join, and no replacement
 * may have to hear from servers at which step it is.
 *
 * Invariants
 *   - what is not copied at once stands in client->lone, in the order in which it is copied, and
 *     nothing of a table is copied before what stands there of it;
 *   - so where an operation's turn comes, the view has what all pushes before it gave, with the bits
 *     that servers would give it. Chunks of a push that was cut short have its step or the one
 *     before, as with servers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/lone.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/table_view.h"

enum {
    AT_ONCE_BYTES = 1 << 20, /* the caller waits for that, which is no longer than for a send */
    PIECE_BYTES = 2 << 20,   /* nobody else gets the lock meanwhile, nor the master a heartbeat */
};

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
           client->job.policy != PSI_DEATH_WAIT && psi_spec_survives(spec) &&
           !psi_spec_is_sparse(spec);
}

static void
say_what_it_waits_for(struct psd_op *pull)
{
    snprintf(pull->because, sizeof(pull->because), "its sum comes with the push of step %llu",
             (unsigned long long)pull->transfer.step - 1);
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
        say_what_it_waits_for(op);
    }
    return PSD_OK;
}

/* ---- copying -------------------------------------------------------------------------------- */

/* Some chunks of an operation, one behind the other. */
struct piece {
    const uint8_t *from; /* a push; where the gradient has them */
    uint8_t *kept;       /* where the view has them */
    uint8_t *to;         /* where the caller wants them; NULL: nowhere else */
    uint64_t count;      /* elements */
    uint64_t bytes;
};

/* The next so many chunks. */
static struct piece
next_piece(const struct psd_op *op, uint64_t chunks)
{
    const struct psi_transfer *transfer = &op->transfer;
    const size_t element_bytes = op->table->element_bytes;
    const uint64_t first = (op->chunk_count - op->remaining) * PSD_CHUNK_ELEMENTS;
    const uint64_t rest = transfer->count - first;
    const uint64_t most = chunks * PSD_CHUNK_ELEMENTS;
    struct piece piece = {.count = most < rest ? most : rest};

    piece.bytes = piece.count * element_bytes;
    piece.kept = op->table->view->base + (transfer->first + first) * element_bytes;
    if (psi_op_is_push(op)) {
        piece.from = (const uint8_t *)transfer->from + first * element_bytes;
    }
    if (transfer->to != NULL && !transfer->to_view) {
        piece.to = (uint8_t *)transfer->to + first * element_bytes;
    }
    return piece;
}

/* Of numbers that may be NaN, chunk by chunk, while they are in cache. */
static void
give_unchecked(const struct psd_op *op, const struct piece *piece)
{
    const size_t element_bytes = op->table->element_bytes;

    for (uint64_t first = 0; first < piece->count; first += PSD_CHUNK_ELEMENTS) {
        const uint64_t rest = piece->count - first;
        const uint64_t count = rest < PSD_CHUNK_ELEMENTS ? rest : PSD_CHUNK_ELEMENTS;
        const uint64_t at = first * element_bytes;
        const bool changed =
            copy_canonical(op->table->spec.dtype, piece->kept + at, piece->from + at, count);

        if (piece->to != NULL && (changed || piece->to != piece->from)) {
            memmove(piece->to + at, piece->kept + at, count * element_bytes);
        }
    }
}

static void
give(const struct psd_op *op, const struct piece *piece)
{
    if (op->transfer.empty) {
        memset(piece->kept, 0, piece->bytes);
    } else if (op->table->spec.nan_policy == PSD_NAN_ALLOW) {
        give_unchecked(op, piece);
        return;
    } else {
        psi_client_copy(op->client, piece->kept, piece->from, piece->bytes);
    }
    if (piece->to != NULL && (op->transfer.empty || piece->to != piece->from)) {
        psi_client_copy(op->client, piece->to, piece->kept, piece->bytes);
    }
}

/* Copies so many chunks; with the last ones it ends. */
static void
copy_chunks(struct psd_op *op, uint64_t chunks)
{
    const struct piece piece = next_piece(op, chunks);

    if (psi_op_is_push(op)) {
        give(op, &piece);
    } else if (piece.to != NULL) {
        psi_client_copy(op->client, piece.to, piece.kept, piece.bytes);
    }
    op->touched += chunks;
    op->applied += chunks;
    op->remaining -= chunks;
    if (op->remaining == 0) {
        psi_lone_forget(op);
        op->because[0] = '\0';
        psi_op_succeed(op);
    }
}

/* ---- whose turn it is ----------------------------------------------------------------------- */

static void
append(struct psd_op *op)
{
    struct psi_client *client = op->client;

    snprintf(op->because, sizeof(op->because), "it is copied in this process");
    op->copying = true;
    op->copied_next = NULL;
    op->copied_prev = client->lone_last;
    if (client->lone_last != NULL) {
        client->lone_last->copied_next = op;
    } else {
        client->lone = op;
    }
    client->lone_last = op;
}

void
psi_lone_forget(struct psd_op *op)
{
    struct psi_client *client = op->client;

    if (!op->copying) {
        return;
    }
    op->copying = false;
    if (op->copied_prev != NULL) {
        op->copied_prev->copied_next = op->copied_next;
    } else {
        client->lone = op->copied_next;
    }
    if (op->copied_next != NULL) {
        op->copied_next->copied_prev = op->copied_prev;
    } else {
        client->lone_last = op->copied_prev;
    }
}

static bool
is_table_copied(const struct psd_table *table)
{
    const struct psd_op *op = table->last_op;

    while (op != NULL && !op->copying) {
        op = op->table_prev;
    }
    return op != NULL;
}

/* Every push that it needs has been started: those stand before it. */
static void
start(struct psd_op *op)
{
    const uint64_t bytes = op->transfer.count * op->table->element_bytes;

    op->value = op->table->next_step[op->first_chunk];
    if (bytes <= AT_ONCE_BYTES && !is_table_copied(op->table)) {
        copy_chunks(op, op->chunk_count);
    } else {
        append(op);
    }
}

/* Have the pushes been started that the pull needs? */
static bool
is_given(const struct psd_op *pull)
{
    const uint64_t *next = &pull->table->next_step[pull->first_chunk];
    uint64_t i = 0;

    while (i < pull->chunk_count && next[i] >= pull->transfer.step) {
        i++;
    }
    return i == pull->chunk_count;
}

/* Pulls that were started before this push. */
static void
look_at_pulls(const struct psd_table *table)
{
    struct psd_op *older;

    for (struct psd_op *op = table->last_op; op != NULL; op = older) {
        older = op->table_prev;
        if (op->is_local && !op->copying && !psi_op_is_push(op) && is_given(op)) {
            start(op);
        }
    }
}

void
psi_lone_answer(struct psd_op *op)
{
    const struct psd_table *table = op->table;

    if (psi_op_is_push(op)) {
        start(op);
        look_at_pulls(table);
    } else if (is_given(op)) {
        start(op);
    }
}

void
psi_lone_turn(struct psi_client *client)
{
    struct psd_op *op = client->lone;
    uint64_t chunks;

    if (op == NULL) {
        return;
    }
    if (!psi_op_is_push(op) && op->touched == 0 && !is_given(op)) {
        psi_lone_forget(op); /* the push was cut short: the step is pushed again, or never */
        say_what_it_waits_for(op);
        return;
    }
    chunks = PIECE_BYTES / (PSD_CHUNK_ELEMENTS * op->table->element_bytes);
    copy_chunks(op, chunks < op->remaining ? chunks : op->remaining);
}
