/*
 * cold_lmdb.c - a cold store in LMDB: one file for each lane, in which each table has a tree.
 *
 * The file has no name from the start (O_TMPFILE), or loses it at once: so it is gone with its process,
 * however that ends. LMDB opens it by /proc/self/fd. Nothing is synchronised with the disk, since nobody
 * reads it afterwards, and LMDB's own locks are off, since only the lane comes here.
 *
 * LMDB writes through its mapping, which takes a third of the time that its other way takes. A full disk
 * would be a signal there. So before each change the file gets the blocks that the change may need at
 * most: a full disk is an error then, and nothing has been changed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/cold.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fail.h"
#include "store/sparse/cold_readers.h"

static_assert(sizeof(uint64_t) == sizeof(size_t), "MDB_INTEGERKEY compares keys as size_t");

/* FIRST_MAP_BYTES: addresses until a table is opened. SAMPLE: keys by which it is seen whether pages come
 * from the disk: then so many of them wait for some. SPARE_PAGES: that a change takes for itself, and one
 * more for every so many pages that are free (FREE_PAGES_EACH), or fewer. */
enum {
    TABLES_MAX = 256,
    NAME_BYTES = 24,
    FIRST_MAP_BYTES = 1 << 20,
    PATH_BYTES = 4096,
    SAMPLE = 16,
    SAMPLE_FAULTS = 4,
    PAGES_BROUGHT = 1024,
    SPARE_PAGES = 64,
    FREE_PAGES_EACH = 256,
};

struct lmdb_place {
    struct cold_place place; /* first */
    char directory[PATH_BYTES];
    struct psd_error why; /* there is none */
    MDB_env *env;
    MDB_txn *reader;   /* for all reads; reset while a change is made. NULL: none yet */
    bool is_reading;   /* the reader is on, and sees the newest state */
    uint64_t change;   /* how many there were: cursors of earlier ones are renewed */
    size_t map_bytes;  /* what the file system holds: more cannot be written */
    uint64_t reserved; /* bytes that have blocks on the disk, from the start of the file on */
    bool is_large;     /* there are addresses for that */
    unsigned opened;   /* tables that ever were */
    MDB_dbi free[TABLES_MAX]; /* trees without a table */
    unsigned free_count;
};

struct lmdb_table {
    struct cold cold; /* first */
    struct lmdb_place *place;
    MDB_dbi tree;
    size_t record_bytes;
    MDB_cursor *cursor; /* of the reader; NULL: none yet */
    uint64_t change;    /* that the cursor sees */
};

/* What cannot fail unless the store is damaged: then the lane must not go on. */
static void
must(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "cold rows: %s: %s\n", what, mdb_strerror(code));
        abort();
    }
}

/* ---- Reading ---- */

static MDB_txn *
begin_reading(struct lmdb_place *place)
{
    if (!place->is_reading) {
        must(place->reader == NULL ? mdb_txn_begin(place->env, NULL, MDB_RDONLY, &place->reader)
                                   : mdb_txn_renew(place->reader),
             "begin to read");
        place->is_reading = true;
    }
    return place->reader;
}

static void
end_reading(struct lmdb_place *place)
{
    if (place->is_reading) {
        mdb_txn_reset(place->reader);
        place->is_reading = false;
    }
}

static const void *
record_of(const struct lmdb_table *table, const MDB_val *value)
{
    psi_assert(value->mv_size == table->record_bytes);
    return value->mv_data;
}

/* A cursor finds a key at once that is near the one before. */
static MDB_cursor *
reading_cursor(struct lmdb_table *table)
{
    MDB_txn *reader = begin_reading(table->place);

    if (table->cursor == NULL) {
        must(mdb_cursor_open(reader, table->tree, &table->cursor), "begin to read");
    } else if (table->change != table->place->change) {
        must(mdb_cursor_renew(reader, table->cursor), "begin to read");
    }
    table->change = table->place->change;
    return table->cursor;
}

static void
lmdb_get(struct cold *cold, const uint64_t *keys, size_t count, cold_found_fn found, void *context)
{
    struct lmdb_table *table = (struct lmdb_table *)cold;
    MDB_cursor *cursor = reading_cursor(table);

    const uint64_t faults = count > SAMPLE ? cold_readers_faults() : 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t key_of = keys[i];
        MDB_val key = {.mv_size = sizeof(key_of), .mv_data = &key_of};
        MDB_val value;
        int code;

        if (i == SAMPLE && cold_readers_faults() - faults >= SAMPLE_FAULTS) {
            cold_readers_touch(table->place->env, table->tree, keys + i, count - i);
        }
        code = mdb_cursor_get(cursor, &key, &value, MDB_SET);

        if (code != MDB_NOTFOUND) {
            must(code, "read a row");
            found(context, i, record_of(table, &value));
        }
    }
}

static bool
lmdb_next(struct cold *cold, uint64_t from, struct cold_row *row_p)
{
    struct lmdb_table *table = (struct lmdb_table *)cold;
    MDB_val key = {.mv_size = sizeof(from), .mv_data = &from};
    MDB_val value;
    const int code = mdb_cursor_get(reading_cursor(table), &key, &value, MDB_SET_RANGE);

    if (code == MDB_NOTFOUND) {
        return false;
    }
    must(code, "go through rows");
    row_p->record = record_of(table, &value);
    memcpy(&row_p->key, key.mv_data, sizeof(row_p->key));
    return true;
}

/* ---- Changing ---- */

/* Blocks for so many new pages at the end: those before it have some. */
static int
reserve(struct lmdb_place *place, uint64_t pages)
{
    MDB_envinfo info;
    MDB_stat stat;
    uint64_t end;
    int fd;

    must(mdb_env_info(place->env, &info), "tell its size");
    must(mdb_env_stat(place->env, &stat), "tell its size");
    must(mdb_env_get_fd(place->env, &fd), "tell its file");
    end = ((uint64_t)info.me_last_pgno + 1 + pages) * stat.ms_psize;
    if (end <= place->reserved) {
        return 0;
    }
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)end) != 0) {
        return errno;
    }
    place->reserved = end;
    return 0;
}

/* Each row has a page of its own at worst, which is copied, and may be split; and so may be those above
 * it. What is wide has more pages. */
static uint64_t
pages_for(struct lmdb_table *table, size_t count)
{
    MDB_txn *reader = begin_reading(table->place);
    const size_t bytes = table->record_bytes;
    MDB_stat stat;

    must(mdb_stat(reader, table->tree, &stat), "tell its size");
    return 2 * (count + stat.ms_branch_pages) + count / 8 + SPARE_PAGES +
           (bytes > stat.ms_psize / 4 ? count * (bytes / stat.ms_psize + 2) : 0);
}

static psd_status
fail(const struct lmdb_place *place, int code, const char *what, struct psd_error *err)
{
    return psi_fail(err, PSD_ERR_IO, "%s in %s: %s", what, place->directory, mdb_strerror(code));
}

/* pages: that it takes at most. */
static int
begin_change(struct lmdb_place *place, uint64_t pages, MDB_txn **change_p)
{
    int code;

    end_reading(place);
    code = reserve(place, pages);
    place->change++;
    return code == 0 ? mdb_txn_begin(place->env, NULL, 0, change_p) : code;
}

/* What was changed counts; or, after an error, none of it. */
static int
end_change(MDB_txn *change, int code)
{
    if (code == 0) {
        return mdb_txn_commit(change);
    }
    mdb_txn_abort(change);
    return code;
}

static int
put_all(const struct lmdb_table *table, MDB_txn *change, const struct cold_row *rows, size_t count)
{
    MDB_cursor *cursor;
    int code = mdb_cursor_open(change, table->tree, &cursor);

    if (code != 0) {
        return code;
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        uint64_t key_of = rows[i].key;
        MDB_val key = {.mv_size = sizeof(key_of), .mv_data = &key_of};
        MDB_val value = {.mv_size = table->record_bytes, .mv_data = (void *)rows[i].record};

        code = mdb_cursor_put(cursor, &key, &value, 0);
    }
    mdb_cursor_close(cursor);
    return code;
}

static void
ignore(void *context, size_t index, const void *record)
{
    (void)context;
    (void)index;
    (void)record;
}

/* Pages that are about to be changed are read first, as those that are wanted are (lmdb_get): but where a
 * sample of them is in memory, the others are taken to be there, too. */
static void
bring_pages(struct lmdb_table *table, const struct cold_row *rows, size_t count)
{
    const uint64_t faults = cold_readers_faults();
    uint64_t keys[PAGES_BROUGHT];

    count = count < PAGES_BROUGHT ? count : PAGES_BROUGHT;
    for (size_t i = 0; i < count; i++) {
        keys[i] = rows[i].key;
    }
    if (count > SAMPLE) {
        lmdb_get(&table->cold, keys, SAMPLE, ignore, NULL);
        if (cold_readers_faults() - faults >= SAMPLE_FAULTS) {
            cold_readers_touch(table->place->env, table->tree, keys + SAMPLE, count - SAMPLE);
        }
    }
}

static psd_status
lmdb_put(struct cold *cold, const struct cold_row *rows, size_t count, struct psd_error *err)
{
    struct lmdb_table *table = (struct lmdb_table *)cold;
    MDB_txn *change;
    int code;

    bring_pages(table, rows, count);
    code = begin_change(table->place, pages_for(table, count), &change);

    if (code == 0) {
        code = end_change(change, put_all(table, change, rows, count));
    }
    return code == 0 ? PSD_OK : fail(table->place, code, "write rows", err);
}

static psd_status
lmdb_remove(struct cold *cold, const uint64_t *keys, size_t count, struct psd_error *err)
{
    struct lmdb_table *table = (struct lmdb_table *)cold;
    MDB_txn *change;
    int code = begin_change(table->place, pages_for(table, count), &change);

    if (code == 0) {
        for (size_t i = 0; i < count && code == 0; i++) {
            uint64_t key_of = keys[i];
            MDB_val key = {.mv_size = sizeof(key_of), .mv_data = &key_of};

            code = mdb_del(change, table->tree, &key, NULL);
            code = code == MDB_NOTFOUND ? 0 : code;
        }
        code = end_change(change, code);
    }
    return code == 0 ? PSD_OK : fail(table->place, code, "remove rows", err);
}

static uint64_t
lmdb_bytes(const struct cold *cold)
{
    const struct lmdb_table *table = (const struct lmdb_table *)cold;
    MDB_envinfo info;
    MDB_stat stat;

    must(mdb_env_info(table->place->env, &info), "tell its size");
    must(mdb_env_stat(table->place->env, &stat), "tell its size");
    return (uint64_t)(info.me_last_pgno + 1) * stat.ms_psize;
}

/* The tree stays, empty, for the next table: its pages are used again. */
static void
lmdb_close(struct cold *cold)
{
    struct lmdb_table *table = (struct lmdb_table *)cold;
    struct lmdb_place *place = table->place;
    MDB_envinfo info;
    MDB_txn *change;
    int code;

    if (table->cursor != NULL) {
        mdb_cursor_close(table->cursor);
    }
    must(mdb_env_info(place->env, &info), "tell its size");
    code = begin_change(place, SPARE_PAGES + info.me_last_pgno / FREE_PAGES_EACH, &change);
    if (code == 0) {
        code = end_change(change, mdb_drop(change, table->tree, 0));
    }
    if (code == 0) { /* else what is in it stays there, and nobody looks at it */
        place->free[place->free_count++] = table->tree;
    }
    free(table);
}

/* ---- Tables ---- */

static int
enlarge(struct lmdb_place *place)
{
    int code = 0;

    if (!place->is_large) {
        end_reading(place);
        code = mdb_env_set_mapsize(place->env, place->map_bytes);
        place->is_large = code == 0;
    }
    return code;
}

static int
open_tree(struct lmdb_place *place, MDB_dbi *tree_p)
{
    char name[NAME_BYTES];
    MDB_txn *change;
    int code;

    if (place->free_count > 0) {
        *tree_p = place->free[--place->free_count];
        return 0;
    }
    snprintf(name, sizeof(name), "%u", place->opened);
    code = begin_change(place, SPARE_PAGES, &change);
    if (code == 0) {
        code = end_change(change, mdb_dbi_open(change, name, MDB_CREATE | MDB_INTEGERKEY, tree_p));
    }
    place->opened += code == 0;
    return code;
}

static const struct cold_ops lmdb_ops = {
    .get = lmdb_get,
    .next = lmdb_next,
    .put = lmdb_put,
    .remove = lmdb_remove,
    .bytes = lmdb_bytes,
    .close = lmdb_close,
};

static psd_status
lmdb_open(void *self, const char *name, size_t record_bytes, struct cold **cold_p,
          struct psd_error *err)
{
    struct lmdb_place *place = self;
    struct lmdb_table *table;
    int code;

    if (place->env == NULL) {
        return psi_fail(err, place->why.status,
                        "sparse table %s: full is spill, but there is no place for its rows: %s "
                        "(give --cold_dir another directory)",
                        name, place->why.text);
    }
    table = calloc(1, sizeof(*table));
    if (table == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "sparse table %s: no memory", name);
    }
    code = enlarge(place);
    if (code == 0) {
        code = open_tree(place, &table->tree);
    }
    if (code != 0) {
        free(table);
        return psi_fail(err, PSD_ERR_IO, "sparse table %s: make a place for its rows in %s: %s",
                        name, place->directory, mdb_strerror(code));
    }
    table->cold.ops = &lmdb_ops;
    table->place = place;
    table->record_bytes = record_bytes;
    *cold_p = &table->cold;
    return PSD_OK;
}

/* ---- The file ---- */

/* -1: errno says why. */
static int
open_without_name(const char *directory)
{
    char path[PATH_BYTES + 16];
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) {
        return fd;
    }
    snprintf(path, sizeof(path), "%s/psd.XXXXXX", directory); /* this file system cannot do it */
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) {
        (void)unlink(path);
    }
    return fd;
}

static size_t
file_system_bytes(int fd)
{
    struct statvfs disk;
    struct rlimit file;
    size_t bytes = (size_t)1 << 40;

    if (fstatvfs(fd, &disk) == 0 && disk.f_blocks > 0) {
        bytes = (size_t)disk.f_blocks * disk.f_frsize;
    }
    if (getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur < bytes) {
        bytes = file.rlim_cur;
    }
    return bytes;
}

static int
open_env(struct lmdb_place *place, int fd)
{
    const unsigned flags = MDB_NOSUBDIR | MDB_WRITEMAP | MDB_NOSYNC | MDB_NOMETASYNC | MDB_NOLOCK |
                           MDB_NOTLS | MDB_NORDAHEAD;
    char path[NAME_BYTES + 16];
    int code = mdb_env_create(&place->env);

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (code == 0) {
        code = mdb_env_set_maxdbs(place->env, TABLES_MAX);
    }
    if (code == 0) {
        code = mdb_env_set_mapsize(place->env, FIRST_MAP_BYTES);
    }
    if (code == 0) {
        code = mdb_env_open(place->env, path, flags, 0600);
    }
    if (code != 0 && place->env != NULL) {
        mdb_env_close(place->env);
        place->env = NULL;
    }
    return code;
}

struct cold_place *
cold_place_create(const char *directory)
{
    struct lmdb_place *place = calloc(1, sizeof(*place));
    int fd;
    int code;

    if (place == NULL) {
        return NULL;
    }
    place->place = (struct cold_place){.self = place, .open = lmdb_open};
    if ((size_t)snprintf(place->directory, sizeof(place->directory), "%s", directory) >=
        sizeof(place->directory)) {
        psi_fail(&place->why, PSD_ERR_INVALID, "%.64s...: too long", directory);
        return &place->place;
    }
    fd = open_without_name(directory);
    if (fd < 0) {
        psi_fail_errno(&place->why, PSD_ERR_IO, "make a file in %s", directory);
        return &place->place;
    }
    place->map_bytes = file_system_bytes(fd);
    code = open_env(place, fd);
    close(fd);
    if (code != 0) {
        psi_fail(&place->why, PSD_ERR_IO, "open a file in %s with LMDB: %s", directory,
                 mdb_strerror(code));
    }
    return &place->place;
}

void
cold_place_destroy(struct cold_place *place)
{
    struct lmdb_place *lmdb = (struct lmdb_place *)place;

    if (lmdb == NULL) {
        return;
    }
    if (lmdb->env != NULL) {
        if (lmdb->reader != NULL) {
            mdb_txn_abort(lmdb->reader);
        }
        mdb_env_close(lmdb->env);
    }
    free(lmdb);
}
