/*
 * cluster.c - cluster.json, read with jansson.
 *
 * One table of keys per kind of object, one reader per key. Strings stay in jansson's document and
 * are borrowed from it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cluster/cluster.h"

#include <assert.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "cluster/endpoint.h"
#include "cluster/hostlist.h"
#include "cluster/json_walk.h"
#include "config/nearest.h"

static_assert(sizeof(((struct psi_endpoint *)0)->host) == PSI_CLUSTER_HOST_BYTES_MAX + 1 &&
                  sizeof(((struct psi_endpoint *)0)->user) == PSI_CLUSTER_USER_BYTES_MAX + 1,
              "an endpoint is copied into a node");

/* What is being read, and into what. */
struct parser {
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
struct field {
    const char *name;
    json_type type;
    psd_status (*read)(struct parser *parser, const struct psi_json_item *item, void *into);
};

/* ------------------------------------------------------------------------- small values --- */

static psd_status
want_range(const struct parser *parser, const struct psi_json_item *item, int min, int max,
           uint32_t *value_p)
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
static psd_status
read_text(struct parser *parser, const struct psi_json_item *item, void *into)
{
    if (json_string_length(item->value) == 0) {
        return psi_json_fail(&parser->file, item->at, "%s is empty",
                             item->key != NULL ? item->key : "the string");
    }
    *(const char **)into = json_string_value(item->value);
    return PSD_OK;
}

static psd_status
unknown_key(const struct parser *parser, const struct psi_json_item *item,
            const struct field *fields, size_t count)
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
static psd_status
read_fields(struct parser *parser, const struct psi_json_item *object, const struct field *fields,
            size_t count, void *into)
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
static psd_status
read_variables(struct parser *parser, const struct psi_json_item *object,
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

/* -------------------------------------------------------------------------------- nodes --- */

/* The names of an entry; each becomes a node of its own, see read_nodes(). */
static psd_status
read_host(struct parser *parser, const struct psi_json_item *item, void *into)
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
read_slots(struct parser *parser, const struct psi_json_item *item, void *into)
{
    return want_range(parser, item, 1, PSI_CLUSTER_WORKERS_MAX,
                      &((struct psi_cluster_node *)into)->slots);
}

static psd_status
read_gpus(struct parser *parser, const struct psi_json_item *item, void *into)
{
    return want_range(parser, item, 0, 1024, &((struct psi_cluster_node *)into)->gpus);
}

static psd_status
read_addr(struct parser *parser, const struct psi_json_item *item, void *into)
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

static psd_status
check_user(struct parser *parser, const struct psi_json_item *item)
{
    const char *user = json_string_value(item->value);

    if (!psi_user_valid(user)) {
        return psi_json_fail(&parser->file, item->at, "%s \"%.64s\" is not a user name", item->key,
                             user);
    }
    return PSD_OK;
}

static psd_status
read_user(struct parser *parser, const struct psi_json_item *item, void *into)
{
    const psd_status status = check_user(parser, item);

    if (status == PSD_OK) {
        strcpy(((struct psi_cluster_node *)into)->user, json_string_value(item->value));
    }
    return status;
}

static psd_status
read_node_env(struct parser *parser, const struct psi_json_item *item, void *into)
{
    struct psi_cluster_node *node = into;

    return read_variables(parser, item, &node->env, &node->env_count);
}

static const struct field node_fields[] = {
    {"host", JSON_STRING, read_host},    {"slots", JSON_INTEGER, read_slots},
    {"addr", JSON_STRING, read_addr},    {"user", JSON_STRING, read_user},
    {"env", JSON_OBJECT, read_node_env}, {"gpus", JSON_INTEGER, read_gpus},
};

/* "host" or {"host": ...} */
static psd_status
read_node(struct parser *parser, const struct psi_json_item *item, struct psi_cluster_node *node)
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
    status =
        read_fields(parser, item, node_fields, sizeof(node_fields) / sizeof(node_fields[0]), node);
    if (status == PSD_OK && parser->hosts.count == 0) {
        return psi_json_fail(&parser->file, item->at, "the node has no \"host\"");
    }
    return status;
}

/* The nodes of an array, one per slot. */
static psd_status
read_nodes(struct parser *parser, const struct psi_json_item *array, struct psi_cluster_node *nodes,
           uint32_t count_max, uint32_t *count_p)
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

/* ---------------------------------------------------------------------- the whole file --- */

static psd_status
read_workers(struct parser *parser, const struct psi_json_item *item, void *into)
{
    struct psi_cluster *cluster = into;

    return read_nodes(parser, item, cluster->workers, PSI_CLUSTER_WORKERS_MAX,
                      &cluster->worker_count);
}

static psd_status
read_servers(struct parser *parser, const struct psi_json_item *item, void *into)
{
    struct psi_cluster *cluster = into;

    return read_nodes(parser, item, cluster->servers, PSI_CLUSTER_SERVERS_MAX,
                      &cluster->server_count);
}

/* The port of the master is said once, or twice the same. */
static psd_status
set_master_port(struct parser *parser, const struct psi_json_item *item, uint16_t port)
{
    uint16_t *master_port = &parser->cluster->master_port;

    if (parser->master_port_at != NULL && *master_port != port) {
        return psi_json_fail(&parser->file, item->at, "%s says port %u, but %u is said elsewhere",
                             item->key, port, *master_port);
    }
    parser->master_port_at = item->at;
    *master_port = port;
    return PSD_OK;
}

/* "host", "host:port" or "tcp://host:port": the port is the one it listens on. */
static psd_status
read_master(struct parser *parser, const struct psi_json_item *item, void *into)
{
    static const char scheme[] = "tcp://";
    struct psi_cluster *cluster = into;
    const char *text = json_string_value(item->value);
    const bool uri = strncmp(text, scheme, sizeof(scheme) - 1) == 0;
    struct psi_endpoint endpoint;
    const char *wrong = psi_endpoint_parse(uri ? text + sizeof(scheme) - 1 : text, &endpoint);

    if (wrong != NULL) {
        return psi_json_fail(&parser->file, item->at, "master_node \"%.64s\" %s", text, wrong);
    }
    memcpy(cluster->master.host, endpoint.host, sizeof(cluster->master.host));
    memcpy(cluster->master.user, endpoint.user, sizeof(cluster->master.user));
    cluster->master.slots = 1;
    return endpoint.port != 0 ? set_master_port(parser, item, endpoint.port) : PSD_OK;
}

static psd_status
read_master_port(struct parser *parser, const struct psi_json_item *item, void *into)
{
    uint32_t port = 0;
    const psd_status status = want_range(parser, item, 0, UINT16_MAX, &port);

    return status == PSD_OK ? set_master_port(parser, item, (uint16_t)port) : status;
}

/* A relative path starts where the file is, not where psd_run was started. */
static psd_status
read_pem_file(struct parser *parser, const struct psi_json_item *item, void *into)
{
    struct psi_cluster *cluster = into;
    const char *slash = strrchr(parser->file.name, '/');
    const char *path = NULL;
    const psd_status status = read_text(parser, item, &path);
    const size_t folder_bytes = slash != NULL ? (size_t)(slash + 1 - parser->file.name) : 0;
    const bool absolute = path != NULL && (path[0] == '/' || path[0] == '~');

    if (status != PSD_OK) {
        return status;
    }
    psi_json_place(&parser->file, item->at, &cluster->pem_line, &cluster->pem_column);
    if (asprintf(&cluster->pem_file, "%.*s%s", absolute ? 0 : (int)folder_bytes, parser->file.name,
                 path) < 0) {
        cluster->pem_file = NULL;
        return psi_fail(parser->file.err, PSD_ERR_NO_MEMORY, "%s: no memory", parser->file.name);
    }
    return PSD_OK;
}

static psd_status
read_virtualenv(struct parser *parser, const struct psi_json_item *item, void *into)
{
    return read_text(parser, item, &((struct psi_cluster *)into)->virtualenv);
}

static psd_status
read_username(struct parser *parser, const struct psi_json_item *item, void *into)
{
    const psd_status status = check_user(parser, item);

    if (status == PSD_OK) {
        ((struct psi_cluster *)into)->username = json_string_value(item->value);
    }
    return status;
}

static psd_status
read_workdir(struct parser *parser, const struct psi_json_item *item, void *into)
{
    return read_text(parser, item, &((struct psi_cluster *)into)->workdir);
}

static psd_status
read_image(struct parser *parser, const struct psi_json_item *item, void *into)
{
    return read_text(parser, item, &((struct psi_cluster *)into)->image);
}

static psd_status
read_ssh_options(struct parser *parser, const struct psi_json_item *array, void *into)
{
    struct psi_cluster *cluster = into;
    struct psi_json_walk walk = {.parent = *array};
    struct psi_json_item item;

    cluster->ssh_options =
        calloc(json_array_size(array->value) + 1, sizeof(cluster->ssh_options[0]));
    if (cluster->ssh_options == NULL) {
        return psi_fail(parser->file.err, PSD_ERR_NO_MEMORY, "%s: no memory", parser->file.name);
    }
    while (psi_json_next(&parser->file, &walk, &item)) {
        psd_status status = psi_json_want(&parser->file, &item, "an option of ssh", JSON_STRING);

        if (status == PSD_OK) {
            status = read_text(parser, &item, &cluster->ssh_options[cluster->ssh_option_count++]);
        }
        if (status != PSD_OK) {
            return status;
        }
    }
    return PSD_OK;
}

static psd_status
read_settings(struct parser *parser, const struct psi_json_item *object, void *into)
{
    struct psi_cluster *cluster = into;
    struct psi_json_walk walk = {.parent = *object};
    struct psi_json_item item;

    while (psi_json_next(&parser->file, &walk, &item)) {
        char number[32];
        const char *text = number;
        struct psd_error reason;

        if (json_is_string(item.value)) {
            text = json_string_value(item.value);
        } else if (json_is_boolean(item.value)) {
            text = json_is_true(item.value) ? "on" : "off";
        } else if (json_is_integer(item.value)) {
            snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(item.value));
        } else {
            return psi_json_fail(&parser->file, item.at,
                                 "setting %.64s must be a string, an integer or a boolean, not %s",
                                 item.key, psi_json_type_name(json_typeof(item.value)));
        }
        if (psi_settings_set(&cluster->settings, PSI_SOURCE_FILE, "settings", item.key, text,
                             &reason) != PSD_OK) {
            return psi_json_fail(&parser->file, item.key_at, "%.380s", reason.text);
        }
    }
    return PSD_OK;
}

static psd_status
read_pass(struct parser *parser, const struct psi_json_item *item, void *into)
{
    static const char *const words[] = {[PSI_PASS_AUTO] = "auto",
                                        [PSI_PASS_FLAGS] = "flags",
                                        [PSI_PASS_ENV] = "env",
                                        [PSI_PASS_BOTH] = "both",
                                        [PSI_PASS_NONE] = "none"};
    const char *text = json_string_value(item->value);

    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(text, words[i]) == 0) {
            ((struct psi_cluster *)into)->pass = (enum psi_pass)i;
            return PSD_OK;
        }
    }
    return psi_json_fail(&parser->file, item->at,
                         "pass \"%.64s\": must be auto, flags, env, both or none", text);
}

static psd_status
read_commands(struct parser *parser, const struct psi_json_item *array, void *into)
{
    struct psi_cluster *cluster = into;
    struct psi_json_walk walk = {.parent = *array};
    struct psi_json_item item;

    cluster->worker_commands =
        calloc(json_array_size(array->value) + 1, sizeof(cluster->worker_commands[0]));
    if (cluster->worker_commands == NULL) {
        return psi_fail(parser->file.err, PSD_ERR_NO_MEMORY, "%s: no memory", parser->file.name);
    }
    parser->commands_at = array->at;
    while (psi_json_next(&parser->file, &walk, &item)) {
        psd_status status = psi_json_want(&parser->file, &item, "a worker command", JSON_STRING);

        if (status == PSD_OK) {
            status = read_text(parser, &item, &cluster->worker_commands[parser->command_count++]);
        }
        if (status != PSD_OK) {
            return status;
        }
    }
    return PSD_OK;
}

static psd_status
read_setup(struct parser *parser, const struct psi_json_item *item, void *into)
{
    return read_text(parser, item, &((struct psi_cluster *)into)->setup);
}

static psd_status
read_tasks(struct parser *parser, const struct psi_json_item *array, void *into)
{
    struct psi_cluster *cluster = into;
    struct psi_json_walk walk = {.parent = *array};
    struct psi_json_item item;

    cluster->tasks = calloc(json_array_size(array->value) + 1, sizeof(cluster->tasks[0]));
    if (cluster->tasks == NULL) {
        return psi_fail(parser->file.err, PSD_ERR_NO_MEMORY, "%s: no memory", parser->file.name);
    }
    parser->tasks_at = array->at;
    while (psi_json_next(&parser->file, &walk, &item)) {
        const psd_status status = psi_json_want(&parser->file, &item, "a task", JSON_STRING);
        const char *role = json_string_value(item.value);

        if (status != PSD_OK) {
            return status;
        }
        if (strcmp(role, "ps") != 0 && strcmp(role, "server") != 0 && strcmp(role, "worker") != 0) {
            return psi_json_fail(&parser->file, item.at,
                                 "task \"%.64s\": must be ps (or server) or worker", role);
        }
        cluster->tasks[cluster->task_count++] = role;
    }
    return PSD_OK;
}

static psd_status
read_env(struct parser *parser, const struct psi_json_item *item, void *into)
{
    struct psi_cluster *cluster = into;

    return read_variables(parser, item, &cluster->env, &cluster->env_count);
}

static const struct field cluster_fields[] = {
    {"worker_nodes", JSON_ARRAY, read_workers},
    {"server_nodes", JSON_ARRAY, read_servers},
    {"master_node", JSON_STRING, read_master},
    {"master_port", JSON_INTEGER, read_master_port},
    {"pem_file", JSON_STRING, read_pem_file},
    {"virtualenv", JSON_STRING, read_virtualenv},
    {"username", JSON_STRING, read_username},
    {"ssh_options", JSON_ARRAY, read_ssh_options},
    {"workdir", JSON_STRING, read_workdir},
    {"image", JSON_STRING, read_image},
    {"settings", JSON_OBJECT, read_settings},
    {"pass", JSON_STRING, read_pass},
    {"worker_commands", JSON_ARRAY, read_commands},
    {"env", JSON_OBJECT, read_env},
    {"tasks", JSON_ARRAY, read_tasks},
    {"setup", JSON_STRING, read_setup},
};

/* Members of all "env" objects. Takes any document: types are checked later. */
static size_t
count_variables(json_t *root)
{
    static const char *const lists[] = {"worker_nodes", "server_nodes"};
    size_t count = json_object_size(json_object_get(root, "env"));

    for (size_t i = 0; i < 2; i++) {
        json_t *list = json_object_get(root, lists[i]);

        for (size_t k = 0; k < json_array_size(list); k++) {
            count += json_object_size(json_object_get(json_array_get(list, k), "env"));
        }
    }
    return count;
}

static psd_status
allocate(struct parser *parser, json_t *root)
{
    struct psi_cluster *cluster = parser->cluster;

    cluster->workers = calloc(PSI_CLUSTER_WORKERS_MAX, sizeof(cluster->workers[0]));
    cluster->servers = calloc(PSI_CLUSTER_SERVERS_MAX, sizeof(cluster->servers[0]));
    cluster->variables = calloc(count_variables(root) + 1, sizeof(cluster->variables[0]));
    if (cluster->workers == NULL || cluster->servers == NULL || cluster->variables == NULL) {
        return psi_fail(parser->file.err, PSD_ERR_NO_MEMORY, "%s: no memory", parser->file.name);
    }
    return PSD_OK;
}

/* The number of tasks that run the workers' command. */
static uint32_t
count_working(const struct psi_cluster *cluster)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < cluster->task_count; i++) {
        count += strcmp(cluster->tasks[i], "worker") == 0;
    }
    return count;
}

/* "tasks" says how many of each there are; where they run is for others to say. */
static psd_status
check_tasks(const struct parser *parser)
{
    const struct psi_cluster *cluster = parser->cluster;
    const uint32_t workers = count_working(cluster);

    if (cluster->worker_count > 0 || cluster->server_count > 0) {
        return psi_json_fail(&parser->file, parser->tasks_at,
                             "\"tasks\" stands for \"worker_nodes\" and \"server_nodes\": give "
                             "one or the other");
    }
    if (workers == 0 || workers == cluster->task_count) {
        return psi_json_fail(&parser->file, parser->tasks_at,
                             "tasks has no %s: at least one is needed",
                             workers == 0 ? "worker" : "ps");
    }
    if (workers > PSI_CLUSTER_WORKERS_MAX ||
        cluster->task_count - workers > PSI_CLUSTER_SERVERS_MAX) {
        return psi_json_fail(&parser->file, parser->tasks_at,
                             "tasks has %u workers and %u servers: %d and %d are possible", workers,
                             cluster->task_count - workers, PSI_CLUSTER_WORKERS_MAX,
                             PSI_CLUSTER_SERVERS_MAX);
    }
    if (parser->commands_at != NULL && parser->command_count != workers) {
        return psi_json_fail(&parser->file, parser->commands_at,
                             "%u worker_commands for %u workers: give one for each",
                             parser->command_count, workers);
    }
    return PSD_OK;
}

/* What can only be said when all keys were read. */
static psd_status
check_whole(const struct parser *parser, const struct psi_json_item *root)
{
    const struct psi_cluster *cluster = parser->cluster;

    if (parser->tasks_at != NULL) {
        return check_tasks(parser);
    }
    if (cluster->worker_count == 0) {
        return psi_json_fail(&parser->file, root->at,
                             "\"worker_nodes\" is missing: the machines of the workers, as in "
                             "[\"10.0.0.1\", \"10.0.0.2\"]");
    }
    if (cluster->server_count == 0) {
        return psi_json_fail(&parser->file, root->at,
                             "\"server_nodes\" is missing: the machines of the servers, as in "
                             "[\"10.0.0.1\"]; they may be those of the workers");
    }
    if (parser->commands_at != NULL && parser->command_count != cluster->worker_count) {
        return psi_json_fail(&parser->file, parser->commands_at,
                             "%u worker_commands for %u workers: give one for each",
                             parser->command_count, cluster->worker_count);
    }
    return PSD_OK;
}

static psd_status
read_root(struct parser *parser, json_t *value)
{
    const struct psi_json_item root = {.value = value, .at = psi_json_begin(&parser->file)};
    psd_status status = psi_json_want(&parser->file, &root, "the file", JSON_OBJECT);

    if (status == PSD_OK) {
        status = allocate(parser, value);
    }
    if (status == PSD_OK) {
        status = read_fields(parser, &root, cluster_fields,
                             sizeof(cluster_fields) / sizeof(cluster_fields[0]), parser->cluster);
    }
    if (status == PSD_OK) {
        status = check_whole(parser, &root);
    }
    return status;
}

psd_status
psi_cluster_parse(const char *text, size_t bytes, const char *name, struct psi_cluster *cluster_p,
                  struct psd_error *err)
{
    struct psi_cluster cluster = {0};
    struct parser parser = {.file = {.name = name, .text = text, .end = text + bytes, .err = err},
                            .cluster = &cluster};
    json_error_t wrong;
    psd_status status;

    if (bytes > PSI_CLUSTER_FILE_BYTES_MAX) {
        return psi_fail(err, PSD_ERR_TOO_BIG, "%s:1:1: larger than %d MiB", name,
                        PSI_CLUSTER_FILE_BYTES_MAX >> 20);
    }
    cluster.document = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (cluster.document == NULL) {
        const bool unended = wrong.text[0] == '\'' &&
                             strncmp(wrong.text + 2, "' expected", 10) == 0 &&
                             (wrong.text[1] == '}' || wrong.text[1] == ']');

        /* Behind a value, what is missing is a comma more often than the end of all. */
        return psi_fail(err, PSD_ERR_INVALID, "%s:%d:%d: %s%s", name,
                        wrong.line > 0 ? wrong.line : 1, wrong.column > 0 ? wrong.column : 1,
                        unended ? "',' or " : "", wrong.text);
    }
    psi_settings_init(&cluster.settings);
    status = read_root(&parser, cluster.document);
    psi_hostlist_free(&parser.hosts);
    if (status != PSD_OK) {
        psi_cluster_free(&cluster);
        return status;
    }
    *cluster_p = cluster;
    return PSD_OK;
}

/* The whole of a file, and one byte more than allowed when it is too long. */
static psd_status
read_file(const char *path, char **text_p, size_t *bytes_p, struct psd_error *err)
{
    const size_t bytes_max = PSI_CLUSTER_FILE_BYTES_MAX + 1;
    FILE *file = fopen(path, "re");
    size_t capacity = 64 * 1024;
    size_t bytes = 0;
    char *text = NULL;
    psd_status status;

    if (file == NULL) {
        return psi_fail_errno(err, PSD_ERR_IO, "open %s", path);
    }
    for (;;) {
        char *grown = realloc(text, capacity);

        if (grown == NULL) {
            status = psi_fail(err, PSD_ERR_NO_MEMORY, "read %s: no %zu bytes", path, capacity);
            goto err_free_text;
        }
        text = grown;
        bytes += fread(text + bytes, 1, capacity - bytes, file);
        if (ferror(file) != 0) {
            status = psi_fail_errno(err, PSD_ERR_IO, "read %s", path);
            goto err_free_text;
        }
        if (bytes < capacity || capacity == bytes_max) {
            break;
        }
        capacity = capacity * 2 < bytes_max ? capacity * 2 : bytes_max;
    }
    fclose(file);
    *text_p = text;
    *bytes_p = bytes;
    return PSD_OK;

err_free_text:
    free(text);
    fclose(file);
    return status;
}

psd_status
psi_cluster_load(const char *path, struct psi_cluster *cluster_p, struct psd_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    psd_status status = read_file(path, &text, &bytes, err);

    if (status != PSD_OK) {
        return status;
    }
    status = psi_cluster_parse(text, bytes, path, cluster_p, err);
    free(text);
    return status;
}

void
psi_cluster_free(struct psi_cluster *cluster)
{
    free(cluster->workers);
    free(cluster->servers);
    free(cluster->variables);
    free(cluster->worker_commands);
    free(cluster->tasks);
    free(cluster->ssh_options);
    free(cluster->pem_file);
    json_decref(cluster->document);
    memset(cluster, 0, sizeof(*cluster));
}
