/*
 * cold.h - where rows are that memory does not hold: a local store of records by key.
 *
 * This is all that the rest of the folder knows of it (tier.h decides which rows go there). A key is a
 * mixed id, so the order of keys is that in which rows travel and are saved. What is in there is
 * scratch: nobody reads it after the process has ended, and no name of it is left in a directory.
 *
 * A store that has taken a record gives it back, or ends the process: a lane that went on without
 * would be wrong in silence.
 *
 * Thread: a place, and all that is opened in it, belong to one lane.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_COLD_H
#define STORE_SPARSE_COLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

struct cold_row {
    uint64_t key;
    const void *record; /* any alignment; of a store: until the next call */
};

/* The index-th of the keys that were asked for. */
typedef void (*cold_found_fn)(void *context, size_t index, const void *record);

/* The rows of one table on one lane. */
struct cold {
    const struct cold_ops *ops;
};

struct cold_ops {
    /* Shows those that are there, in the order of `keys`: rising ones are found sooner. */
    void (*get)(struct cold *cold, const uint64_t *keys, size_t count, cold_found_fn found,
                void *context);

    /* The first row whose key is `from` or larger. false: there is none. */
    bool (*next)(struct cold *cold, uint64_t from, struct cold_row *row_p);

    /* Over those that are there; rising keys are sooner written. All of them, or none: PSD_ERR_IO, with the reason. */
    psd_status (*put)(struct cold *cold, const struct cold_row *rows, size_t count,
                      struct psd_error *err);

    /* Those that are there. All of them, or none: likewise. */
    psd_status (*remove)(struct cold *cold, const uint64_t *keys, size_t count,
                         struct psd_error *err);

    /* That the place takes, for all of its tables. */
    uint64_t (*bytes)(const struct cold *cold);

    /* Forgets all rows. */
    void (*close)(struct cold *cold);
};

/* Where the tables of a lane can have such rows. */
struct cold_place {
    void *self;
    /* For records of so many bytes. Fails by name: no library in this build, no directory ... */
    psd_status (*open)(void *self, const char *table, size_t record_bytes, struct cold **cold_p,
                       struct psd_error *err);
};

/* One in `directory`, on the disk. It is made at once, so that a process that may open no files later
 * has it, and takes next to nothing until a table is opened there; why it could not be made, open() says
 * then. NULL: no memory. */
struct cold_place *cold_place_create(const char *directory);
void cold_place_destroy(struct cold_place *place); /* NULL is fine; all in it are closed */

#endif
