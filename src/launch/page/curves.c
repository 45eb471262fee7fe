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
    free(curves->lists);
    *curves = (struct curves){0};
}

const struct curve *
curves_find(const struct curves *curves, uint32_t worker, const char *name)
{
    for (uint32_t i = 0; worker < curves->list_count && i < curves->lists[worker].count; i++) {
        const struct curve *curve = &curves->curves[curves->lists[worker].number[i]];

        if (strcmp(curve->name, name) == 0) {
            return curve;
        }
    }
    return NULL;
}

static struct curve_list *
list_of(struct curves *curves, uint32_t worker)
{
    if (worker >= curves->list_count) {
        struct curve_list *grown = realloc(curves->lists, (worker + 1) * sizeof(*grown));

        if (grown == NULL) {
            return NULL;
        }
        memset(&grown[curves->list_count], 0, (worker + 1 - curves->list_count) * sizeof(*grown));
        curves->lists = grown;
        curves->list_count = worker + 1;
    }
    return &curves->lists[worker];
}

/* How many points a curve may have, so that all have room. */
static uint32_t
fair_share(const struct curves *curves)
{
    const uint32_t share = CURVES_POINTS_MAX / (curves->count > 0 ? curves->count : 1);

    return share > CURVES_POINTS_EACH_MAX ? CURVES_POINTS_EACH_MAX : share;
}

/* Every other point goes, from the first on. The last one stays in any case. */
static void
thin_out(struct curve *curve)
{
    const struct curve_point last = curve->points[curve->count - 1];
    const uint32_t regular = curve->count - curve->is_passing;
    const bool loses_last = regular % 2 == 0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < regular; i += 2) {
        curve->points[kept++] = curve->points[i];
    }
    curve->skipped += loses_last ? curve->stride : 0;
    curve->stride *= 2;
    curve->is_passing = curve->is_passing || loses_last;
    if (curve->is_passing) {
        curve->points[kept++] = last;
    }
    curve->count = kept;
}

static struct curve *
add_curve(struct curves *curves, uint32_t worker, const char *name)
{
    struct curve_list *list = list_of(curves, worker);
    struct curve *grown;

    if (list == NULL || list->count == CURVES_WORKER_MAX || curves->count == CURVES_MAX) {
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
    list->number[list->count++] = curves->count;
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

static void
drop_passing(struct curve *curve)
{
    curve->count -= curve->is_passing;
    curve->is_passing = false;
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
    drop_passing(curve);
    if (!make_room(curves, curve)) {
        curves->lost++;
        return;
    }
    drop_passing(curve); /* thinning out may have left one */
    curve->is_passing = curve->count > 0 && ++curve->skipped < curve->stride;
    curve->skipped = curve->is_passing ? curve->skipped : 0;
    curve->points[curve->count] = *point;
    curve->points[curve->count++].number = ++curves->number;
}
