/*
 * cluster_nodes.c - the nodes of cluster.json.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "cluster/cluster_fields.h"
#include "cluster/endpoint.h"

static_assert(sizeof(((struct psi_endpoint *)0)->host) == PSI_CLUSTER_HOST_BYTES_MAX + 1 &&
                  sizeof(((struct psi_endpoint *)0)->user) == PSI_CLUSTER_USER_BYTES_MAX + 1,
              "an endpoint is copied into a node");

/* The names of an entry; each becomes a node of its own, see read_nodes(). */
static psd_status
read_host(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    const char *text = json_string_value(item->value);
    struct psi_endpoint endpoint;
    const char *wrong;
    size_t column = 0;

    (void)into;
    psi_hostlist_free(&parser->hosts);
    if (text[0] == '\0') {
        return psi_json_fail(&parser->file, item->at, "host \"\" is empty");
    }
    wrong = psi_hostlist_expand(text, &parser->hosts, &column);
    if (wrong != NULL) {
        return psi_json_fail(&parser->file, item->at, "host \"%.64s\" %s (column %zu)", text, wrong,
                             column);
    }
    for (size_t i = 0; i < parser->hosts.count; i++) {
        wrong = psi_endpoint_parse(parser->hosts.names[i], &endpoint);
        if (wrong != NULL) {
            return psi_json_fail(&parser->file, item->at, "host \"%.64s\" %s",
                                 parser->hosts.names[i], wrong);
        }
    }
    return PSD_OK;
}

/* One of the names of an entry, which was checked. */
static void
set_host(const char *name, struct psi_cluster_node *node)
{
    struct psi_endpoint endpoint = {.port = 0};

    psi_endpoint_parse(name, &endpoint);
    memcpy(node->host, endpoint.host, sizeof(node->host));
    if (node->user[0] == '\0') {
        memcpy(node->user, endpoint.user, sizeof(node->user));
    }
    node->ssh_port = endpoint.port;
}

static psd_status
read_slots(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    return psi_cluster_range(parser, item, 1, PSI_CLUSTER_WORKERS_MAX,
                             &((struct psi_cluster_node *)into)->slots);
}

static psd_status
read_gpus(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    return psi_cluster_range(parser, item, 0, 1024, &((struct psi_cluster_node *)into)->gpus);
}

static psd_status
read_addr(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    const char *text = json_string_value(item->value);
    struct psi_endpoint endpoint;
    const char *wrong = psi_endpoint_parse(text, &endpoint);

    if (wrong != NULL) {
        return psi_json_fail(&parser->file, item->at, "addr \"%.64s\" %s", text, wrong);
    }
    if (endpoint.user[0] != '\0' || endpoint.port != 0) {
        return psi_json_fail(&parser->file, item->at,
                             "addr is an address alone, without user and port");
    }
    ((struct psi_cluster_node *)into)->addr = json_string_value(item->value);
    return PSD_OK;
}

psd_status
psi_cluster_check_user(struct cluster_parser *parser, const struct psi_json_item *item)
{
    const char *user = json_string_value(item->value);

    if (!psi_user_valid(user)) {
        return psi_json_fail(&parser->file, item->at, "%s \"%.64s\" is not a user name", item->key,
                             user);
    }
    return PSD_OK;
}

static psd_status
read_user(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    const psd_status status = psi_cluster_check_user(parser, item);

    if (status == PSD_OK) {
        strcpy(((struct psi_cluster_node *)into)->user, json_string_value(item->value));
    }
    return status;
}

static psd_status
read_node_env(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    struct psi_cluster_node *node = into;

    return psi_cluster_variables(parser, item, &node->env, &node->env_count);
}

static const struct cluster_field node_fields[] = {
    {"host", JSON_STRING, read_host},    {"slots", JSON_INTEGER, read_slots},
    {"addr", JSON_STRING, read_addr},    {"user", JSON_STRING, read_user},
    {"env", JSON_OBJECT, read_node_env}, {"gpus", JSON_INTEGER, read_gpus},
};

/* "host" or {"host": ...} */
static psd_status
read_node(struct cluster_parser *parser, const struct psi_json_item *item,
          struct psi_cluster_node *node)
{
    psd_status status;

    *node = (struct psi_cluster_node){.slots = 1};
    psi_hostlist_free(&parser->hosts);
    if (json_is_string(item->value)) {
        return read_host(parser, item, node);
    }
    if (!json_is_object(item->value)) {
        return psi_json_fail(&parser->file, item->at,
                             "a node must be a string or an object, not %s",
                             psi_json_type_name(json_typeof(item->value)));
    }
    status = psi_cluster_fields(parser, item, node_fields,
                                sizeof(node_fields) / sizeof(node_fields[0]), node);
    if (status == PSD_OK && parser->hosts.count == 0) {
        return psi_json_fail(&parser->file, item->at, "the node has no \"host\"");
    }
    return status;
}

/* The nodes of an array, one per slot. */
psd_status
psi_cluster_nodes(struct cluster_parser *parser, const struct psi_json_item *array,
                  struct psi_cluster_node *nodes, uint32_t count_max, uint32_t *count_p)
{
    struct psi_json_walk walk = {.parent = *array};
    struct psi_json_item item;
    uint32_t count = 0;

    while (psi_json_next(&parser->file, &walk, &item)) {
        struct psi_cluster_node node;
        const psd_status status = read_node(parser, &item, &node);

        if (status != PSD_OK) {
            return status;
        }
        for (size_t i = 0; i < parser->hosts.count; i++) {
            struct psi_cluster_node one = node;

            if (one.slots > count_max - count) {
                return psi_json_fail(&parser->file, item.at, "%s: more than %u processes",
                                     array->key, count_max);
            }
            set_host(parser->hosts.names[i], &one);
            for (; one.slot < one.slots; one.slot++) {
                nodes[count++] = one;
            }
        }
    }
    if (count == 0) {
        return psi_json_fail(&parser->file, array->at, "%s is empty: at least one is needed",
                             array->key);
    }
    *count_p = count;
    return PSD_OK;
}
