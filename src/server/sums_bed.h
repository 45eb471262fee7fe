/*
 * sums_bed.h - a lane with one table of sums, in a job that goes on when a server dies. The test is
 * its workers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_SUMS_BED_H
#define SERVER_SUMS_BED_H

#include "server/lane_bed.h"

enum { SUMS_TABLE = 1, SUMS_CHUNKS_MAX = 2 };

/* In the server's first life; or in its second, when no worker has reported yet. */
struct lane_bed *sums_start(uint32_t workers, uint32_t chunks);
struct lane_bed *sums_start_again(uint32_t workers, uint32_t chunks);

/* The same with one chunk, and one of the workers joined at that step of it. */
struct lane_bed *sums_start_again_joined(uint32_t workers, uint32_t joiner, uint64_t step);

/* The same with one chunk, and one of the workers has left by a view that the server has missed. */
struct lane_bed *sums_start_again_without(uint32_t workers, uint32_t leaver);

/* A gradient, all of whose numbers are `value`. */
struct sums_push {
    uint8_t type; /* 0: PUSH_PULL */
    uint16_t flags;
    uint32_t chunk;
    uint64_t step;
    uint32_t request;
    float value;
};

void sums_push(struct lane_bed *bed, uint32_t rank, struct sums_push push);

/* The sum that the next VALUE to that worker brings; NAN: there is none. */
float sums_value(struct lane_bed *bed, uint32_t rank);
/* ... and the flags of that VALUE; 0xffff: there is none. */
uint16_t sums_value_flags(struct lane_bed *bed, uint32_t rank);

void sums_got(struct lane_bed *bed, uint32_t rank, uint32_t chunk, uint64_t step);

/* Of so many chunks, from the first on. */
void sums_adopt(struct lane_bed *bed, uint32_t rank, uint32_t chunks, uint64_t base,
                enum psi_has has);

/* Does the next RELEASE to that worker have this result, and so many in all? */
bool sums_released(struct lane_bed *bed, uint32_t rank, uint32_t chunk, uint64_t step,
                   uint32_t count);

/* The same of the next question whether it has got results. */
bool sums_asked(struct lane_bed *bed, uint32_t rank, uint32_t chunk, uint64_t step, uint32_t count);

/* The worker is about to leave; has it been told that it may go? */
void sums_bye(struct lane_bed *bed, uint32_t rank);
bool sums_may_go(struct lane_bed *bed, uint32_t rank);

/* The next GIVE to that worker: its step; UINT64_MAX: there is none. */
uint64_t sums_given(struct lane_bed *bed, uint32_t rank);
void sums_show(struct lane_bed *bed, uint32_t rank, uint32_t chunk, uint64_t step, float value);

/* What the lane says a read of that step of a chunk waits for. */
const char *sums_why(struct lane_bed *bed, uint32_t rank, uint32_t chunk, uint64_t step);

#endif
