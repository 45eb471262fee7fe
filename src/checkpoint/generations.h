/*
 * generations.h - which generations of a checkpoint a directory holds, by the names of its files.
 *
 *     params-N.safetensors   values
 *     state-N.safetensors    master values and optimizer state
 *     part-N-NAME            what workers brought, if they did
 *     rows-N-P-K.safetensors rows of sparse tables: the K-th file of place P (rows_layout.h)
 *     params-N.changes       instead of params-N.safetensors: only what changed since earlier ones;
 *                            likewise state-N.changes
 *     manifest-N.json        sizes and checksums of all, and of itself; renamed into place last
 *
 * N is the generation. A generation without a manifest was never committed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_GENERATIONS_H
#define PSI_CHECKPOINT_GENERATIONS_H

#include <stdbool.h>

#include "checkpoint/directory.h"

enum psi_checkpoint_kind {
    PSI_CHECKPOINT_PARAMS,
    PSI_CHECKPOINT_STATE,
    PSI_CHECKPOINT_MANIFEST,
    PSI_CHECKPOINT_KINDS,
    PSI_CHECKPOINT_BROUGHT = PSI_CHECKPOINT_KINDS, /* a part of workers */
    PSI_CHECKPOINT_ROWS,                           /* of a sparse table */
    PSI_CHECKPOINT_TEMPORARY,                      /* is being written */
};

enum {
    PSI_CHECKPOINT_DATA_FILES = PSI_CHECKPOINT_MANIFEST, /* the kinds before it */
    PSI_CHECKPOINT_NAME_BYTES = 96,
    PSI_CHECKPOINT_PART_NAME_MAX = 48,
};

void psi_checkpoint_name(char name[PSI_CHECKPOINT_NAME_BYTES], enum psi_checkpoint_kind kind,
                         uint64_t generation);

/* Of a data file that refers to earlier ones: it is none for others to read. */
void psi_checkpoint_changes_name(char name[PSI_CHECKPOINT_NAME_BYTES],
                                 enum psi_checkpoint_kind kind, uint64_t generation);

/* The name while the file is being written. If several writers share a generation, its token is not
 * 0. So a writer that has not heard that the generation was given up cannot write into the next. */
void psi_checkpoint_temporary_name(char name[PSI_CHECKPOINT_NAME_BYTES],
                                   enum psi_checkpoint_kind kind, uint64_t token);

/* May a part of workers be called so? Letters, digits, '.', '_' and '-', the first no '.'. */
bool psi_checkpoint_part_name_fits(const char *name);

/* The file of a part, and while it is being written. */
void psi_checkpoint_part_name(char file[PSI_CHECKPOINT_NAME_BYTES], uint64_t generation,
                              const char *name);
void psi_checkpoint_temporary_part_name(char file[PSI_CHECKPOINT_NAME_BYTES], uint64_t token,
                                        const char *name);

/* A file of rows, and while it is being written. */
void psi_checkpoint_rows_name(char file[PSI_CHECKPOINT_NAME_BYTES], uint64_t generation,
                              uint32_t place, uint32_t number);
void psi_checkpoint_temporary_rows_name(char file[PSI_CHECKPOINT_NAME_BYTES], uint64_t token,
                                        uint32_t place, uint32_t number);

/* Is it a file of rows that is being written with that token? */
bool psi_checkpoint_is_temporary_rows(const char *file, uint64_t token);

/* One file. */
struct psi_generation {
    uint64_t number; /* 0: one that is being written */
    enum psi_checkpoint_kind kind;
    char name[PSI_CHECKPOINT_NAME_BYTES];
};

/* The files of a directory. Thread: owned by its caller. */
struct psi_generations {
    struct psi_generation *list; /* newest first, in each generation the manifest first */
    size_t count;
    size_t capacity;
};

psd_status psi_generations_init(struct psi_generations *generations,
                                const struct psi_directory *directory, struct psd_error *err);
void psi_generations_fini(struct psi_generations *generations);

/* One more than any that is or was begun here. */
uint64_t psi_generations_next(const struct psi_generations *generations);

enum { PSI_GENERATIONS_KEPT = 2 }; /* at least */

/* Removes data files that no manifest makes a generation, those that were being written included. They
 * only take space: what cannot be removed is left for the next time. */
void psi_generations_remove_unfinished(const struct psi_generations *generations,
                                       const struct psi_directory *directory);

/* All files of one. */
void psi_generations_remove(const struct psi_generations *generations,
                            const struct psi_directory *directory, uint64_t number);

#endif
