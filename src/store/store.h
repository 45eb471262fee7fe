/*
 * store.h - how the numbers of a table are kept on a lane: one struct store_ops for each kind of
 * table (dense/, sparse/).
 *
 * A lane knows rounds, versions and who may hear of what; a store knows numbers. The lane names a
 * chunk by its place among those that it has of the table, from 0 on, and a version of its value by
 * a buffer: there are two where the last version is kept beside the current one. Which of them is
 * current is the lane's affair.
 *
 * Thread: a store is owned by its lane.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/segment.h"
#include "store/level.h"
#include "table/spec.h"

struct cold_place;
struct leaf;

/* What a lane has of a table. */
struct store_layout {
    const struct psi_spec *spec; /* lives as long as the store */
    uint64_t chunks;
    uint64_t first_chunk;    /* sparse tables: what it has is one run of ... */
    uint64_t chunks_in_all;  /* ... these */
    uint64_t memory_max;     /* bytes that the lane may have for all its tables */
    struct cold_place *cold; /* for rows that memory does not hold; NULL: nowhere */
    uint64_t elements;       /* of all of them */
    bool retain;             /* two buffers */
    bool shared; /* values in a segment, for workers on this host, if one is to be had ... */
    bool copied; /* ... and so is what else there is, for a copy on this host */
    enum kernel_level level; /* supported by this CPU */
};

/* The rows of a sparse table, in memory and elsewhere. */
struct store_row_counts {
    uint64_t hot;         /* rows in memory */
    uint64_t cold;        /* rows that are on the disk only */
    uint64_t cold_bytes;  /* on the disk, of all tables of the lane */
    uint64_t cold_reads;  /* rows, so far */
    uint64_t cold_writes; /* likewise */
    uint64_t cold_ns;     /* that the lane spent on both */
    const char *full;     /* why rows cannot be written; NULL: they can */
};

/* What every kind begins with. */
struct store {
    const struct store_ops *ops;
    struct psi_segment *values; /* what workers on this host may read where it is; NULL: nothing */
    struct psi_segment *state;  /* ... and what else a copy on this host may read; NULL: nothing */
    uint64_t bytes;             /* all that it takes */
    struct store_row_counts rows;
};

/* What a gradient is, however it travels: so many numbers of a type. */
struct store_form {
    uint32_t numbers;
    psd_dtype dtype;
};

/* A run of a chunk's numbers; {NULL, 0}: it has none of these. */
struct store_piece {
    uint8_t *base;
    size_t bytes;
};

/* Rows of a sparse table by id, in the order of psi_bucket_mix(), each id once: what `data` of a leaf
 * is there. A gradient may lie in several pieces. */
struct store_rows {
    const uint64_t *ids;
    const void *rows; /* any alignment; in the table's type */
    uint32_t count;
    const struct store_rows *next; /* other rows of the same gradient, with other ids; NULL: none */
};

/* How far a copy of a sparse table has come, piece by piece. Zeroed: nothing is copied yet. */
struct store_walk {
    uint32_t bucket;  /* of those before it pieces have everything */
    uint32_t rows;    /* of this one: so many of its rows, ... */
    uint64_t key;     /* ... all of smaller mixed ids, ... */
    uint32_t counted; /* ... and so many of its counters */
    uint32_t before;  /* at last: rows of the version before */
    bool is_within;   /* the last piece ended in the middle: the next one comes before any change */
    bool is_done;
};

/* Why a change came to nothing. */
struct store_trouble {
    uint64_t id;          /* STORE_BAD_ROW: whose sum is not finite */
    struct psd_error why; /* STORE_NO_ROOM */
};

/* Gradients that meet, and what they change. */
struct store_change {
    const struct leaf *leaves; /* by rising rank; may be empty */
    uint32_t leaf_count;
    uint32_t divisor; /* the sum is divided by it; 0: not divided */
    uint64_t update;  /* number of this update of the chunk, from 1 */
    uint64_t step;    /* of the round, or of the one gradient */
    uint32_t from;    /* the buffer with the value before ... */
    uint32_t to;      /* ... and that of the value after: the same one, or the other */
    void *sum_out;    /* (optional) gets the sum, as the sum of several workers' gradients comes */
    bool was_checked; /* the sum: another lane has applied it */
    struct store_trouble *trouble;
    void *scratch; /* STORE_SCRATCH_BYTES, 64-byte aligned, the caller's own */
};

enum {
    STORE_OK = -1,
    STORE_BAD_ROW = -2,
    STORE_NO_ROOM = -3, /* for more rows: the table is of no use any more */
    /* Room for the sum of a chunk in f64, and for partial sums of a block of it. */
    STORE_SCRATCH_BYTES = PSD_CHUNK_ELEMENTS * 8 + 80 * 1024,
};

struct store_ops {
    /* What it would take. */
    uint64_t (*bytes)(const struct store_layout *layout);

    /* Takes the memory, but touches none of it. PSD_ERR_NO_MEMORY when the system refuses. */
    psd_status (*create)(const struct store_layout *layout, struct store **store_p,
                         struct psd_error *err);
    void (*destroy)(struct store *store);

    /* The lane's chunk is the index-th of the table. For all of them, in order, before any other
     * use. */
    void (*place)(struct store *store, uint64_t chunk, uint64_t index);

    /* Writes initial values, and touches every page of the chunk by that. Returns about how many
     * bytes: a lane does some of it between heartbeats. */
    size_t (*prepare)(struct store *store, uint64_t chunk);

    /* What a gradient of the chunk must be; or the sum of several workers'. */
    struct store_form (*sink)(const struct store *store, uint64_t chunk, bool is_sum);

    /* Adds the leaves and changes the chunk. Returns STORE_OK, or why the job is over: the number in
     * the chunk of an element that is not finite, where the table forbids that; or STORE_* of a
     * sparse table. It may take more memory: store->bytes says so. */
    int64_t (*apply)(struct store *store, uint64_t chunk, const struct store_change *change);

    /* How many numbers that is about: few are not worth timing. */
    uint64_t (*numbers)(const struct store *store, const struct store_change *change);

    /* The value in that buffer: sent from where it lies. */
    struct store_piece (*read)(const struct store *store, uint64_t chunk, uint32_t buffer);

    /* A part of the chunk (PSI_PART_*), to save it, or to load it. */
    struct store_piece (*part)(const struct store *store, uint64_t chunk, unsigned part,
                               uint32_t buffer);

    /* The value in that buffer came from outside: what follows from it is made anew. */
    void (*value_loaded)(struct store *store, uint64_t chunk, uint32_t buffer);

    /* Sparse tables, which are not read otherwise: writes the rows of these ids, as they are in that
     * buffer, into `rows`. NULL: nothing is kept by id. */
    void (*lookup)(struct store *store, uint64_t chunk, uint32_t buffer,
                   const struct store_rows *asked, void *rows);

    /* Sparse tables that keep nothing by id: all rows of the last round, until the next one. */
    struct store_rows (*sums)(const struct store *store, uint64_t chunk);

    /* Their rows, as somebody has them who was given them: in the place of those that are there, or, if it is not
     * the first call for them, behind these. PSD_ERR_PROTOCOL: they do not belong there. */
    psd_status (*take_sums)(struct store *store, uint64_t chunk, const struct store_rows *rows,
                            bool is_first, struct psd_error *err);

    /* Sparse tables, of which there are copies. The list that the last change has applied, its rows in
     * f32, until the next one. */
    struct store_rows (*merged)(const struct store *store);

    /* Writes the next piece of all that the store has; returns how many bytes. There must be room for a
     * row. Rows may change between pieces, but for what walk->is_within says. */
    size_t (*piece)(struct store *store, struct store_walk *walk, void *to, size_t room);

    /* What another store has given as a piece replaces what this one has there. */
    psd_status (*take)(struct store *store, const void *piece, size_t bytes, struct psd_error *err);
};

#endif
