/*
 * curves.c - what workers reported under names.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/curves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
curves_fini(struct curves *curves)
{
    for (uint32_t i = 0; i < curves->count; i++) {
        free(curves->curves[i].points);
    }
    free(curves->curves);
    *curves = (struct curves){0};
}

const struct curve *
curves_find(const struct curves *curves, uint32_t worker, const char *name)
{
    for (uint32_t i = 0; i < curves->count; i++) {
        const struct curve *curve = &curves->curves[i];

        if (curve->worker == worker && strcmp(curve->name, name) == 0) {
            return curve;
        }
    }
    return NULL;
}

/* How many points a curve may have, so that all have room. */
static uint32_t
fair_share(const struct curves *curves)
{
    const uint32_t share = CURVES_POINTS_MAX / (curves->count > 0 ? curves->count : 1);

    return share > CURVES_POINTS_EACH_MAX   ? CURVES_POINTS_EACH_MAX
           : share < CURVES_POINTS_EACH_MIN ? CURVES_POINTS_EACH_MIN
                                            : share;
}

/* Every other point goes, from the last backwards: it stays. */
static void
thin_out(struct curve *curve)
{
    const uint32_t odd = (curve->count - 1) % 2;
    uint32_t kept = 0;

    for (uint32_t i = odd; i < curve->count; i += 2) {
        curve->points[kept++] = curve->points[i];
    }
    curve->count = kept;
    curve->stride *= 2;
}

static struct curve *
add_curve(struct curves *curves, uint32_t worker, const char *name)
{
    struct curve *grown;

    if (curves->count == CURVES_MAX) {
        return NULL;
    }
    if ((curves->count & (curves->count - 1)) == 0) { /* a power of two, or none yet */
        const uint32_t capacity = curves->count > 0 ? 2 * curves->count : 1;

        grown = realloc(curves->curves, capacity * sizeof(*grown));
        if (grown == NULL) {
            return NULL;
        }
        curves->curves = grown;
    }
    grown = &curves->curves[curves->count++];
    *grown = (struct curve){.worker = worker, .stride = 1};
    snprintf(grown->name, sizeof(grown->name), "%s", name);
    for (uint32_t i = 0; i < curves->count; i++) { /* the others make room */
        while (curves->curves[i].count > fair_share(curves)) {
            thin_out(&curves->curves[i]);
        }
    }
    return grown;
}

static bool
make_room(struct curves *curves, struct curve *curve)
{
    uint32_t capacity = curve->capacity > 0 ? 2 * curve->capacity : 16;
    struct curve_point *grown;

    if (curve->count >= fair_share(curves)) {
        thin_out(curve);
    }
    if (curve->count < curve->capacity) {
        return true;
    }
    capacity = capacity > CURVES_POINTS_EACH_MAX ? CURVES_POINTS_EACH_MAX : capacity;
    grown = realloc(curve->points, capacity * sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    curve->points = grown;
    curve->capacity = capacity;
    return true;
}

uint32_t
curves_open(struct curves *curves, uint32_t worker, const char *name)
{
    const struct curve *curve = curves_find(curves, worker, name);

    if (curve == NULL) {
        curve = add_curve(curves, worker, name);
    }
    return curve != NULL ? (uint32_t)(curve - curves->curves) : CURVES_NONE;
}

void
curves_add(struct curves *curves, uint32_t number, const struct curve_point *point)
{
    struct curve *curve;

    if (number == CURVES_NONE) {
        curves->lost++;
        return;
    }
    curve = &curves->curves[number];
    curve->last = point->value;
    if (++curve->skipped < curve->stride) {
        return;
    }
    curve->skipped = 0;
    if (!make_room(curves, curve)) {
        curves->lost++;
        return;
    }
    curve->points[curve->count] = *point;
    curve->points[curve->count++].number = ++curves->number;
}
