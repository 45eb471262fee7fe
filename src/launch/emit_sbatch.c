/*
 * emit_sbatch.c - a script for sbatch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/emit_sbatch.h"

#include <stdbool.h>
#include <string.h>

#include "base/fail.h"
#include "config/cluster.h"
#include "launch/prepare.h"
#include "launch/roles.h"
#include "launch/words.h"

enum { WARNING_S = 60, MINUTE_S = 60 };

static uint32_t
given_or(uint32_t number, uint32_t otherwise)
{
    return number != LAUNCH_NOT_GIVEN ? number : otherwise;
}

/* How many tasks the job has: psd_run will want exactly as many. */
static psd_status
count_tasks(const struct launch_options *options, const struct psi_cluster *cluster,
            uint32_t *tasks_p, struct psd_error *err)
{
    struct roles roles = {0};
    psd_status status = PSD_OK;

    if (cluster->worker_count > 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%s names worker_nodes: under Slurm it is Slurm that names them; give "
                        "\"tasks\" instead, or --servers and --workers",
                        options->cluster_config);
    }
    if (cluster->tasks != NULL) {
        *tasks_p = cluster->task_count;
    } else if (options->roles != NULL) {
        status = roles_parse(options->roles, &roles, err);
        *tasks_p = roles.count;
        roles_fini(&roles);
    } else {
        *tasks_p = given_or(options->servers, 0) + given_or(options->workers, 1);
    }
    if (status == PSD_OK && options->nodes > *tasks_p) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--nodes %u: --servers and --workers give only %u of them a task",
                        options->nodes, *tasks_p);
    }
    return status;
}

static void
write_directives(const struct launch_options *options, uint32_t tasks, FILE *stream)
{
    const char *name = options->name != NULL ? options->name : "poseidon";
    const bool even = options->nodes > 0 && tasks % options->nodes == 0;

    fprintf(stream, "#SBATCH --job-name=%s\n", name);
    if (options->nodes > 0) {
        fprintf(stream, "#SBATCH --nodes=%u\n", options->nodes);
    }
    fprintf(stream, even ? "#SBATCH --ntasks-per-node=%u\n" : "#SBATCH --ntasks=%u\n",
            even ? tasks / options->nodes : tasks);
    if (options->timeout_s > 0) {
        fprintf(stream, "#SBATCH --time=%u\n",
                (options->timeout_s + WARNING_S + MINUTE_S - 1) / MINUTE_S);
    }
    fprintf(stream,
            "#SBATCH --output=%s-%%j.out\n"
            "#SBATCH --open-mode=append\n"
            "#SBATCH --requeue\n"
            "# %d s before the time is up, workers that handle SIGUSR1 get it; the others go on.\n"
            "#SBATCH --signal=B:USR1@%d\n",
            name, WARNING_S, WARNING_S);
}

/* Options for this command alone, with the value that follows. */
static bool
is_of_emit(const char *word)
{
    static const char *const names[] = {"--emit", "--setup", "--nodes"};
    const size_t bytes = strcspn(word, "=");

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i]) == bytes && strncmp(word, names[i], bytes) == 0) {
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
    uint32_t tasks = 0;

    if (options->cluster_config != NULL) {
        status = prepare_load_file(options->cluster_config, &cluster, err);
    }
    if (status == PSD_OK && options->command == NULL && options->argv == NULL &&
        cluster.worker_commands == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID, "nothing to run: give the workers' command");
    }
    if (status == PSD_OK && options->name != NULL &&
        (options->name[0] == '\0' || strpbrk(options->name, "/\\% \t\r\n\"'") != NULL)) {
        status = psi_fail(err, PSD_ERR_INVALID,
                          "--name %.64s: a name has letters, digits, '-' and '_'", options->name);
    }
    if (status == PSD_OK) {
        status = count_tasks(options, &cluster, &tasks, err);
    }
    if (status == PSD_OK) {
        const char *setup = options->setup != NULL ? options->setup : cluster.setup;

        fputs("#!/bin/bash\n", stream);
        write_directives(options, tasks, stream);
        fputc('\n', stream);
        if (setup != NULL) {
            fprintf(stream, "%s\n", setup);
        }
        write_command(argv, program, stream);
    }
    psi_cluster_free(&cluster);
    return status;
}
