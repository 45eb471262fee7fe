/*
 * cluster_json.c - cluster.json, read with jansson: the whole file.
 *
 * One table of keys per kind of object, one reader per key. Strings stay in jansson's document and
 * are borrowed from it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "cluster/cluster_fields.h"
#include "cluster/endpoint.h"

static psd_status
read_workers(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    struct psi_cluster *cluster = into;

    return psi_cluster_nodes(parser, item, cluster->workers, PSI_CLUSTER_WORKERS_MAX,
                             &cluster->worker_count);
}

static psd_status
read_servers(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    struct psi_cluster *cluster = into;

    return psi_cluster_nodes(parser, item, cluster->servers, PSI_CLUSTER_SERVERS_MAX,
                             &cluster->server_count);
}

/* The port of the master is said once, or twice the same. */
static psd_status
set_master_port(struct cluster_parser *parser, const struct psi_json_item *item, uint16_t port)
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
read_master(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
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
read_master_port(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    uint32_t port = 0;
    const psd_status status = psi_cluster_range(parser, item, 0, UINT16_MAX, &port);

    return status == PSD_OK ? set_master_port(parser, item, (uint16_t)port) : status;
}

/* A relative path starts where the file is, not where psd_run was started. */
static psd_status
read_pem_file(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    struct psi_cluster *cluster = into;
    const char *slash = strrchr(parser->file.name, '/');
    const char *path = NULL;
    const psd_status status = psi_cluster_text(parser, item, &path);
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
read_virtualenv(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    return psi_cluster_text(parser, item, &((struct psi_cluster *)into)->virtualenv);
}

static psd_status
read_username(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    const psd_status status = psi_cluster_check_user(parser, item);

    if (status == PSD_OK) {
        ((struct psi_cluster *)into)->username = json_string_value(item->value);
    }
    return status;
}

static psd_status
read_workdir(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    return psi_cluster_text(parser, item, &((struct psi_cluster *)into)->workdir);
}

static psd_status
read_image(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    return psi_cluster_text(parser, item, &((struct psi_cluster *)into)->image);
}

static psd_status
read_ssh_options(struct cluster_parser *parser, const struct psi_json_item *array, void *into)
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
            status =
                psi_cluster_text(parser, &item, &cluster->ssh_options[cluster->ssh_option_count++]);
        }
        if (status != PSD_OK) {
            return status;
        }
    }
    return PSD_OK;
}

static psd_status
read_settings(struct cluster_parser *parser, const struct psi_json_item *object, void *into)
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
read_pass(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
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
read_commands(struct cluster_parser *parser, const struct psi_json_item *array, void *into)
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
            status =
                psi_cluster_text(parser, &item, &cluster->worker_commands[parser->command_count++]);
        }
        if (status != PSD_OK) {
            return status;
        }
    }
    return PSD_OK;
}

static psd_status
read_setup(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    return psi_cluster_text(parser, item, &((struct psi_cluster *)into)->setup);
}

static psd_status
read_tasks(struct cluster_parser *parser, const struct psi_json_item *array, void *into)
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
read_env(struct cluster_parser *parser, const struct psi_json_item *item, void *into)
{
    struct psi_cluster *cluster = into;

    return psi_cluster_variables(parser, item, &cluster->env, &cluster->env_count);
}

static const struct cluster_field cluster_fields[] = {
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
allocate(struct cluster_parser *parser, json_t *root)
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
check_tasks(const struct cluster_parser *parser)
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
check_whole(const struct cluster_parser *parser, const struct psi_json_item *root)
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
read_root(struct cluster_parser *parser, json_t *value)
{
    const struct psi_json_item root = {.value = value, .at = psi_json_begin(&parser->file)};
    psd_status status = psi_json_want(&parser->file, &root, "the file", JSON_OBJECT);

    if (status == PSD_OK) {
        status = allocate(parser, value);
    }
    if (status == PSD_OK) {
        status =
            psi_cluster_fields(parser, &root, cluster_fields,
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
    struct cluster_parser parser = {
        .file = {.name = name, .text = text, .end = text + bytes, .err = err}, .cluster = &cluster};
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

bool
psi_cluster_spreads_servers(const struct psi_cluster *cluster)
{
    for (uint32_t i = 1; i < cluster->server_count; i++) {
        if (strcmp(cluster->servers[i].host, cluster->servers[0].host) != 0) {
            return true;
        }
    }
    return false;
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
