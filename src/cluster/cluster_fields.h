/*
 * cluster_fields.h - reading an object of cluster.json: a table of its keys, one reader for each. For
 * cluster*.c only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLUSTER_CLUSTER_FIELDS_H
#define PSI_CLUSTER_CLUSTER_FIELDS_H

#include <jansson.h>
#include <stdbool.h>

#include "cluster/cluster.h"
#include "cluster/hostlist.h"
#include "cluster/json_walk.h"

/* What is being read, and into what. */
struct cluster_parser {
    struct psi_json_text file;
    struct psi_cluster *cluster;
    uint32_t variables_used;
    struct psi_hostlist hosts; /* of the node that is being read */
    const char
        *commands_at; /* where worker_commands and master_port stand, for checks at the end */
    const char *master_port_at;
    const char *tasks_at;
    uint32_t command_count;
};

/* A key, what its value must be, and who reads it. `into` is the reader's own. */
struct cluster_field {
    const char *name;
    json_type type;
    psd_status (*read)(struct cluster_parser *parser, const struct psi_json_item *item, void *into);
};

/* ---- cluster_fields.c */

/* Reads an object by a table of its keys. */
psd_status psi_cluster_fields(struct cluster_parser *parser, const struct psi_json_item *object,
                              const struct cluster_field *fields, size_t count, void *into);

/* A number from min to max, a text, the members of an "env" object. */
psd_status psi_cluster_range(const struct cluster_parser *parser, const struct psi_json_item *item,
                             int min, int max, uint32_t *value_p);
psd_status psi_cluster_text(struct cluster_parser *parser, const struct psi_json_item *item,
                            void *into);
psd_status psi_cluster_variables(struct cluster_parser *parser, const struct psi_json_item *object,
                                 const struct psi_cluster_variable **env_p, uint32_t *count_p);

/* ---- cluster_nodes.c */

/* The nodes of an array, one per slot. */
psd_status psi_cluster_nodes(struct cluster_parser *parser, const struct psi_json_item *array,
                             struct psi_cluster_node *nodes, uint32_t count_max, uint32_t *count_p);

psd_status psi_cluster_check_user(struct cluster_parser *parser, const struct psi_json_item *item);

#endif
