/*
 * json_walk.c - the values of a JSON document together with their places in its text.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cluster/json_walk.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"

static const char *
skip_string(const struct psi_json_text *text, const char *at)
{
    for (at++; at < text->end && *at != '"'; at++) {
        if (*at == '\\') {
            at++;
        }
    }
    return at + 1;
}

/* What stands between two items. */
static const char *
skip_joint(const struct psi_json_text *text, const char *at)
{
    while (at < text->end && strchr(" \t\r\n,:", *at) != NULL) {
        at++;
    }
    return at;
}

static const char *
skip_value(const struct psi_json_text *text, const char *at)
{
    int depth = 0;

    do {
        if (*at == '"') {
            at = skip_string(text, at);
            continue;
        }
        if (*at == '{' || *at == '[') {
            depth++;
        } else if (*at == '}' || *at == ']') {
            depth--;
        }
        at++;
    } while (at < text->end && (depth > 0 || strchr(" \t\r\n,]}", *at) == NULL));
    return at;
}

const char *
psi_json_begin(const struct psi_json_text *text)
{
    return skip_joint(text, text->text);
}

bool
psi_json_next(const struct psi_json_text *text, struct psi_json_walk *walk,
              struct psi_json_item *item)
{
    json_t *parent = walk->parent.value;

    if (walk->index == 0) {
        walk->at = walk->parent.at + 1;
        walk->member = json_object_iter(parent);
    } else if (json_is_object(parent)) {
        walk->member = json_object_iter_next(parent, walk->member);
    }
    *item = (struct psi_json_item){.at = skip_joint(text, walk->at)};
    if (json_is_object(parent)) {
        if (walk->member == NULL) {
            return false;
        }
        item->key = json_object_iter_key(walk->member);
        item->value = json_object_iter_value(walk->member);
        item->key_at = item->at;
        item->at = skip_joint(text, skip_string(text, item->at));
    } else {
        item->value = json_array_get(parent, walk->index);
    }
    if (item->value == NULL) {
        return false;
    }
    walk->at = skip_value(text, item->at);
    walk->index++;
    return true;
}

void
psi_json_place(const struct psi_json_text *text, const char *at, unsigned *line_p,
               unsigned *column_p)
{
    unsigned line = 1;
    unsigned column = 1;

    for (const char *c = text->text; c < at; c++) {
        if (*c == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)*c & 0xc0) != 0x80) {
            column++; /* bytes that continue a character do not count */
        }
    }
    *line_p = line;
    *column_p = column;
}

psd_status
psi_json_fail(const struct psi_json_text *text, const char *at, const char *format, ...)
{
    unsigned line;
    unsigned column;
    char words[400];
    va_list args;

    psi_json_place(text, at, &line, &column);
    va_start(args, format);
    vsnprintf(words, sizeof(words), format, args);
    va_end(args);
    return psi_fail(text->err, PSD_ERR_INVALID, "%s:%u:%u: %s", text->name, line, column, words);
}

const char *
psi_json_type_name(json_type type)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_REAL] = "a fraction", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",        [JSON_NULL] = "null"};

    return names[type];
}

psd_status
psi_json_want(const struct psi_json_text *text, const struct psi_json_item *item, const char *what,
              json_type type)
{
    if (json_typeof(item->value) == type) {
        return PSD_OK;
    }
    return psi_json_fail(text, item->at, "%s must be %s, not %s", what, psi_json_type_name(type),
                         psi_json_type_name(json_typeof(item->value)));
}
