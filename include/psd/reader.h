/*
 * reader.h - looking at the values of a running job from outside: for evaluation and for serving.
 *
 * A part of psd.h, which includes it. A reader is no worker: it has no rank and no step, pushes
 * nothing, and no round waits for it. It may come, go and die at any time. It has a key of its own,
 * which lets it look and do nothing else: psd_run reader-key writes it to a file.
 *
 *     psd_reader *reader;
 *     struct psd_reader_table words = {.struct_size = sizeof(words)};
 *     struct psd_reader_answer answer = {.struct_size = sizeof(answer)};
 *
 *     psd_reader_open(NULL, &reader);                        the environment says where
 *     psd_reader_find(reader, "words", &words);              waits until there is such a table
 *     psd_reader_read(reader, &(struct psd_reader_args){.struct_size = sizeof(struct psd_reader_args),
 *                     .table = words.number, .count = n, .ids = ids, .values = values}, &answer);
 *     psd_reader_close(reader);
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSD_READER_H
#define PSD_READER_H

#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct psd_reader psd_reader;

/* Fields left 0 or NULL are read from the environment. */
struct psd_reader_open_args {
    size_t struct_size;
    const char *master_address; /* "tcp://HOST:PORT"; default PSD_MASTER_ADDRESS */
    const char *key_file; /* default PSD_READER_KEY_FILE. Without any, the job's secret, if this
                                   process has it: a worker may read, too */
    uint32_t timeout_ms;  /* of every call; default 60,000; PSD_FOREVER: none */
};

/*
 * psd_reader_open - find the job, and wait until it has begun.
 *
 *   args      copied; NULL: everything from the environment.
 *   reader_p  out: end it with psd_reader_close().
 *
 * Returns PSD_OK, or
 *   PSD_ERR_INVALID    there is no address, or no key (PSD_INSECURE=1 allows that, on loopback only);
 *   PSD_ERR_TIMEOUT    the master was not found, or the job did not begin, in time: the message says more;
 *   PSD_ERR_REFUSED    the key is not that of the job's readers, or the job is over;
 *   PSD_ERR_BUSY       the job has 64 readers, which is the most;
 *   PSD_ERR_NO_MEMORY.
 *
 * A reader may be used by any thread; calls wait for each other, so threads that are to read at
 * once have readers of their own. It has no thread: between calls it does nothing. After fork() the
 * child must not use it.
 */
PSD_API psd_status psd_reader_open(const struct psd_reader_open_args *args, psd_reader **reader_p);

/* Leaves. NULL is allowed. */
PSD_API void psd_reader_close(psd_reader *reader);

/* What a table is. */
struct psd_reader_table {
    size_t struct_size;
    uint32_t number; /* for psd_reader_read() */
    uint32_t dtype;  /* psd_dtype */
    uint32_t width;  /* numbers of a row of a sparse table; 0: it is not sparse */
    uint32_t dims;   /* not sparse: its shape ... */
    uint64_t shape[8];
    uint64_t count; /* ... and all of its elements */
};

/*
 * psd_reader_find - wait until the workers have opened a table of this name.
 *
 *   table_p  out; its struct_size is set by the caller.
 *
 * PSD_ERR_TIMEOUT: there is none; PSD_ERR_INVALID; or a reason why the job, or this reader, is over.
 */
PSD_API psd_status psd_reader_find(psd_reader *reader, const char *name,
                                   struct psd_reader_table *table_p);

/* What to read: rows of a sparse table, or all of another one. */
struct psd_reader_args {
    size_t struct_size;
    uint32_t table; /* psd_reader_table.number */
    uint32_t count; /* sparse: ids; in any order, also several times. Else 0 */
    const uint64_t *ids;
    void *values;        /* `count` rows in the table's type, or all elements; any alignment */
    uint64_t *steps;     /* (optional) sparse: the step of each of these rows */
    uint32_t timeout_ms; /* 0: as given to psd_reader_open() */
};

/* How old it is. */
struct psd_reader_answer {
    size_t struct_size;
    uint64_t step;   /* the oldest step of anything that was read */
    uint64_t newest; /* the newest. Equal to `step`: all of it is of one step */
    uint64_t age_us; /* when the call returned, each value had been the current one at some moment
                         within so many microseconds */
};

/*
 * psd_reader_read - read, and say how old it is.
 *
 * A value is what the servers had made safe when they answered: the value of a step, never half of
 * one and half of another. `step` is that of psd_table_step: in bulk-synchronous tables the value
 * after that many steps. In tables with staleness it counts the changes of the part of the table in
 * which the value is, and later changes may show. The parts of a table on several servers may be of
 * different steps, if a step ends meanwhile: `step` and `newest` tell. Looking at an id that has no
 * row gives its initial value, and creates nothing.
 *
 * A lane of a server that dies, moves or comes back is asked again, until the deadline.
 *
 * Returns PSD_OK, or
 *   PSD_ERR_INVALID    no such table, missing pointer, ids for a table that is not sparse;
 *   PSD_ERR_STATE      the table is a sum (PSD_USE_SUM): servers keep no values of it;
 *   PSD_ERR_TIMEOUT    the message names the server that did not answer, and why;
 *   PSD_ERR_CLOSED     the job is over; PSD_ERR_NO_MEMORY, PSD_ERR_FORKED.
 * `values` may have been written in part after an error.
 */
PSD_API psd_status psd_reader_read(psd_reader *reader, const struct psd_reader_args *args,
                                   struct psd_reader_answer *answer_p);

#ifdef __cplusplus
}
#endif

#endif
