/*
 * hostlist.c - many host names written as one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cluster/hostlist.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 9 };

/* What is being read. */
struct reader {
    const char *text;
    const char *wrong;    /* NULL: nothing so far */
    const char *wrong_at; /* where */
    struct psi_hostlist list;
};

static bool
fail(struct reader *reader, const char *at, const char *wrong)
{
    reader->wrong = wrong;
    reader->wrong_at = at;
    return false;
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The bracket that closes this one, or NULL. */
static const char *
find_close(const char *open, const char *end)
{
    return memchr(open, ']', (size_t)(end - open));
}

/* Brackets with a colon in them belong to an IPv6 address. */
static bool
is_address(const char *open, const char *end)
{
    const char *close = find_close(open, end);

    return close != NULL && memchr(open, ':', (size_t)(close - open)) != NULL;
}

static bool
add_name(struct reader *reader, const char *at, const char *name)
{
    struct psi_hostlist *list = &reader->list;

    if (list->count == PSI_HOSTLIST_NAMES_MAX) {
        return fail(reader, at, "means more than 65536 names");
    }
    if ((list->count & (list->count + 1)) == 0) { /* grows at 0, 1, 3, 7 ... */
        char **names = realloc(list->names, (list->count + 1) * 2 * sizeof(*names));

        if (names == NULL) {
            return fail(reader, at, "needs more memory than there is");
        }
        list->names = names;
    }
    list->names[list->count] = strdup(name);
    if (list->names[list->count] == NULL) {
        return fail(reader, at, "needs more memory than there is");
    }
    list->count++;
    return true;
}

/* A number of at most DIGITS_MAX digits. */
static bool
read_number(struct reader *reader, const char **at, uint32_t *value_p, unsigned *digits_p)
{
    const char *begin = *at;
    uint32_t value = 0;

    while (is_digit(**at) && *at - begin < DIGITS_MAX) {
        value = value * 10 + (uint32_t)(*(*at)++ - '0');
    }
    if (*at == begin || is_digit(**at)) {
        return fail(reader, begin,
                    *at == begin ? "has brackets with something that is no number"
                                 : "has a number with more than 9 digits");
    }
    *value_p = value;
    *digits_p = (unsigned)(*at - begin);
    return true;
}

static bool expand(struct reader *reader, const char *at, const char *end, char *name, size_t used);

/* One range of a bracket: all its numbers, each followed by what stands behind the bracket. */
static bool
expand_range(struct reader *reader, const char **at, const char *rest, const char *end, char *name,
             size_t used)
{
    const char *begin = *at;
    uint32_t low = 0;
    uint32_t high;
    unsigned width = 0;
    unsigned unused;

    if (!read_number(reader, at, &low, &width)) {
        return false;
    }
    high = low;
    if (**at == '-') {
        (*at)++;
        if (!read_number(reader, at, &high, &unused)) {
            return false;
        }
    }
    if (high < low) {
        return fail(reader, begin, "has a range that runs backwards");
    }
    if (high - low >= PSI_HOSTLIST_NAMES_MAX) {
        return fail(reader, begin, "means more than 65536 names");
    }
    for (uint32_t value = low; value <= high; value++) {
        const size_t left = PSI_HOSTLIST_NAME_BYTES - used;
        const int bytes = snprintf(name + used, left, "%0*u", (int)width, value);

        if (bytes < 0 || (size_t)bytes >= left) {
            return fail(reader, begin, "has a name that is too long");
        }
        if (!expand(reader, rest, end, name, used + (size_t)bytes)) {
            return false;
        }
    }
    return true;
}

static bool
expand_bracket(struct reader *reader, const char *at, const char *end, char *name, size_t used)
{
    const char *close = find_close(at, end);

    if (close == NULL) {
        return fail(reader, at, "has a bracket that is not closed");
    }
    at++;
    for (;;) {
        if (!expand_range(reader, &at, close + 1, end, name, used)) {
            return false;
        }
        if (at == close) {
            return true;
        }
        if (*at != ',') {
            return fail(reader, at, "has brackets with something that is no number");
        }
        at++;
    }
}

/* The names of one item from `at` on; the first `used` bytes of name are what stands before. */
static bool
expand(struct reader *reader, const char *at, const char *end, char *name, size_t used)
{
    while (at < end) {
        if (*at == '[' && !is_address(at, end)) {
            return expand_bracket(reader, at, end, name, used);
        }
        if (*at == '[') { /* an address: up to its bracket it is text */
            const size_t bytes = (size_t)(find_close(at, end) - at);

            if (used + bytes >= PSI_HOSTLIST_NAME_BYTES) {
                return fail(reader, at, "has a name that is too long");
            }
            memcpy(name + used, at, bytes);
            used += bytes;
            at += bytes;
        } else if (*at == ']' && memchr(name, '[', used) == NULL) {
            return fail(reader, at, "has a bracket that was not opened");
        }
        if (used + 1 >= PSI_HOSTLIST_NAME_BYTES) {
            return fail(reader, at, "has a name that is too long");
        }
        name[used++] = *at++;
    }
    name[used] = '\0';
    return add_name(reader, end, name);
}

/* Where the item ends: the next comma outside brackets. */
static const char *
item_end(const char *at)
{
    int depth = 0;

    for (; *at != '\0' && (*at != ',' || depth > 0); at++) {
        depth += *at == '[' ? 1 : *at == ']' && depth > 0 ? -1 : 0;
    }
    return at;
}

const char *
psi_hostlist_expand(const char *text, struct psi_hostlist *list_p, size_t *column_p)
{
    struct reader reader = {.text = text};
    const char *at = text;
    bool going = true;

    while (going) {
        const char *end = item_end(at);
        char name[PSI_HOSTLIST_NAME_BYTES];

        going =
            at < end ? expand(&reader, at, end, name, 0) : fail(&reader, at, "has an empty name");
        if (*end == '\0') {
            break;
        }
        at = end + 1;
    }
    if (reader.wrong != NULL) {
        *column_p = (size_t)(reader.wrong_at - text) + 1;
        psi_hostlist_free(&reader.list);
        return reader.wrong;
    }
    *list_p = reader.list;
    return NULL;
}

void
psi_hostlist_free(struct psi_hostlist *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->names[i]);
    }
    free(list->names);
    *list = (struct psi_hostlist){0};
}
