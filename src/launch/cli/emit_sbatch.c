/*
 * emit_sbatch.c - a script for sbatch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/emit_sbatch.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "cluster/cluster.h"
#include "launch/plan/roles.h"
#include "launch/prepare/prepare.h"
#include "launch/text/memory.h"
#include "launch/text/words.h"

enum { WARNING_S = 60, MINUTE_S = 60 };

static uint32_t
given_or(uint32_t number, uint32_t otherwise)
{
    return number != LAUNCH_NOT_GIVEN ? number : otherwise;
}

/* What Slurm is asked for. */
struct shape {
    uint32_t tasks;           /* psd_run will want exactly as many */
    uint32_t tasks_on_node;   /* the most on one; 0: --nodes was not given */
    uint32_t workers_on_node; /* of these */
};

/* Tasks are counted node by node, the first nodes full. */
static void
count_on_nodes(const struct launch_options *options, const struct roles *roles,
               struct shape *shape_p)
{
    if (options->nodes == 0) {
        return;
    }
    shape_p->tasks_on_node = (shape_p->tasks + options->nodes - 1) / options->nodes;
    for (uint32_t first = 0; first < roles->count; first += shape_p->tasks_on_node) {
        uint32_t workers = 0;

        for (uint32_t i = first; i < roles->count && i < first + shape_p->tasks_on_node; i++) {
            workers += roles->list[i] == LAUNCH_WORKER;
        }
        shape_p->workers_on_node =
            workers > shape_p->workers_on_node ? workers : shape_p->workers_on_node;
    }
}

/* --servers and --workers, as --placement has them. */
static psd_status
place_roles(const struct launch_options *options, struct roles *roles_p, struct psd_error *err)
{
    const uint32_t servers = given_or(options->servers, 0);
    const uint32_t tasks = servers + given_or(options->workers, 1);
    const uint32_t nodes = options->nodes > 0 && options->nodes <= tasks ? options->nodes : 1;
    const uint32_t full = (tasks + nodes - 1) / nodes;
    uint32_t *tasks_on = memory_need(calloc(nodes, sizeof(*tasks_on)));
    uint32_t left = tasks;
    psd_status status;

    for (uint32_t i = 0; i < nodes; i++) {
        tasks_on[i] = left < full ? left : full;
        left -= tasks_on[i];
    }
    status = roles_place(servers, options->placement, tasks_on, nodes, roles_p, err);
    free(tasks_on);
    return status;
}

static psd_status
find_shape(const struct launch_options *options, const struct psi_cluster *cluster,
           struct shape *shape_p, struct psd_error *err)
{
    struct roles roles = {0};
    psd_status status;

    if (cluster->worker_count > 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%s names worker_nodes, but here Slurm chooses the nodes: give \"tasks\" "
                        "instead, or --servers and --workers",
                        options->cluster_config);
    }
    if (cluster->tasks != NULL) {
        status = roles_take(cluster->tasks, cluster->task_count, &roles, err);
    } else if (options->roles != NULL) {
        status = roles_parse(options->roles, &roles, err);
    } else {
        status = place_roles(options, &roles, err);
    }
    *shape_p = (struct shape){.tasks = roles.count};
    if (status == PSD_OK && options->nodes > roles.count) {
        status = psi_fail(err, PSD_ERR_INVALID,
                          "--nodes %u: --servers and --workers give only %u of them a task",
                          options->nodes, roles.count);
    }
    if (status == PSD_OK) {
        count_on_nodes(options, &roles, shape_p);
    }
    roles_fini(&roles);
    return status;
}

/* Agents are one task on a node each and hand on what the node has: so it is the node's share that
 * is asked for, of all but cores. */
static psd_status
check_shares(const struct launch_options *options, struct psd_error *err)
{
    if (options->nodes == 0 && (options->gpus_per_worker > 0 || options->memory_per_worker > 0)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--emit sbatch: --%s_per_worker needs --nodes N, to know what to ask of "
                        "each node",
                        options->gpus_per_worker > 0 ? "gpus" : "memory");
    }
    return PSD_OK;
}

static void
write_shares(const struct launch_options *options, const struct shape *shape, FILE *stream)
{
    if (options->gpus_per_worker > 0) {
        fprintf(stream, "#SBATCH --gres=gpu:%u\n",
                options->gpus_per_worker * shape->workers_on_node);
    }
    if (options->cpus_per_worker > 0) {
        fprintf(stream, "#SBATCH --cpus-per-task=%u\n", options->cpus_per_worker);
    }
    if (options->memory_per_worker > 0) { /* servers hold the model as well: as much for them */
        fprintf(stream, "#SBATCH --mem=%lluM\n",
                (unsigned long long)options->memory_per_worker * shape->tasks_on_node);
    }
}

static void
write_directives(const struct launch_options *options, const struct shape *shape, FILE *stream)
{
    const char *name = options->name != NULL ? options->name : "poseidon";
    const bool even = options->nodes > 0 && shape->tasks % options->nodes == 0;

    fprintf(stream, "#SBATCH --job-name=%s\n", name);
    if (options->nodes > 0) {
        fprintf(stream, "#SBATCH --nodes=%u\n", options->nodes);
    }
    if (!even) {
        fprintf(stream, "#SBATCH --ntasks=%u\n", shape->tasks);
    }
    if (options->nodes > 0) { /* beside --ntasks: at most */
        fprintf(stream, "#SBATCH --ntasks-per-node=%u\n", shape->tasks_on_node);
    }
    write_shares(options, shape, stream);
    if (options->timeout_s > 0) {
        fprintf(stream, "#SBATCH --time=%u\n",
                (options->timeout_s + WARNING_S + MINUTE_S - 1) / MINUTE_S);
    }
    fprintf(stream,
            "#SBATCH --output=%s-%%j.out\n"
            "#SBATCH --open-mode=append\n"
            "#SBATCH --requeue\n",
            name);
    if (options->checkpoint != NULL) {
        fprintf(stream,
                "# %d s before the time is up, the job is saved, and asks to be run again.\n"
                "#SBATCH --signal=B:TERM@%d\n",
                WARNING_S, WARNING_S);
    } else {
        fprintf(stream,
                "# %d s before the time is up, workers that handle SIGUSR1 get it; the others go "
                "on.\n"
                "#SBATCH --signal=B:USR1@%d\n",
                WARNING_S, WARNING_S);
    }
}

/* In names of options, - and _ are equal. */
static bool
is_option(const char *word, const char *name)
{
    const size_t bytes = strcspn(word, "=");
    bool same = strlen(name) == bytes;

    for (size_t i = 0; same && i < bytes; i++) {
        same = word[i] == name[i] || (word[i] == '-' && name[i] == '_');
    }
    return same;
}

/* Options for this command alone, with the value that follows. */
static bool
is_of_emit(const char *word)
{
    static const char *const names[] = {"--emit", "--setup", "--nodes", "--cpus_per_worker",
                                        "--memory_per_worker"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (is_option(word, names[i])) {
            return true;
        }
    }
    return false;
}

/* The same command line. psd_run takes the place of the shell, and so gets its signals. */
static void
write_command(char *const *argv, const char *program, FILE *stream)
{
    bool options = true;

    fputs("exec ", stream);
    words_quote(stream, program);
    for (argv++; *argv != NULL; argv++) {
        options = options && strcmp(*argv, "--") != 0;
        if (options && is_of_emit(*argv)) {
            argv += strchr(*argv, '=') == NULL;
            continue;
        }
        fputc(' ', stream);
        words_quote(stream, *argv);
    }
    fputc('\n', stream);
}

psd_status
emit_sbatch(const struct launch_options *options, char *const *argv, const char *program,
            FILE *stream, struct psd_error *err)
{
    struct psi_cluster cluster = {0};
    psd_status status = PSD_OK;
    struct shape shape = {0};

    if (options->cluster_config != NULL) {
        status = prepare_load_file(options->cluster_config, &cluster, err);
    }
    if (status == PSD_OK && options->command == NULL && options->argv == NULL &&
        cluster.worker_commands == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID,
                          "nothing to run: give the workers' command, as in \"python train.py\"");
    }
    if (status == PSD_OK && options->name != NULL &&
        (options->name[0] == '\0' || strpbrk(options->name, "/\\% \t\r\n\"'") != NULL)) {
        status = psi_fail(err, PSD_ERR_INVALID, "--name %.64s: use letters, digits, '-' and '_'",
                          options->name);
    }
    if (status == PSD_OK) {
        status = find_shape(options, &cluster, &shape, err);
    }
    if (status == PSD_OK) {
        status = check_shares(options, err);
    }
    if (status == PSD_OK) {
        const char *setup = options->setup != NULL ? options->setup : cluster.setup;

        fputs("#!/bin/bash\n", stream);
        write_directives(options, &shape, stream);
        fputc('\n', stream);
        if (setup != NULL) {
            fprintf(stream, "%s\n", setup);
        }
        write_command(argv, program, stream);
    }
    psi_cluster_free(&cluster);
    return status;
}
