/*
 * earlier.h - what a writer of a part remembers of the generations before: which piece is in which of
 * them, and its checksum. Pure.
 *
 * It is a hint: before a piece is referred to there, its bytes are compared.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_EARLIER_H
#define PSI_CHECKPOINT_EARLIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/generations.h"

/* Which generation a part is of. */
struct psi_part_order {
    uint64_t token;      /* of its files */
    uint64_t generation; /* its number, if it is committed */
    uint64_t after;      /* the token of the newest one that is; 0: nothing may be referred to */
    uint64_t bytes[PSI_CHECKPOINT_DATA_FILES];
};

struct psi_piece {
    uint64_t at;
    uint64_t generation; /* in whose file it lies */
    uint32_t bytes;
    uint32_t checksum; /* psi_manifest_file_add() */
};

struct psi_pieces {
    struct psi_piece *list; /* known: by rising places */
    size_t count;
    size_t capacity;
};

/* All 0 to begin with. Thread: owned by its caller. */
struct psi_earlier {
    uint64_t token; /* of the generation that `known` is of; 0: none */
    struct psi_pieces known[PSI_CHECKPOINT_DATA_FILES];
    uint64_t next_token; /* of the one that is being written, and may be given up */
    bool again;          /* it is begun anew with the same files: they are not empty */
    struct psi_pieces next[PSI_CHECKPOINT_DATA_FILES];
};

void psi_earlier_fini(struct psi_earlier *earlier);

/* Another generation is begun: what was written last counts if the order comes after it. One that is
 * begun anew writes all: what it referred to would have to be a hole in its files. */
void psi_earlier_begin(struct psi_earlier *earlier, const struct psi_part_order *order);

/* A piece that may be the same as this one; NULL: there is none. */
const struct psi_piece *psi_earlier_find(const struct psi_earlier *earlier,
                                         enum psi_checkpoint_kind kind, uint64_t at, size_t bytes,
                                         uint32_t checksum);

/* In the generation that is being written the piece lies there. No memory: it is forgotten. */
void psi_earlier_add(struct psi_earlier *earlier, enum psi_checkpoint_kind kind,
                     struct psi_piece piece);

#endif
