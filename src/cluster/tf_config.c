/*
 * tf_config.c - TF_CONFIG, read and written.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cluster/tf_config.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "cluster/endpoint.h"
#include "cluster/json_walk.h"

enum { NAME_SHOWN_MAX = 120 }; /* of a file, in an error */

static const char *const type_names[PSI_TF_TYPES] = {
    [PSI_TF_CHIEF] = "chief",
    [PSI_TF_WORKER] = "worker",
    [PSI_TF_PS] = "ps",
    [PSI_TF_EVALUATOR] = "evaluator",
};

const char *
psi_tf_type_name(enum psi_tf_type type)
{
    return type_names[type];
}

/* Returns false for a word that is no type. */
static bool
find_type(const char *word, enum psi_tf_type *type_p)
{
    for (unsigned i = 0; i < PSI_TF_TYPES; i++) {
        if (strcmp(word, type_names[i]) == 0) {
            *type_p = (enum psi_tf_type)i;
            return true;
        }
    }
    *type_p = PSI_TF_CHIEF;
    return strcmp(word, "master") == 0;
}

void
psi_tf_config_free(struct psi_tf_config *config)
{
    for (unsigned type = 0; type < PSI_TF_TYPES; type++) {
        for (uint32_t i = 0; i < config->jobs[type].count; i++) {
            free(config->jobs[type].tasks[i].address);
        }
        free(config->jobs[type].tasks);
    }
    *config = (struct psi_tf_config){0};
}

static uint32_t
task_count(const struct psi_tf_config *config)
{
    uint32_t count = 0;

    for (unsigned type = 0; type < PSI_TF_TYPES; type++) {
        count += config->jobs[type].count;
    }
    return count;
}

/* The place of an index among those of a job: it is there, or belongs there. */
static uint32_t
find_place(const struct psi_tf_job *job, uint32_t index)
{
    uint32_t place = job->count; /* most lists come in order */

    while (place > 0 && job->tasks[place - 1].index >= index) {
        place--;
    }
    return place;
}

static const struct psi_tf_task *
find_task(const struct psi_tf_job *job, uint32_t index)
{
    const uint32_t place = find_place(job, index);

    return place < job->count && job->tasks[place].index == index ? &job->tasks[place] : NULL;
}

psd_status
psi_tf_config_add(struct psi_tf_config *config, enum psi_tf_type type, uint32_t index,
                  const char *address, struct psd_error *err)
{
    struct psi_tf_job *job = &config->jobs[type];
    const uint32_t place = find_place(job, index);
    struct psi_tf_task *tasks;
    char *copy;

    if (place < job->count && job->tasks[place].index == index) {
        return psi_fail(err, PSD_ERR_INVALID, "%s %u is %.100s, and %.100s as well",
                        type_names[type], index, job->tasks[place].address, address);
    }
    if (task_count(config) >= PSI_TF_TASKS_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "more than %d tasks", PSI_TF_TASKS_MAX);
    }
    copy = strdup(address);
    tasks = copy != NULL ? realloc(job->tasks, (job->count + 1) * sizeof(*tasks)) : NULL;
    if (tasks == NULL) {
        free(copy);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "TF_CONFIG: no memory for %u tasks", job->count);
    }
    memmove(&tasks[place + 1], &tasks[place], (job->count - place) * sizeof(*tasks));
    tasks[place] = (struct psi_tf_task){.index = index, .address = copy};
    job->tasks = tasks;
    job->count++;
    return PSD_OK;
}

psd_status
psi_tf_config_copy(const struct psi_tf_config *from, struct psi_tf_config *to_p,
                   struct psd_error *err)
{
    struct psi_tf_config copy = {
        .has_task = from->has_task, .type = from->type, .index = from->index};
    psd_status status = PSD_OK;

    memcpy(copy.rpc_layer, from->rpc_layer, sizeof(copy.rpc_layer));
    memcpy(copy.session_master, from->session_master, sizeof(copy.session_master));
    for (unsigned type = 0; type < PSI_TF_TYPES; type++) {
        const struct psi_tf_job *job = &from->jobs[type];

        for (uint32_t i = 0; i < job->count && status == PSD_OK; i++) {
            status = psi_tf_config_add(&copy, (enum psi_tf_type)type, job->tasks[i].index,
                                       job->tasks[i].address, err);
        }
    }
    if (status != PSD_OK) {
        psi_tf_config_free(&copy);
        return status;
    }
    *to_p = copy;
    return PSD_OK;
}

bool
psi_tf_job_is_full(const struct psi_tf_job *job)
{
    return job->count == 0 || job->tasks[job->count - 1].index == job->count - 1;
}

/* A task that stands beyond a list of one, which is itself. */
static bool
knows_only_itself(const struct psi_tf_config *config, enum psi_tf_type type, uint32_t index)
{
    return config->jobs[type].count == 1 && config->jobs[type].tasks[0].index == 0 && index > 0;
}

const char *
psi_tf_config_address(const struct psi_tf_config *config, enum psi_tf_type type, uint32_t index)
{
    const struct psi_tf_task *task = find_task(&config->jobs[type], index);

    if (task == NULL && knows_only_itself(config, type, index)) {
        task = &config->jobs[type].tasks[0];
    }
    return task != NULL ? task->address : NULL;
}

/* The end of a name says which file it is; its beginning is where all of them are. */
static const char *
end_of(const char *name)
{
    const size_t length = strlen(name);

    return length > NAME_SHOWN_MAX ? name + length - NAME_SHOWN_MAX : name;
}

psd_status
psi_tf_config_merge(struct psi_tf_config *config, const char *name,
                    const struct psi_tf_config *piece, const char *piece_name,
                    struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (unsigned type = 0; type < PSI_TF_TYPES; type++) {
        const struct psi_tf_job *job = &piece->jobs[type];

        if (piece->has_task && piece->type == type &&
            knows_only_itself(piece, type, piece->index)) {
            continue;
        }
        for (uint32_t i = 0; i < job->count && status == PSD_OK; i++) {
            const struct psi_tf_task *other = &job->tasks[i];
            const struct psi_tf_task *own = find_task(&config->jobs[type], other->index);

            if (own == NULL) {
                status = psi_tf_config_add(config, type, other->index, other->address, err);
            } else if (strcmp(own->address, other->address) != 0) {
                status =
                    psi_fail(err, PSD_ERR_INVALID,
                             "two pieces of one cluster contradict each other:\n"
                             "    %s: %s %u is %.80s\n    %s: %s %u is %.80s",
                             end_of(name), type_names[type], own->index, own->address,
                             end_of(piece_name), type_names[type], other->index, other->address);
            }
        }
    }
    return status;
}

/* ------------------------------------------------------------------------------------- read --- */

struct parser {
    struct psi_json_text text;
    struct psi_tf_config config;
};

/* An index that is written as the key of a map. */
static bool
read_index(const char *word, uint32_t *index_p)
{
    uint32_t index = 0;

    for (size_t i = 0; word[i] != '\0'; i++) {
        if (word[i] < '0' || word[i] > '9' || i >= 5) {
            return false;
        }
        index = index * 10 + (uint32_t)(word[i] - '0');
    }
    *index_p = index;
    return word[0] != '\0' && index <= PSI_TF_INDEX_MAX;
}

/* Who has an address already; NULL: nobody. */
static const struct psi_tf_task *
find_address(const struct psi_tf_config *config, const char *address, enum psi_tf_type *type_p)
{
    for (unsigned type = 0; type < PSI_TF_TYPES; type++) {
        for (uint32_t i = 0; i < config->jobs[type].count; i++) {
            if (strcmp(config->jobs[type].tasks[i].address, address) == 0) {
                *type_p = (enum psi_tf_type)type;
                return &config->jobs[type].tasks[i];
            }
        }
    }
    return NULL;
}

static psd_status
read_address(struct parser *parser, const struct psi_json_item *item, enum psi_tf_type type,
             uint32_t index)
{
    struct psi_endpoint endpoint;
    const struct psi_tf_task *twin;
    enum psi_tf_type twin_type = type;
    struct psd_error why = {0};
    const char *address;
    const char *wrong;
    psd_status status = psi_json_want(&parser->text, item, "an address", JSON_STRING);

    if (status != PSD_OK) {
        return status;
    }
    address = json_string_value(item->value);
    wrong = psi_endpoint_parse(address, &endpoint);
    if (wrong == NULL && (endpoint.port == 0 || endpoint.user[0] != '\0')) {
        wrong = "must be host:port";
    }
    if (wrong != NULL) {
        return psi_json_fail(&parser->text, item->at, "address \"%.64s\" %s", address, wrong);
    }
    twin = find_address(&parser->config, address, &twin_type);
    if (twin != NULL) {
        return psi_json_fail(&parser->text, item->at, "%s %u is %.64s, and so is %s %u",
                             type_names[type], index, address, type_names[twin_type], twin->index);
    }
    status = psi_tf_config_add(&parser->config, type, index, address, &why);
    return status == PSD_OK ? PSD_OK : psi_json_fail(&parser->text, item->at, "%s", why.text);
}

/* ["h:p", ...] or {"0": "h:p", ...} */
static psd_status
read_job(struct parser *parser, const struct psi_json_item *item, enum psi_tf_type type)
{
    struct psi_json_walk walk = {.parent = *item};
    struct psi_json_item task;
    uint32_t index = 0;
    psd_status status = PSD_OK;

    if (!json_is_array(item->value) && !json_is_object(item->value)) {
        return psi_json_fail(&parser->text, item->at,
                             "\"%s\" must be an array of addresses, or an object with one for each "
                             "index, not %s",
                             item->key, psi_json_type_name(json_typeof(item->value)));
    }
    while (status == PSD_OK && psi_json_next(&parser->text, &walk, &task)) {
        if (task.key != NULL && !read_index(task.key, &index)) {
            return psi_json_fail(&parser->text, task.key_at,
                                 "\"%.64s\" is no index: must be 0 to %d", task.key,
                                 PSI_TF_INDEX_MAX);
        }
        if (type == PSI_TF_CHIEF && index > 0) {
            return psi_json_fail(&parser->text, task.at, "a second %s: there is one at most",
                                 item->key);
        }
        status = read_address(parser, &task, type, index);
        index++;
    }
    return status;
}

static psd_status
read_cluster(struct parser *parser, const struct psi_json_item *cluster)
{
    struct psi_json_walk walk = {.parent = *cluster};
    struct psi_json_item item;
    const char *chief = NULL; /* under which name it came */
    psd_status status = psi_json_want(&parser->text, cluster, "\"cluster\"", JSON_OBJECT);

    while (status == PSD_OK && psi_json_next(&parser->text, &walk, &item)) {
        enum psi_tf_type type;

        if (!find_type(item.key, &type)) {
            return psi_json_fail(&parser->text, item.key_at,
                                 "\"%.64s\" is no type of task: there are chief (its old name is "
                                 "master), worker, ps",
                                 item.key);
        }
        if (type == PSI_TF_EVALUATOR) {
            return psi_json_fail(&parser->text, item.key_at,
                                 "an evaluator is a task, but not listed in the cluster");
        }
        if (type == PSI_TF_CHIEF && chief != NULL) {
            return psi_json_fail(&parser->text, item.key_at,
                                 "\"%s\" and \"%s\" are two names of the same task", chief,
                                 item.key);
        }
        chief = type == PSI_TF_CHIEF ? item.key : chief;
        status = read_job(parser, &item, type);
    }
    return status;
}

static psd_status
read_task_type(struct parser *parser, const struct psi_json_item *item)
{
    const psd_status status = psi_json_want(&parser->text, item, "\"type\"", JSON_STRING);

    if (status != PSD_OK) {
        return status;
    }
    if (!find_type(json_string_value(item->value), &parser->config.type)) {
        return psi_json_fail(&parser->text, item->at,
                             "\"%.64s\" is no type of task: there are chief (its old name is "
                             "master), worker, ps, evaluator",
                             json_string_value(item->value));
    }
    parser->config.has_task = true;
    return PSD_OK;
}

static psd_status
read_task_index(struct parser *parser, const struct psi_json_item *item)
{
    const psd_status status = psi_json_want(&parser->text, item, "\"index\"", JSON_INTEGER);
    const json_int_t index = json_integer_value(item->value);

    if (status != PSD_OK) {
        return status;
    }
    if (index < 0 || index > PSI_TF_INDEX_MAX) {
        return psi_json_fail(&parser->text, item->at, "index %lld: must be 0 to %d",
                             (long long)index, PSI_TF_INDEX_MAX);
    }
    parser->config.index = (uint32_t)index;
    return PSD_OK;
}

static psd_status
read_task(struct parser *parser, const struct psi_json_item *task)
{
    struct psi_json_walk walk = {.parent = *task};
    struct psi_json_item item;
    psd_status status = psi_json_want(&parser->text, task, "\"task\"", JSON_OBJECT);

    while (status == PSD_OK && psi_json_next(&parser->text, &walk, &item)) {
        if (strcmp(item.key, "type") == 0) {
            status = read_task_type(parser, &item);
        } else if (strcmp(item.key, "index") == 0) {
            status = read_task_index(parser, &item);
        }
    }
    if (status == PSD_OK && !parser->config.has_task) {
        return psi_json_fail(&parser->text, task->at, "the task has no \"type\"");
    }
    if (status == PSD_OK && parser->config.index > 0 &&
        (parser->config.type == PSI_TF_CHIEF || parser->config.type == PSI_TF_EVALUATOR)) {
        return psi_json_fail(&parser->text, task->at, "%s %u: there is one at most",
                             type_names[parser->config.type], parser->config.index);
    }
    return status;
}

/* A word that is only handed on: it has to look the same in quotes. */
static psd_status
read_word(struct parser *parser, const struct psi_json_item *item, char word_p[PSI_TF_WORD_BYTES])
{
    const psd_status status = psi_json_want(&parser->text, item, item->key, JSON_STRING);
    const char *word = json_string_value(item->value);

    if (status != PSD_OK) {
        return status;
    }
    for (size_t i = 0; word[i] != '\0'; i++) {
        if (word[i] <= ' ' || word[i] > '~' || word[i] == '"' || word[i] == '\\' ||
            i + 1 == PSI_TF_WORD_BYTES) {
            return psi_json_fail(&parser->text, item->at,
                                 "\"%s\" has letters that it cannot have, or too many", item->key);
        }
    }
    snprintf(word_p, PSI_TF_WORD_BYTES, "%s", word);
    return PSD_OK;
}

static psd_status
read_root(struct parser *parser, json_t *document)
{
    struct psi_json_item root = {.value = document, .at = psi_json_begin(&parser->text)};
    struct psi_json_walk walk = {.parent = root};
    struct psi_json_item item;
    psd_status status = psi_json_want(&parser->text, &root, "TF_CONFIG", JSON_OBJECT);
    const struct psi_tf_config *config = &parser->config;

    while (status == PSD_OK && psi_json_next(&parser->text, &walk, &item)) {
        if (strcmp(item.key, "cluster") == 0) {
            status = read_cluster(parser, &item);
        } else if (strcmp(item.key, "task") == 0) {
            status = read_task(parser, &item);
        } else if (strcmp(item.key, "rpc_layer") == 0) {
            status = read_word(parser, &item, parser->config.rpc_layer);
        } else if (strcmp(item.key, "session_master") == 0) {
            status = read_word(parser, &item, parser->config.session_master);
        }
    }
    if (status != PSD_OK) {
        return status;
    }
    if (task_count(config) == 0) {
        return psi_json_fail(&parser->text, root.at, "no \"cluster\" with an address in it");
    }
    if (config->has_task && config->type != PSI_TF_EVALUATOR &&
        config->jobs[config->type].count == 0) {
        return psi_json_fail(&parser->text, root.at, "the task is %s %u, and the cluster has no %s",
                             type_names[config->type], config->index, type_names[config->type]);
    }
    return PSD_OK;
}

psd_status
psi_tf_config_parse(const char *text, size_t bytes, const char *name,
                    struct psi_tf_config *config_p, struct psd_error *err)
{
    struct parser parser = {.text = {.name = name, .text = text, .end = text + bytes, .err = err}};
    json_error_t wrong;
    json_t *document;
    psd_status status;

    if (bytes > PSI_TF_BYTES_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "%s:1:1: larger than %d MiB", name,
                        PSI_TF_BYTES_MAX >> 20);
    }
    document = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (document == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "%s:%d:%d: %s", name, wrong.line > 0 ? wrong.line : 1,
                        wrong.column > 0 ? wrong.column : 1, wrong.text);
    }
    status = read_root(&parser, document);
    json_decref(document);
    if (status != PSD_OK) {
        psi_tf_config_free(&parser.config);
        return status;
    }
    *config_p = parser.config;
    return PSD_OK;
}

psd_status
psi_tf_config_load(const char *path, struct psi_tf_config *config_p, struct psd_error *err)
{
    FILE *file = fopen(path, "re");
    char *text = file != NULL ? malloc(PSI_TF_BYTES_MAX + 1) : NULL;
    size_t bytes = 0;
    psd_status status;

    if (file == NULL) {
        return psi_fail_errno(err, PSD_ERR_IO, "open %s", path);
    }
    if (text == NULL) {
        fclose(file);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "%s: no memory", path);
    }
    bytes = fread(text, 1, PSI_TF_BYTES_MAX + 1, file);
    status = ferror(file) != 0 ? psi_fail_errno(err, PSD_ERR_IO, "read %s", path)
                               : psi_tf_config_parse(text, bytes, path, config_p, err);
    fclose(file);
    free(text);
    return status;
}

/* ------------------------------------------------------------------------------------ write --- */

/* A list, or a map where an index is missing. Addresses have no letter that JSON would escape. */
static void
write_job(FILE *stream, const char *name, const struct psi_tf_job *job)
{
    const bool full = psi_tf_job_is_full(job);

    fprintf(stream, "\"%s\": %c", name, full ? '[' : '{');
    for (uint32_t i = 0; i < job->count; i++) {
        fputs(i > 0 ? ", " : "", stream);
        if (!full) {
            fprintf(stream, "\"%u\": ", job->tasks[i].index);
        }
        fprintf(stream, "\"%s\"", job->tasks[i].address);
    }
    fputc(full ? ']' : '}', stream);
}

static void
write_word(FILE *stream, const char *key, const char *word)
{
    if (word[0] != '\0') {
        fprintf(stream, ", \"%s\": \"%s\"", key, word);
    }
}

/* What was written, or NULL. */
static char *
close_text(FILE *stream, char **text)
{
    if (stream == NULL || fclose(stream) != 0) {
        free(*text);
        return NULL;
    }
    return *text;
}

char *
psi_tf_config_text(const struct psi_tf_config *config, enum psi_tf_type type, uint32_t index)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    bool some = false;

    if (stream != NULL) {
        fputs("{\"cluster\": {", stream);
        for (unsigned i = 0; i < PSI_TF_TYPES; i++) {
            if (config->jobs[i].count > 0) {
                fputs(some ? ", " : "", stream);
                write_job(stream, type_names[i], &config->jobs[i]);
                some = true;
            }
        }
        /* TensorFlow up to 1.3 looks for the environment. */
        fprintf(stream,
                "}, \"task\": {\"type\": \"%s\", \"index\": %u}, \"environment\": \"cloud\"",
                type_names[type], index);
        write_word(stream, "rpc_layer", config->rpc_layer);
        write_word(stream, "session_master", config->session_master);
        fputc('}', stream);
    }
    return close_text(stream, &text);
}

char *
psi_tf_job_text(const struct psi_tf_job *job)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);

    for (uint32_t i = 0; stream != NULL && i < job->count; i++) {
        fprintf(stream, "%s%s", i > 0 ? "," : "", job->tasks[i].address);
    }
    return close_text(stream, &text);
}
