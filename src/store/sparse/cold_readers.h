/*
 * cold_readers.h - several threads look for keys in LMDB, so that the disk has several reads to do.
 *
 * LMDB reads by page faults, one after the other. Where pages are on the disk, and not in the kernel's
 * cache, a lane that reads a thousand rows would wait for each of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_COLD_READERS_H
#define STORE_SPARSE_COLD_READERS_H

#include <lmdb.h>
#include <stddef.h>
#include <stdint.h>

/* Major page faults of this thread so far: pages that came from a disk. 0: the system does not say. */
uint64_t cold_readers_faults(void);

/* Touches the records of these keys, and returns when all are in memory, or when there are no threads to
 * be had. Nobody changes anything meanwhile. */
void cold_readers_touch(MDB_env *env, MDB_dbi tree, const uint64_t *keys, size_t count);

#endif
