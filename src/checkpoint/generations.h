/*
 * generations.h - which generations of a checkpoint a directory holds, by the names of its files.
 *
 *     params-N.safetensors   values
 *     state-N.safetensors    master values and optimizer state
 *     manifest-N.json        sizes and checksums of the two, and of itself; renamed into place last
 *
 * N is the generation. A generation without a manifest was never committed.
 */
#ifndef PSI_CHECKPOINT_GENERATIONS_H
#define PSI_CHECKPOINT_GENERATIONS_H

#include "checkpoint/directory.h"

enum psi_checkpoint_kind { PSI_CHECKPOINT_PARAMS, PSI_CHECKPOINT_STATE, PSI_CHECKPOINT_MANIFEST };

enum {
    PSI_CHECKPOINT_DATA_FILES = PSI_CHECKPOINT_MANIFEST, /* the kinds before it */
    PSI_CHECKPOINT_KINDS = PSI_CHECKPOINT_MANIFEST + 1,
    PSI_CHECKPOINT_NAME_BYTES = 48,
};

void psi_checkpoint_name(char name[PSI_CHECKPOINT_NAME_BYTES], enum psi_checkpoint_kind kind,
                         uint64_t generation);

/* While it is being written. */
const char *psi_checkpoint_temporary_name(enum psi_checkpoint_kind kind);

/* One file. */
struct psi_generation {
    uint64_t number;
    enum psi_checkpoint_kind kind;
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

/*
 * Removes data files that no manifest makes a generation; removes all but the two newest committed
 * generations. Both only take space: what cannot be removed is left for the next time.
 */
void psi_generations_remove_unfinished(const struct psi_generations *generations,
                                       const struct psi_directory *directory);
void psi_generations_remove_old(const struct psi_generations *generations,
                                const struct psi_directory *directory);

#endif
