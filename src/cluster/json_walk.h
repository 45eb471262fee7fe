/*
 * json_walk.h - the values of a JSON document together with their places in its text.
 *
 * jansson tells the position of a syntax error, but its values do not remember where they stood. So
 * readers walk the text and the values side by side. The text has been parsed by then, so the walk
 * trusts its syntax.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLUSTER_JSON_WALK_H
#define PSI_CLUSTER_JSON_WALK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <psd/status.h>

/* The text of a document, and where complaints about it go. */
struct psi_json_text {
    const char *name; /* of the file */
    const char *text;
    const char *end;
    struct psd_error *err;
};

/* A value and where it stands; of a member also its key. */
struct psi_json_item {
    json_t *value;
    const char *at;
    const char *key; /* NULL in an array */
    const char *key_at;
};

/* A walk over the items of an array or an object. Starts as {.parent = the array or object}. */
struct psi_json_walk {
    struct psi_json_item parent;
    const char *at;
    size_t index;
    void *member;
};

/* Where the outermost value stands. */
const char *psi_json_begin(const struct psi_json_text *text);

/* The next item of the walk, in the order of the text; false at the end. */
bool psi_json_next(const struct psi_json_text *text, struct psi_json_walk *walk,
                   struct psi_json_item *item);

/* Where something stands: both from 1; columns count characters. */
void psi_json_place(const struct psi_json_text *text, const char *at, unsigned *line_p,
                    unsigned *column_p);

/* PSD_ERR_INVALID with "FILE:LINE:COLUMN: " in front of the words; columns count characters. */
psd_status psi_json_fail(const struct psi_json_text *text, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "WHAT must be an array, not a string", unless it is. */
psd_status psi_json_want(const struct psi_json_text *text, const struct psi_json_item *item,
                         const char *what, json_type type);

/* "an array" */
const char *psi_json_type_name(json_type type);

#endif
