/*
 * cache_client.h - rows in Redis or memcached: as fast as a client in C can ask for them.
 *
 * A batch goes out as one write of commands that ask for many keys each, and all answers are read
 * behind it. Redis' keys are the eight bytes of an id; memcached's, which must be text, eleven
 * characters of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_CACHE_CLIENT_H
#define BENCH_CACHE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

struct cache_client;

/* address: the path of a unix socket, or a port on 127.0.0.1. Tries for some seconds: the server may
 * not be there yet. */
psd_status cache_connect(const char *address, bool memcached, struct cache_client **client_p,
                         struct psd_error *err);
void cache_close(struct cache_client *client);

/* Ends the server. */
void cache_shut_down(struct cache_client *client);

/* Stores rows of so many bytes. */
psd_status cache_store(struct cache_client *client, const uint64_t *ids, size_t count,
                       const void *rows, size_t row_bytes, struct psd_error *err);

/* Gets them, in commands of `keys` keys each. PSD_ERR_CORRUPT: one is not there. */
psd_status cache_get(struct cache_client *client, const uint64_t *ids, size_t count, size_t keys,
                     void *rows, size_t row_bytes, struct psd_error *err);

#endif
