/*
 * readers.h - who looks at the values of a simulated job from outside, and whether it is told the truth.
 *
 * What a reader gets of a bulk-synchronous table is, row by row or chunk by chunk, the value of the version that
 * came with it, as the oracle has it; and no worker had a later version longer ago than the reader is told that
 * its own may be old.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_READERS_H
#define SIM_READERS_H

#include <stdint.h>

struct job;
struct readers;

/* As many as the plan says; they come when they like. NULL: none. */
struct readers *readers_create(struct job *job);
void readers_destroy(struct readers *readers); /* NULL is allowed */

/* A worker has that version. */
void readers_note(struct readers *readers, unsigned table, uint64_t chunk, uint64_t version);

#endif
