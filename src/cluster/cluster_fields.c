/*
 * cluster_fields.c - the keys of an object of cluster.json, and values that several objects have.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cluster/cluster_fields.h"

#include <string.h>

#include "base/fail.h"
#include "config/nearest.h"

psd_status
psi_cluster_range(const struct cluster_parser *parser, const struct psi_json_item *item, int min,
                  int max, uint32_t *value_p)
{
    const json_int_t value = json_integer_value(item->value);

    if (value < min || value > max) {
        return psi_json_fail(&parser->file, item->at, "%s is %lld: must be %d to %d", item->key,
                             (long long)value, min, max);
    }
    *value_p = (uint32_t)value;
    return PSD_OK;
}

/* A string that is not empty, borrowed from the document. */
psd_status
psi_cluster_text(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    if (json_string_length(item->value) == 0) {
        return psi_json_fail(&parser->file, item->at, "%s is empty",
                             item->key != NULL ? item->key : "the string");
    }
    *(const char **)into = json_string_value(item->value);
    return PSD_OK;
}

static psd_status
unknown_key(const struct cluster_parser *parser, const struct psi_json_item *item,
            const struct cluster_field *fields, size_t count)
{
    struct psi_nearest nearest = {.word = item->key};

    for (size_t i = 0; i < count; i++) {
        psi_nearest_try(&nearest, fields[i].name);
    }
    if (nearest.name == NULL) {
        return psi_json_fail(&parser->file, item->key_at, "unknown key \"%.64s\"", item->key);
    }
    return psi_json_fail(&parser->file, item->key_at, "unknown key \"%.64s\"; did you mean \"%s\"?",
                         item->key, nearest.name);
}

/* Reads an object by a table of its keys. */
psd_status
psi_cluster_fields(struct cluster_parser *parser, const struct psi_json_item *object,
                   const struct cluster_field *fields, size_t count, void *into)
{
    struct psi_json_walk walk = {.parent = *object};
    struct psi_json_item item;

    while (psi_json_next(&parser->file, &walk, &item)) {
        psd_status status;
        size_t i = 0;

        while (i < count && strcmp(fields[i].name, item.key) != 0) {
            i++;
        }
        if (i == count) {
            return unknown_key(parser, &item, fields, count);
        }
        status = psi_json_want(&parser->file, &item, item.key, fields[i].type);
        if (status == PSD_OK) {
            status = fields[i].read(parser, &item, into);
        }
        if (status != PSD_OK) {
            return status;
        }
    }
    return PSD_OK;
}

static bool
variable_name_valid(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";

    return name[0] != '\0' && (name[0] < '0' || name[0] > '9') &&
           strspn(name, letters) == strlen(name);
}

/* The members of an "env" object, next in cluster->variables. */
psd_status
psi_cluster_variables(struct cluster_parser *parser, const struct psi_json_item *object,
                      const struct psi_cluster_variable **env_p, uint32_t *count_p)
{
    struct psi_cluster_variable *variable = &parser->cluster->variables[parser->variables_used];
    struct psi_json_walk walk = {.parent = *object};
    struct psi_json_item item;

    *env_p = variable;
    while (psi_json_next(&parser->file, &walk, &item)) {
        psd_status status = psi_json_want(&parser->file, &item, item.key, JSON_STRING);

        if (status != PSD_OK) {
            return status;
        }
        if (!variable_name_valid(item.key)) {
            return psi_json_fail(&parser->file, item.key_at,
                                 "\"%.64s\" cannot be the name of a variable", item.key);
        }
        *variable++ =
            (struct psi_cluster_variable){.name = item.key, .value = json_string_value(item.value)};
    }
    *count_p = (uint32_t)(variable - *env_p);
    parser->variables_used += *count_p;
    return PSD_OK;
}
