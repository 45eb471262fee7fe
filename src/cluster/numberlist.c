/*
 * numberlist.c - many numbers written as few.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cluster/numberlist.h"

#include <stdbool.h>
#include <stdlib.h>

enum { COUNT_MAX = 65536, PORT_MAX = 65535 };

/* What is being read. */
struct reader {
    const char *at;
    const char *wrong;    /* NULL: nothing so far */
    const char *wrong_at; /* where */
    struct psi_numberlist list;
};

static bool
fail(struct reader *reader, const char *at, const char *wrong)
{
    reader->wrong = wrong;
    reader->wrong_at = at;
    return false;
}

static bool
add(struct reader *reader, const char *at, uint32_t number)
{
    struct psi_numberlist *list = &reader->list;

    if (list->count == PSI_NUMBERLIST_MAX) {
        return fail(reader, at, "means more than 65536 numbers");
    }
    if ((list->count & (list->count + 1)) == 0) { /* grows at 0, 1, 3, 7 ... */
        uint32_t *numbers = realloc(list->numbers, (list->count + 1) * 2 * sizeof(*numbers));

        if (numbers == NULL) {
            return fail(reader, at, "needs more memory than there is");
        }
        list->numbers = numbers;
    }
    list->numbers[list->count++] = number;
    return true;
}

static bool
read_number(struct reader *reader, uint32_t max, uint32_t *number_p)
{
    const char *begin = reader->at;
    uint32_t number = 0;

    while (*reader->at >= '0' && *reader->at <= '9' && number <= max) {
        number = number * 10 + (uint32_t)(*reader->at++ - '0');
    }
    if (reader->at == begin) {
        return fail(reader, begin, "has something that is no number");
    }
    if (number == 0 || number > max) {
        return fail(reader, begin, "has a number that is out of range");
    }
    *number_p = number;
    return true;
}

/* "3" or "3(x2)" */
static bool
read_count(struct reader *reader)
{
    const char *begin = reader->at;
    uint32_t number = 0;
    uint32_t times = 1;

    if (!read_number(reader, COUNT_MAX, &number)) {
        return false;
    }
    if (reader->at[0] == '(' && reader->at[1] == 'x') {
        reader->at += 2;
        if (!read_number(reader, COUNT_MAX, &times)) {
            return false;
        }
        if (*reader->at != ')') {
            return fail(reader, reader->at, "has a bracket that is not closed");
        }
        reader->at++;
    }
    while (times-- > 0) {
        if (!add(reader, begin, number)) {
            return false;
        }
    }
    return true;
}

/* "12000" or "12000-12003" */
static bool
read_ports(struct reader *reader)
{
    const char *begin = reader->at;
    uint32_t low = 0;
    uint32_t high;

    if (!read_number(reader, PORT_MAX, &low)) {
        return false;
    }
    high = low;
    if (*reader->at == '-') {
        reader->at++;
        if (!read_number(reader, PORT_MAX, &high)) {
            return false;
        }
    }
    if (high < low) {
        return fail(reader, begin, "has a range that runs backwards");
    }
    for (uint32_t port = low; port <= high; port++) {
        if (!add(reader, begin, port)) {
            return false;
        }
    }
    return true;
}

static const char *
read_list(const char *text, bool (*read_item)(struct reader *reader), struct psi_numberlist *list_p,
          size_t *column_p)
{
    struct reader reader = {.at = text};

    while (read_item(&reader) && *reader.at != '\0') {
        if (*reader.at != ',') {
            fail(&reader, reader.at, "has something that is no number");
            break;
        }
        reader.at++;
    }
    if (reader.wrong != NULL) {
        *column_p = (size_t)(reader.wrong_at - text) + 1;
        psi_numberlist_free(&reader.list);
        return reader.wrong;
    }
    *list_p = reader.list;
    return NULL;
}

const char *
psi_numberlist_counts(const char *text, struct psi_numberlist *list_p, size_t *column_p)
{
    return read_list(text, read_count, list_p, column_p);
}

const char *
psi_numberlist_ports(const char *text, struct psi_numberlist *list_p, size_t *column_p)
{
    return read_list(text, read_ports, list_p, column_p);
}

void
psi_numberlist_free(struct psi_numberlist *list)
{
    free(list->numbers);
    *list = (struct psi_numberlist){0};
}
