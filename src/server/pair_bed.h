/*
 * pair_bed.h - two lanes for tests, one the copy of the other. The test carries what one says to the other, and
 * decides how much of it arrives.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_PAIR_BED_H
#define SERVER_PAIR_BED_H

#include "server/lane_bed.h"

enum { PAIR_NUMBER = 7 };

/* Both, and the line between them. */
struct two {
    struct lane_bed *owner;
    struct lane_bed *copy;
    struct peer *to_copy;    /* the owner's line, at the test's end */
    struct peer *from_owner; /* the copy's */
};

/* What the master says: whose copy it is, or who is to be its copy. */
void order(struct lane_bed *bed, const struct psi_pair *pair);

/* The owner says HELLO, and the copy lets it in. */
void join_lines(struct two *two);

/* A copy for that lane, of a job with so many workers as it has. */
struct two pair_up(struct lane_bed *owner);

/* Hands over what one has said to the other, at most so many frames. Returns how many. */
unsigned to_copy(struct two *two, unsigned most);
unsigned to_owner(struct two *two);
void settle(struct two *two);

void stop(struct two *two);

#endif
