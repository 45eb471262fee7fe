/*
 * reader.h - a reader's part of the protocol: looks at the values of a running job, from outside.
 *
 * Pure: messages and the time come in, messages go out (docs/architecture.md). It follows the master's
 * views, knows the job's tables, and asks the lanes that have what is wanted, one request at a time each.
 * A lane that is cut off, or gone, is asked again, or another in its place, until the caller gives up.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_READ_READER_H
#define PSI_CLIENT_READ_READER_H

#include "table/spec.h"
#include "transport/transport.h"

/* Thread: owned by the loop (the library's: guarded by its lock). */
struct psi_reader;

/* A table of the job. Thread: immutable; its reader's. */
struct psi_read_table {
    uint32_t id;
    uint32_t places;
    uint64_t chunks;
    struct psi_spec spec;
    uint16_t *place_of; /* by chunk; NULL: sparse */
};

/* What is read: rows of a sparse table, or all of another one. Memory is borrowed until it is over. */
struct psi_read_args {
    const struct psi_read_table *table;
    uint32_t count; /* sparse: ids ... */
    const uint64_t *ids;
    void *values;    /* ... and room for their rows; or for the whole table. Any alignment */
    uint64_t *steps; /* (optional) sparse: of each id's row */
};

/*
 * What was read is, lane by lane, what was committed there at one moment. These moments may differ, and so
 * may the steps. None of them is longer ago than age_ns before the end of the reading, whatever became of the
 * lanes.
 */
struct psi_read_answer {
    uint64_t oldest; /* step: bulk-synchronous tables; others: changes of the chunk */
    uint64_t newest;
    uint64_t age_ns;
};

psd_status psi_reader_create(struct psi_env *env, const char *master_address,
                             struct psi_reader **reader_p, struct psd_error *err);
void psi_reader_destroy(struct psi_reader *reader); /* NULL is allowed */

/* Does what is due; after every event. */
void psi_reader_tick(struct psi_reader *reader);
uint64_t psi_reader_next_ns(const struct psi_reader *reader);

/* PSD_PENDING: it is not known yet who is in the job. PSD_OK: it is. Else it is over: the job, or this
 * reader's part. */
psd_status psi_reader_state(const struct psi_reader *reader, struct psd_error *err);

/* NULL: no such table is known, or not yet. */
const struct psi_read_table *psi_reader_find(const struct psi_reader *reader, const char *name);

/* The index-th table that is known; NULL behind the last. */
const struct psi_read_table *psi_reader_table(const struct psi_reader *reader, uint32_t index);

/* One reading at a time: it is under way until psi_reader_end(). */
psd_status psi_reader_begin(struct psi_reader *reader, const struct psi_read_args *args,
                            struct psd_error *err);

/* PSD_PENDING: it goes on. */
psd_status psi_reader_progress(const struct psi_reader *reader, struct psi_read_answer *answer_p,
                               struct psd_error *err);
void psi_reader_end(struct psi_reader *reader);

/* What it waits for: "server 1 lane 0 at tcp://...: Connection refused". */
void psi_reader_waits(const struct psi_reader *reader, char *text_p, size_t size);

#endif
