/*
 * cold_readers_test.c - rows that are on a disk are brought into memory by threads.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/sparse/cold_readers.h"

enum { ROWS = 600, RECORD_BYTES = 6000, MAP_BYTES = 64 << 20 };

static MDB_env *
open_env(const char *path)
{
    MDB_env *env;

    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_mapsize(env, MAP_BYTES), 0);
    assert_int_equal(
        mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOTLS | MDB_NOSYNC | MDB_NORDAHEAD,
                     0600),
        0);
    return env;
}

/* Every second key is there. */
static void
fill(const char *path)
{
    static char record[RECORD_BYTES];
    MDB_env *env = open_env(path);
    MDB_txn *txn;
    MDB_dbi tree;

    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &tree), 0);
    for (uint64_t i = 0; i < ROWS; i += 2) {
        MDB_val key = {.mv_size = sizeof(i), .mv_data = &i};
        MDB_val value = {.mv_size = sizeof(record), .mv_data = record};

        assert_int_equal(mdb_put(txn, tree, &key, &value, 0), 0);
    }
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

/* The kernel forgets what is in the file: it is on the disk only. */
static void
drop_pages(const char *path)
{
    const int fd = open(path, O_RDWR);

    assert_true(fd >= 0);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
}

/* How many pages this thread has waited for, to read all rows. */
static uint64_t
read_all(MDB_txn *txn, MDB_dbi tree)
{
    const uint64_t before = cold_readers_faults();
    uint64_t rows = 0;

    for (uint64_t i = 0; i < ROWS; i++) {
        MDB_val key = {.mv_size = sizeof(i), .mv_data = &i};
        MDB_val value;

        if (mdb_get(txn, tree, &key, &value) == 0) {
            char copy[RECORD_BYTES];

            memcpy(copy, value.mv_data, sizeof(copy));
            rows += copy[RECORD_BYTES - 1] == 0;
        }
    }
    assert_int_equal(rows, ROWS / 2);
    return cold_readers_faults() - before;
}

static uint64_t
faults_of_a_reader(const char *path, bool touched)
{
    uint64_t keys[ROWS];
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi tree;
    uint64_t faults;

    drop_pages(path);
    env = open_env(path);
    assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &tree), 0);
    for (uint64_t i = 0; i < ROWS; i++) {
        keys[i] = i;
    }
    if (touched) {
        cold_readers_touch(env, tree, keys, ROWS);
    }
    faults = read_all(txn, tree);
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return faults;
}

/* If this fails, a lane whose rows are on a disk waits for each of them, one after the other. */
static void
test_threads_wait_for_the_disk(void **state)
{
    char path[] = "/var/tmp/psd_cold_readers.XXXXXX";
    const int fd = mkstemp(path);
    uint64_t alone;
    uint64_t touched;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    fill(path);
    alone = faults_of_a_reader(path, false);
    touched = faults_of_a_reader(path, true);
    unlink(path);
    if (alone < ROWS / 4) { /* a file system in memory has no disk to wait for */
        print_message("only %llu pages came from a disk\n", (unsigned long long)alone);
        skip();
    }
    assert_true(touched < alone / 10);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads_wait_for_the_disk)};

    return cmocka_run_group_tests_name("store_sparse_cold_readers", tests, NULL, NULL);
}
