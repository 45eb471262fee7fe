/*
 * cold_memory.c - a cold store that is no file: an array of records by rising keys.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cold_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

struct entry {
    uint64_t key;
    void *record; /* owned */
};

struct memory_table {
    struct cold cold; /* first */
    struct cold_memory *memory;
    size_t record_bytes;
    struct entry *entries;
    size_t count;
    size_t capacity;
};

/* The first entry from that key on. */
static size_t
find(const struct memory_table *table, uint64_t key)
{
    size_t low = 0;
    size_t high = table->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (table->entries[middle].key < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool
is_there(const struct memory_table *table, size_t at, uint64_t key)
{
    return at < table->count && table->entries[at].key == key;
}

static void
memory_get(struct cold *cold, const uint64_t *keys, size_t count, cold_found_fn found,
           void *context)
{
    struct memory_table *table = (struct memory_table *)cold;

    for (size_t i = 0; i < count; i++) {
        const size_t at = find(table, keys[i]);

        if (is_there(table, at, keys[i])) {
            found(context, i, table->entries[at].record);
        }
    }
}

static bool
memory_next(struct cold *cold, uint64_t from, struct cold_row *row_p)
{
    struct memory_table *table = (struct memory_table *)cold;
    const size_t at = find(table, from);

    if (at < table->count) {
        *row_p =
            (struct cold_row){.key = table->entries[at].key, .record = table->entries[at].record};
    }
    return at < table->count;
}

static void
add(struct memory_table *table, size_t at, uint64_t key)
{
    if (table->count == table->capacity) {
        table->capacity = table->capacity == 0 ? 64 : 2 * table->capacity;
        table->entries = realloc(table->entries, table->capacity * sizeof(struct entry));
        psi_assert(table->entries != NULL);
    }
    memmove(table->entries + at + 1, table->entries + at,
            (table->count - at) * sizeof(struct entry));
    table->entries[at] = (struct entry){.key = key, .record = malloc(table->record_bytes)};
    psi_assert(table->entries[at].record != NULL);
    table->count++;
    table->memory->rows++;
}

static psd_status
full(struct psd_error *err)
{
    return psi_fail(err, PSD_ERR_IO, "No space left on device");
}

static psd_status
memory_put(struct cold *cold, const struct cold_row *rows, size_t count, struct psd_error *err)
{
    struct memory_table *table = (struct memory_table *)cold;

    if (table->memory->is_full) {
        return full(err);
    }
    for (size_t i = 0; i < count; i++) {
        const size_t at = find(table, rows[i].key);

        if (!is_there(table, at, rows[i].key)) {
            add(table, at, rows[i].key);
        }
        memcpy(table->entries[at].record, rows[i].record, table->record_bytes);
        table->memory->puts++;
    }
    return PSD_OK;
}

static psd_status
memory_remove(struct cold *cold, const uint64_t *keys, size_t count, struct psd_error *err)
{
    struct memory_table *table = (struct memory_table *)cold;

    if (table->memory->is_full) {
        return full(err);
    }
    for (size_t i = 0; i < count; i++) {
        const size_t at = find(table, keys[i]);

        if (is_there(table, at, keys[i])) {
            free(table->entries[at].record);
            table->count--;
            memmove(table->entries + at, table->entries + at + 1,
                    (table->count - at) * sizeof(struct entry));
            table->memory->rows--;
        }
    }
    return PSD_OK;
}

static uint64_t
memory_bytes(const struct cold *cold)
{
    const struct memory_table *table = (const struct memory_table *)cold;

    return table->memory->rows * table->record_bytes;
}

static void
memory_close(struct cold *cold)
{
    struct memory_table *table = (struct memory_table *)cold;

    for (size_t i = 0; i < table->count; i++) {
        free(table->entries[i].record);
    }
    table->memory->rows -= table->count;
    table->memory->tables--;
    free(table->entries);
    free(table);
}

static psd_status
memory_open(void *self, const char *name, size_t record_bytes, struct cold **cold_p,
            struct psd_error *err)
{
    static const struct cold_ops ops = {
        .get = memory_get,
        .next = memory_next,
        .put = memory_put,
        .remove = memory_remove,
        .bytes = memory_bytes,
        .close = memory_close,
    };
    struct cold_memory *memory = self;
    struct memory_table *table = calloc(1, sizeof(*table));

    if (table == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory", name);
    }
    table->cold.ops = &ops;
    table->memory = memory;
    table->record_bytes = record_bytes;
    memory->tables++;
    *cold_p = &table->cold;
    return PSD_OK;
}

struct cold_place *
cold_memory_place(struct cold_memory *memory)
{
    memory->place = (struct cold_place){.self = memory, .open = memory_open};
    return &memory->place;
}
