/*
 * fuzz_pieces.c - a piece of a sparse table, as a copy of it takes one.
 *
 * The first byte says which table. What is taken, given again and taken by another table is the same
 * then: nothing is in there that a table would not say of itself.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "pieces_table.h"

enum { PIECE_BYTES = 1 << 20, ALIGNMENT = 64 };

/* All that there is, as one piece; 0 bytes: that is more than one. */
static size_t
whole(struct store *store, uint8_t *piece)
{
    struct store_walk walk = {0};
    const size_t bytes = store->ops->piece(store, &walk, piece, PIECE_BYTES);

    return walk.is_done ? bytes : 0;
}

static void
check_again(struct store *store, unsigned which)
{
    uint8_t *piece = aligned_alloc(ALIGNMENT, PIECE_BYTES);
    uint8_t *again = aligned_alloc(ALIGNMENT, PIECE_BYTES);
    struct psi_spec spec;
    struct store *other = pieces_table(&spec, which);
    const size_t bytes = whole(store, piece);
    struct psd_error err;

    psi_assert(piece != NULL && again != NULL);
    if (bytes > 0) {
        psi_assert(other->ops->take(other, piece, bytes, &err) == PSD_OK);
        psi_assert(whole(other, again) == bytes && memcmp(piece, again, bytes) == 0);
    }
    other->ops->destroy(other);
    free(piece);
    free(again);
}

/* It says with which step the table was changed last, if that keeps rows. */
static void
check_older(struct store *store, unsigned which, uint8_t *piece, size_t bytes)
{
    uint64_t step;
    struct psd_error err;

    memcpy(&step, piece, sizeof(step));
    if (which != PIECES_SUM && step > 0) {
        memset(piece, 0, sizeof(step));
        psi_assert(store->ops->take(store, piece, bytes, &err) == PSD_ERR_PROTOCOL);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct psi_spec spec;
    struct store *store;
    struct psd_error err;
    uint8_t *piece;

    if (size == 0 || size > PIECE_BYTES) {
        return 0;
    }
    piece = aligned_alloc(ALIGNMENT, (size + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
    store = pieces_table(&spec, data[0] % PIECES_TABLES);
    psi_assert(piece != NULL);
    memcpy(piece, data + 1, size - 1);
    if (store->ops->take(store, piece, size - 1, &err) == PSD_OK) {
        check_again(store, data[0] % PIECES_TABLES);
        check_older(store, data[0] % PIECES_TABLES, piece, size - 1);
    } else {
        psi_assert(err.status == PSD_ERR_PROTOCOL || err.status == PSD_ERR_TOO_BIG);
    }
    store->ops->destroy(store);
    free(piece);
    return 0;
}
