/*
 * cold_readers.c - several threads look for keys in LMDB.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/cold_readers.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>

enum { READERS = 16, PAGE_BYTES = 4096 };

/* Every READERS-th key from `first` on. */
struct reader {
    MDB_env *env;
    MDB_dbi tree;
    const uint64_t *keys;
    size_t count;
    size_t first;
    bool started;
    pthread_t thread;
};

uint64_t
cold_readers_faults(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_majflt : 0;
}

/* A wide record has several pages. */
static void
touch(const MDB_val *value)
{
    for (size_t at = 0; at < value->mv_size; at += PAGE_BYTES) {
        (void)*((const volatile char *)value->mv_data + at);
    }
}

static void *
run(void *context)
{
    const struct reader *reader = context;
    MDB_txn *txn;

    if (mdb_txn_begin(reader->env, NULL, MDB_RDONLY, &txn) != 0) {
        return NULL; /* the lane reads it itself */
    }
    for (size_t i = reader->first; i < reader->count; i += READERS) {
        uint64_t key_of = reader->keys[i];
        MDB_val key = {.mv_size = sizeof(key_of), .mv_data = &key_of};
        MDB_val value;

        if (mdb_get(txn, reader->tree, &key, &value) == 0) {
            touch(&value);
        }
    }
    mdb_txn_abort(txn);
    return NULL;
}

/* Signals are the daemon's business: these threads take none. */
void
cold_readers_touch(MDB_env *env, MDB_dbi tree, const uint64_t *keys, size_t count)
{
    struct reader readers[READERS];
    sigset_t all;
    sigset_t old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (size_t i = 0; i < READERS; i++) {
        readers[i] =
            (struct reader){.env = env, .tree = tree, .keys = keys, .count = count, .first = i};
        readers[i].started = pthread_create(&readers[i].thread, NULL, run, &readers[i]) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    for (size_t i = 0; i < READERS; i++) {
        if (readers[i].started) {
            pthread_join(readers[i].thread, NULL);
        }
    }
}
