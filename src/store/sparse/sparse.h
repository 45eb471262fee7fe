/*
 * sparse.h - one lane's rows of a sparse table: found by id, created by their first gradient,
 * changed by a rule, bounded in memory.
 *
 * A row exists from its first counted gradient on. Until then it has its initial value, a pure
 * function of (seed, id, column), and looking at it creates nothing. Lists of ids are sorted by
 * psi_bucket_mix() and hold each id once (shard/bucket.h): sparse_check_ids() says so of what came
 * from outside, all else asserts it.
 *
 * What is in a store depends on the gradients, their ranks and the steps alone: not on arrival,
 * lanes, servers or SIMD level. A copy that gets the same merged lists and the same boundaries with
 * the same steps has the same bits. Numbers are f32 inside; f16 and bf16 are how they travel.
 *
 * No call allocates in the steady state: memory is taken while rows or lists are more than ever
 * before.
 *
 * Thread: a store is owned by its lane. sparse_touch_ahead() alone may run in another thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_SPARSE_H
#define STORE_SPARSE_SPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/level.h"
#include "table/row_policy.h"
#include "table/spec.h"

struct cold_place; /* cold.h */
struct sparse;

/* Later steps count as this one: then nothing is idle any more, and all is as old. */
#define SPARSE_STEP_MAX (UINT32_MAX - 1)

/* What a lane has of a table. */
struct sparse_layout {
    const struct psi_spec *spec; /* lives as long as the store; count is the width of a row */
    const struct psi_row_policy *policy; /* copied; checked, defaults filled in */
    uint32_t bucket_bits;
    uint32_t first_bucket; /* those that the lane has: its share of capacity_rows is theirs */
    uint32_t bucket_count;
    uint64_t memory_max; /* bytes; beyond them rows are refused. 0: no bound but the machine's */
    struct cold_place *cold; /* for rows that memory does not hold (PSI_FULL_SPILL); outlives it */
    enum kernel_level level; /* supported by this CPU */
};

psd_status sparse_create(const struct sparse_layout *layout, struct sparse **store_p,
                         struct psd_error *err);
void sparse_destroy(struct sparse *store);

/* ---- Memory: bounded and told ---- */

struct sparse_memory {
    uint64_t rows;          /* those that are cold included */
    uint64_t row_bytes;     /* of one: head, values, state */
    uint64_t slab_bytes;    /* touched for rows */
    uint64_t index_bytes;   /* that find them */
    uint64_t counter_bytes; /* of admission */
    uint64_t other_bytes;   /* the buckets themselves, scratch */
    uint64_t total_bytes;
    uint64_t spare_bytes;       /* that it may take before memory_max; UINT64_MAX: no bound */
    uint64_t longest_growth_ns; /* processor time of one call, for slabs and indexes that grow */
    uint64_t cold_rows;         /* that memory does not hold */
    uint64_t cold_bytes;        /* on the disk, of all tables of the lane */
    uint64_t cold_reads;        /* rows that were read there ... */
    uint64_t cold_writes;       /* ... and written, ... */
    uint64_t cold_ns;           /* ... and what that took, on the wall */
    const struct psd_error *cold_full; /* why rows cannot be written; NULL: they can */
};

void sparse_memory(const struct sparse *store, struct sparse_memory *memory_p);

/* Touches the next so many bytes for rows, and some for their indexes, so that the lane need not wait
 * for the kernel when it takes them. Changes nothing that the lane sees: any thread may call it, one
 * at a time, from sparse_create() to sparse_destroy(). Returns how many bytes are touched that no row
 * has. */
uint64_t sparse_touch_ahead(struct sparse *store, uint64_t bytes);

/* ---- Ids ---- */

enum sparse_ids { SPARSE_IDS_GOOD, SPARSE_IDS_UNSORTED, SPARSE_IDS_REPEATED, SPARSE_IDS_FOREIGN };

/* Are these sorted, without repetition, and of buckets first .. first + count - 1? *at_p: the index
 * of the one that is not. */
enum sparse_ids sparse_check_ids(const uint64_t *ids, size_t count, uint32_t bucket_bits,
                                 uint32_t first, uint32_t buckets, size_t *at_p);
const char *sparse_ids_text(enum sparse_ids what); /* "not sorted", "an id twice", ... */

/* ---- Reading ---- */

/* Writes a row for each id, one after the other, in the table's type; `rows` has any alignment. */
void sparse_lookup(struct sparse *store, const uint64_t *ids, size_t count, void *rows);

/* ---- Changing ---- */

/* Gradients by id. */
struct sparse_change {
    const uint64_t *ids;
    const void *gradients; /* a row for each id, any alignment */
    size_t count;
    bool is_sum;      /* gradients are f32, as store/merge.h makes them; else in the table's type */
    bool was_checked; /* the numbers are finite: somebody has looked */
    uint32_t divisor; /* the gradients are divided by it; 0: not divided */
    uint64_t update;  /* which update of the table this is, from 1: for the rate's schedule */
    uint64_t step;    /* never below that of an earlier call. Tables without rounds:
                         the largest one that the lane has seen */
};

/* What has become of it. */
struct sparse_outcome {
    bool
        not_finite; /* bad_id has a gradient that is not finite: nothing was changed. Or, in f16 and
                        bf16 tables, its new value is too large: then the table is of no use */
    uint64_t bad_id;
    uint64_t created;
    uint64_t waiting; /* new ids that are not admitted yet */
    uint64_t evicted; /* to make room */
    uint64_t refused; /* new rows for which there is no room: all others have been changed */
};

/*
 * Divides, clips, adds the weight decay and applies the rule, row by row. The rate follows from
 * `update`, the bias correction of adam from the row's own count. A dense table whose other rows get
 * gradients of zero has the same bits with the rules sgd, add and adagrad.
 */
void sparse_apply(struct sparse *store, const struct sparse_change *change,
                  struct sparse_outcome *outcome_p);

/* false: rows that went could not be removed from the disk. The table is of no use then, and
 * sparse_refusal() says why. */
bool sparse_is_sound(const struct sparse *store);

/* Says which bound refuses rows: table, rows, bytes and the setting that moves it. */
psd_status sparse_refusal(const struct sparse *store, struct psd_error *err);

/* Rows that went. Zeroed: none. */
struct sparse_gone {
    uint64_t *ids;
    uint8_t *rows; /* in the table's type, as they were last */
    size_t count;
    size_t capacity;
    bool has_failed; /* there was no memory for one */
};

/* From now on rows that go are added to it; NULL: they are not. It outlives that. */
void sparse_keep_gone(struct sparse *store, struct sparse_gone *gone);
void sparse_gone_fini(struct sparse_gone *gone);

/* Step `step` is closed: rows that are idle or small go, in the buckets whose turn it is. Steps
 * that were left out are made up for. Returns how many went. */
uint64_t sparse_close_step(struct sparse *store, uint64_t step);

/* The steps before this one were closed when these rows were saved, or where they come from. */
void sparse_begin_at(struct sparse *store, uint64_t step);
uint64_t sparse_begins_at(const struct sparse *store);

/* The largest step of a change, or of a row that was loaded: later changes are not before it. */
uint64_t sparse_last_step(const struct sparse *store);

/* ---- Saving, loading, moving: bucket by bucket ---- */

struct sparse_bucket {
    uint32_t rows;
    uint32_t changed; /* 1 + the last step at which a row changed or came; 0: never */
    uint32_t removed; /* 1 + the last step at which a row went; 0: never */
};

struct sparse_bucket sparse_bucket_info(const struct sparse *store, uint32_t bucket);

/* Rows as arrays: of values and state as f32, whatever the table's type. */
struct sparse_rows {
    size_t count;
    uint64_t *ids;
    float *values; /* count * width */
    float *state; /* count * sparse_state_numbers(): for each row its arrays, one after the other */
    uint32_t *steps;  /* at which it was last touched */
    uint32_t *counts; /* how often */
};

uint32_t sparse_state_numbers(const struct sparse *store);

/*
 * The next rows of a bucket in the order of mixed ids: from *cursor_p on (0 at first), `rows->count`
 * at most, which becomes how many there are; only those that were touched at step `since` or later.
 * Returns false when the bucket has no more. Rows may change, come and go between calls: each row
 * that stays is seen once.
 */
bool sparse_save(const struct sparse *store, uint32_t bucket, uint32_t since, uint64_t *cursor_p,
                 struct sparse_rows *rows);

/* Puts rows in, over those of the same ids. false: no room for all of them, see sparse_refusal(). */
bool sparse_load(struct sparse *store, const struct sparse_rows *rows);

/* Forgets the rows of a bucket, and what was counted for admission. */
void sparse_clear(struct sparse *store, uint32_t bucket);

/* The bucket has been loaded from one that was like this. */
void sparse_set_bucket_info(struct sparse *store, uint32_t bucket,
                            const struct sparse_bucket *info);

/* What is counted for admission: *bytes_p of it, *epoch_p its age; NULL: nothing. And back. */
const uint8_t *sparse_counters(const struct sparse *store, uint32_t bucket, size_t *bytes_p,
                               uint32_t *epoch_p);
bool sparse_load_counters(struct sparse *store, uint32_t bucket, const uint8_t *counters,
                          size_t bytes, uint32_t epoch);

/* The same for a part of them, from that one on. */
bool sparse_load_counters_at(struct sparse *store, uint32_t bucket, size_t from,
                             const uint8_t *counters, size_t bytes, uint32_t epoch);

#endif
