/*
 * earlier.c - what a writer of a part remembers of the generations before.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/earlier.h"

#include <stdlib.h>
#include <string.h>

static void
forget(struct psi_pieces pieces[PSI_CHECKPOINT_DATA_FILES])
{
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        free(pieces[kind].list);
        pieces[kind] = (struct psi_pieces){0};
    }
}

void
psi_earlier_fini(struct psi_earlier *earlier)
{
    forget(earlier->known);
    forget(earlier->next);
    memset(earlier, 0, sizeof(*earlier));
}

static int
by_place(const void *a, const void *b)
{
    const struct psi_piece *left = a;
    const struct psi_piece *right = b;

    return (left->at > right->at) - (left->at < right->at);
}

void
psi_earlier_begin(struct psi_earlier *earlier, const struct psi_part_order *order)
{
    if (order->after != 0 && order->after == earlier->next_token) {
        forget(earlier->known);
        memcpy(earlier->known, earlier->next, sizeof(earlier->known));
        memset(earlier->next, 0, sizeof(earlier->next));
        for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
            if (earlier->known[kind].count > 1) {
                qsort(earlier->known[kind].list, earlier->known[kind].count,
                      sizeof(earlier->known[kind].list[0]), by_place);
            }
        }
        earlier->token = order->after;
    } else if (order->after == 0 || order->after != earlier->token) {
        forget(earlier->known);
        earlier->token = 0;
    }
    forget(earlier->next);
    earlier->again = order->token == earlier->next_token;
    earlier->next_token = order->token;
}

const struct psi_piece *
psi_earlier_find(const struct psi_earlier *earlier, enum psi_checkpoint_kind kind, uint64_t at,
                 size_t bytes, uint32_t checksum)
{
    const struct psi_pieces *known = &earlier->known[kind];
    const struct psi_piece wanted = {.at = at};
    const struct psi_piece *piece =
        known->count == 0 || earlier->again
            ? NULL
            : bsearch(&wanted, known->list, known->count, sizeof(known->list[0]), by_place);

    return piece != NULL && piece->bytes == bytes && piece->checksum == checksum ? piece : NULL;
}

void
psi_earlier_add(struct psi_earlier *earlier, enum psi_checkpoint_kind kind, struct psi_piece piece)
{
    struct psi_pieces *next = &earlier->next[kind];

    if (next->count == next->capacity) {
        const size_t capacity = next->capacity * 2 + 64;
        struct psi_piece *list = reallocarray(next->list, capacity, sizeof(*list));

        if (list == NULL) {
            return;
        }
        next->list = list;
        next->capacity = capacity;
    }
    next->list[next->count++] = piece;
}
