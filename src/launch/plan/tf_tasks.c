/*
 * tf_tasks.c - tasks of a TensorFlow cluster that somebody laid out by hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/plan/tf_tasks.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>

#include "base/fail.h"
#include "cluster/endpoint.h"
#include "launch/system/close_fd.h"
#include "launch/text/memory.h"
#include "launch/text/variables.h"

/* One file. */
struct piece {
    const char *name;
    struct psi_tf_config config;
};

static psd_status
read_piece(const char *name, char *const *environment, struct piece *piece, struct psd_error *err)
{
    const bool variable = strcmp(name, "env") == 0;
    const char *text = variables_get(environment, "TF_CONFIG");
    psd_status status;

    piece->name = variable ? "TF_CONFIG" : name;
    if (variable && (text == NULL || text[0] == '\0')) {
        return psi_fail(err, PSD_ERR_INVALID, "--tf_config env: the variable TF_CONFIG is not set");
    }
    status = variable ? psi_tf_config_parse(text, strlen(text), "TF_CONFIG", &piece->config, err)
                      : psi_tf_config_load(name, &piece->config, err);
    if (status == PSD_ERR_IO) {
        err->status = PSD_ERR_INVALID; /* a file that is not there is a usage error, too */
        return PSD_ERR_INVALID;
    }
    if (status == PSD_OK && !piece->config.has_task) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%s: it has no \"task\", so which one of its cluster is to run?",
                        piece->name);
    }
    return status;
}

/* Two files may be neither the same task nor of two clusters. */
static psd_status
compare(const struct piece *one, const struct piece *other, struct psd_error *err)
{
    struct psi_tf_config sum;
    psd_status status;

    if (one->config.type == other->config.type && one->config.index == other->config.index) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%.100s and %.100s are both %s %u: name each task once", one->name,
                        other->name, psi_tf_type_name(one->config.type), one->config.index);
    }
    status = psi_tf_config_copy(&one->config, &sum, err);
    if (status == PSD_OK) {
        status = psi_tf_config_merge(&sum, one->name, &other->config, other->name, err);
        psi_tf_config_free(&sum);
    }
    return status;
}

/* What the four flags can say. */
static psd_status
check_flags(const struct piece *piece, struct psd_error *err)
{
    const struct psi_tf_config *config = &piece->config;
    const bool told = config->type == PSI_TF_WORKER || config->type == PSI_TF_PS;

    if (!told || config->jobs[PSI_TF_CHIEF].count > 0) {
        return psi_fail(err, PSD_ERR_INVALID, "%s: the flags of tf1 know ps and worker alone",
                        piece->name);
    }
    if (!psi_tf_job_is_full(&config->jobs[PSI_TF_PS]) ||
        !psi_tf_job_is_full(&config->jobs[PSI_TF_WORKER]) ||
        config->index >= config->jobs[config->type].count) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%s: the flags of tf1 need all addresses up to that of %s %u", piece->name,
                        psi_tf_type_name(config->type), config->index);
    }
    return PSD_OK;
}

/* What a rank among Poseidon's workers is made of, and the address of its master. */
static psd_status
check_rank(const struct piece *piece, struct psd_error *err)
{
    const struct psi_tf_config *config = &piece->config;

    if (config->type != PSI_TF_CHIEF && config->type != PSI_TF_WORKER) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%.100s: with --personality=poseidon, files are for chief and workers; "
                        "start ps_master where ps 0 is, and the ps_servers, by hand",
                        piece->name);
    }
    if (psi_tf_config_address(config, PSI_TF_PS, 0) == NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%.100s: no ps 0: with --personality=poseidon that is where ps_master "
                        "listens",
                        piece->name);
    }
    if (!psi_tf_job_is_full(&config->jobs[PSI_TF_WORKER]) ||
        config->index >= config->jobs[config->type].count) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%.100s: how many workers the job has is told by their list: %s %u is not "
                        "in it, or some are missing",
                        piece->name, psi_tf_type_name(config->type), config->index);
    }
    return PSD_OK;
}

/* Returns 0 or an errno: whether a program here could listen there. */
static int
try_address(const struct psi_endpoint *endpoint)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char port[8];
    int code = 0;
    int on = 1;
    int fd;

    snprintf(port, sizeof(port), "%u", endpoint->port);
    if (getaddrinfo(endpoint->host, port, &hints, &found) != 0) {
        return EADDRNOTAVAIL;
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0) {
        code = errno;
    }
    close_fd(&fd);
    freeaddrinfo(found);
    return code;
}

/* The same task started twice finds its own address taken. */
static psd_status
check_address(const struct piece *piece, struct tf_tasks *tasks, struct psd_error *err)
{
    const struct psi_tf_config *config = &piece->config;
    const char *type = psi_tf_type_name(config->type);
    const char *address = psi_tf_config_address(config, config->type, config->index);
    struct psi_endpoint endpoint;
    int code;

    if (address == NULL || psi_endpoint_parse(address, &endpoint) != NULL) {
        return PSD_OK;
    }
    code = try_address(&endpoint);
    if (code == EADDRINUSE) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%.100s: %s %u should listen on %.100s, where somebody does already: does "
                        "this task run twice?",
                        piece->name, type, config->index, address);
    }
    if (code == EADDRNOTAVAIL) {
        snprintf(tasks->note, sizeof(tasks->note),
                 "%.80s: %s %u is to listen on %.100s, which is no address of this machine",
                 piece->name, type, config->index, address);
    }
    return PSD_OK;
}

static void
note_gaps(const struct piece *piece, struct tf_tasks *tasks)
{
    for (unsigned type = 0; type < PSI_TF_TYPES; type++) {
        if (!psi_tf_job_is_full(&piece->config.jobs[type])) {
            snprintf(tasks->note, sizeof(tasks->note),
                     "%.80s: some %s have no address; TensorFlow itself does not read such a map",
                     piece->name, psi_tf_type_name((enum psi_tf_type)type));
        }
    }
}

static int
by_task(const void *one, const void *other)
{
    const struct psi_tf_config *a = &((const struct piece *)one)->config;
    const struct psi_tf_config *b = &((const struct piece *)other)->config;
    const bool a_serves = a->type == PSI_TF_PS;
    const bool b_serves = b->type == PSI_TF_PS;

    if (a_serves != b_serves) {
        return a_serves ? -1 : 1;
    }
    return a->type != b->type ? (int)a->type - (int)b->type : (int)a->index - (int)b->index;
}

static psd_status
check_pieces(const struct piece *pieces, size_t count, enum tf_tasks_need need,
             struct tf_tasks *tasks, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (size_t i = 0; i < count && status == PSD_OK; i++) {
        for (size_t k = 0; k < i && status == PSD_OK; k++) {
            status = compare(&pieces[k], &pieces[i], err);
        }
        if (status == PSD_OK && need == TF_TASKS_RANK) { /* nothing listens where the file says */
            status = check_rank(&pieces[i], err);
            continue;
        }
        if (status == PSD_OK && need == TF_TASKS_FLAGS) {
            status = check_flags(&pieces[i], err);
        }
        note_gaps(&pieces[i], tasks);
        if (status == PSD_OK) {
            status = check_address(&pieces[i], tasks, err);
        }
    }
    return status;
}

/* Servers first, then the chief, the workers, the evaluator. Takes the pieces. */
static void
take_slots(struct piece *pieces, size_t count, struct tf_tasks *tasks)
{
    uint32_t servers = 0;

    tasks->list = memory_need(calloc(1 + count, sizeof(*tasks->list)));
    qsort(pieces, count, sizeof(*pieces), by_task);
    for (size_t i = 0; i < count; i++) {
        servers += pieces[i].config.type == PSI_TF_PS;
        tasks->list[1 + i] = pieces[i].config;
        pieces[i].config = (struct psi_tf_config){0};
    }
    tasks->servers = servers < count ? servers : 0;
    tasks->workers = (uint32_t)count - tasks->servers;
}

psd_status
tf_tasks_load(const struct psi_option_list *files, char *const *environment,
              enum tf_tasks_need need, struct tf_tasks *tasks_p, struct psd_error *err)
{
    struct piece pieces[PSI_OPTION_LIST_MAX] = {0};
    struct tf_tasks tasks = {0};
    psd_status status = PSD_OK;

    for (size_t i = 0; i < files->count && status == PSD_OK; i++) {
        status = read_piece(files->values[i], environment, &pieces[i], err);
    }
    if (status == PSD_OK) {
        status = check_pieces(pieces, files->count, need, &tasks, err);
    }
    if (status == PSD_OK) {
        take_slots(pieces, files->count, &tasks);
    }
    for (size_t i = 0; i < files->count; i++) {
        psi_tf_config_free(&pieces[i].config);
    }
    if (status == PSD_OK) {
        *tasks_p = tasks;
    }
    return status;
}
