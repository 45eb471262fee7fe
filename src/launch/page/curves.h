/*
 * curves.h - what workers reported under names, as curves over steps.
 *
 * A curve that gets too long loses every other of its points: it keeps its first and its last point,
 * with fewer in between. All curves together have POINTS_MAX at most, and no worker's are so many
 * that others have no room.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_CURVES_H
#define LAUNCH_PAGE_CURVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CURVES_MAX = 16384,
    CURVES_WORKER_MAX = 1024, /* of one worker */
    CURVES_POINTS_MAX = 200000,
    CURVES_POINTS_EACH_MAX = 4096,
    CURVES_NAME_BYTES = 32,
};

#define CURVES_NONE UINT32_MAX

struct curve_point {
    uint64_t number; /* of all points of all curves, from 1 */
    uint64_t step;
    uint64_t unix_ms;
    double value;
};

struct curve {
    char name[CURVES_NAME_BYTES];
    uint32_t worker;
    struct curve_point *points; /* owned */
    uint32_t count;
    uint32_t capacity;
    uint32_t stride; /* of what came, one in so many is kept */
    uint32_t skipped;
    bool is_passing; /* the last point is not one of these: the next takes its place */
    double last;
};

/* The curves of one worker, by their numbers. */
struct curve_list {
    uint32_t count;
    uint32_t number[CURVES_WORKER_MAX];
};

/* Thread: guarded by its owner. */
struct curves {
    struct curve *curves; /* owned */
    uint32_t count;
    struct curve_list *lists; /* owned; by worker */
    uint32_t list_count;
    uint64_t number; /* of the last point */
    uint64_t lost;   /* points without room: too many curves, or no memory */
};

void curves_fini(struct curves *curves);

/* The number of a curve, which is made if there is none; CURVES_NONE: there are too many. */
uint32_t curves_open(struct curves *curves, uint32_t worker, const char *name);
void curves_add(struct curves *curves, uint32_t number, const struct curve_point *point);

/* The curve, or NULL. */
const struct curve *curves_find(const struct curves *curves, uint32_t worker, const char *name);

#endif
