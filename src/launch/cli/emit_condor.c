/*
 * emit_condor.c - a submit description for HTCondor.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "launch/cli/emit.h"

enum universe { VANILLA, DOCKER, PARALLEL, UNIVERSES };

static const char *const universe_names[UNIVERSES] = {"vanilla", "docker", "parallel"};

/* A word of `arguments = "..."`: blanks stand in single quotes, quotes are doubled, and what would
 * be a macro is none. */
static void
print_word(FILE *file, const char *word)
{
    fputs(" '", file);
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            fputs("''", file);
        } else if (*word == '"') {
            fputs("\"\"", file);
        } else if (*word == '$') {
            fputs("$(DOLLAR)", file);
        } else {
            fputc(*word, file);
        }
    }
    fputc('\'', file);
}

static psd_status
check_words(const struct words *words, struct psd_error *err)
{
    for (size_t i = 0; i < words->count; i++) {
        if (strpbrk(words->list[i], "\n\r") != NULL) {
            return psi_fail(err, PSD_ERR_INVALID,
                            "--emit condor: a word of the command has a line end, which a submit "
                            "file cannot hold; put the command into a script");
        }
    }
    return PSD_OK;
}

static psd_status
find_universe(const struct emit *emit, enum universe *universe_p, struct psd_error *err)
{
    const char *name = emit->options->universe != NULL ? emit->options->universe : "vanilla";

    for (int i = 0; i < UNIVERSES; i++) {
        if (strcmp(name, universe_names[i]) == 0) {
            *universe_p = (enum universe)i;
            return PSD_OK;
        }
    }
    return psi_fail(err, PSD_ERR_INVALID, "--universe %.64s: must be vanilla, docker or parallel",
                    name);
}

static psd_status
check(const struct emit *emit, enum universe universe, struct psd_error *err)
{
    if (emit->options->rendezvous == NULL || emit->options->rendezvous[0] != '/') {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--emit condor: --rendezvous /DIR is needed: a directory that all machines "
                        "see under this path");
    }
    if (universe == DOCKER && emit->options->image == NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--emit condor --universe docker: --image NAME is needed, with psd_run, "
                        "ps_master and ps_server in it");
    }
    return check_words(&emit->handed_on, err) == PSD_OK ? check_words(&emit->command, err)
                                                        : PSD_ERR_INVALID;
}

static void
print_arguments(const struct emit *emit, enum universe universe, FILE *file)
{
    fprintf(file, "arguments = \"--rendezvous");
    print_word(file, emit->options->rendezvous);
    fprintf(file, " --job_id $(ClusterId) --rank %s --size %u --servers %u",
            universe == PARALLEL ? "$(Node)" : "$(Process)", emit->size, emit->servers);
    if (emit->options->secret_file != NULL) {
        fprintf(file, " --secret_file");
        print_word(file, emit->options->secret_file);
    }
    for (size_t i = 0; i < emit->handed_on.count; i++) {
        print_word(file, emit->handed_on.list[i]);
    }
    fprintf(file, " --");
    for (size_t i = 0; i < emit->command.count; i++) {
        print_word(file, emit->command.list[i]);
    }
    fprintf(file, "\"\n");
}

static void
print_universe(const struct emit *emit, enum universe universe, FILE *file)
{
    char program[4096] = "psd_run";
    const ssize_t bytes = readlink("/proc/self/exe", program, sizeof(program) - 1);

    program[bytes > 0 ? bytes : (ssize_t)strlen(program)] = '\0';
    fprintf(file, "universe = %s\n", universe_names[universe]);
    if (universe == DOCKER) {
        fprintf(file,
                "docker_image = %s\n"
                "# The processes talk to each other: they need the host's network, and %s mounted "
                "(DOCKER_VOLUMES).\n"
                "docker_network_type = host\n"
                "executable = /usr/local/bin/psd_run\n",
                emit->options->image, emit->options->rendezvous);
    } else {
        fprintf(file, "executable = %s\n", program);
    }
    fprintf(file, "transfer_executable = false\n");
}

/* What each process needs. Servers hold the model as well, and compute on cores. */
static void
print_share(const struct emit *emit, bool gpus, FILE *file)
{
    const struct launch_options *options = emit->options;

    if (options->cpus_per_worker > 0) {
        fprintf(file, "request_cpus = %u\n", options->cpus_per_worker);
    }
    if (options->memory_per_worker > 0) {
        fprintf(file, "request_memory = %u MB\n", options->memory_per_worker);
    }
    if (gpus && options->gpus_per_worker > 0) {
        fprintf(file, "request_gpus = %u\n", options->gpus_per_worker);
    }
}

/* $(Process) goes on counting from one queue to the next. */
static void
print_queue(const struct emit *emit, enum universe universe, FILE *file)
{
    if (universe == PARALLEL) { /* its nodes are all alike */
        print_share(emit, true, file);
        fprintf(file,
                "machine_count = %u\n"
                "+ParallelShutdownPolicy = \"WAIT_FOR_ALL\"\n"
                "queue\n",
                emit->size);
    } else if (emit->options->gpus_per_worker == 0 || emit->servers == 0) {
        print_share(emit, true, file);
        fprintf(file, "queue %u\n", emit->size);
    } else {
        print_share(emit, false, file);
        fprintf(file, "# The servers; the workers follow.\nqueue %u\n", emit->servers);
        fprintf(file, "request_gpus = %u\nqueue %u\n", emit->options->gpus_per_worker,
                emit->size - emit->servers);
    }
}

psd_status
emit_condor(const struct emit *emit, FILE *file, struct psd_error *err)
{
    static const char vacating[] =
        "# Before it goes, the job is saved; when all are back, it goes on from there.\n"
        "job_max_vacate_time = 120\n";
    enum universe universe = VANILLA;
    psd_status status = find_universe(emit, &universe, err);

    status = status == PSD_OK ? check(emit, universe, err) : status;
    if (status != PSD_OK) {
        return status;
    }
    emit_print_counts(emit, "rank", file);
    fprintf(file, " condor_submit this file.\n");
    print_universe(emit, universe, file);
    print_arguments(emit, universe, file);
    fprintf(file,
            "should_transfer_files = NO\n"
            "# An evicted process is run again elsewhere, and takes its place in the job again.\n"
            "kill_sig = SIGTERM\n"
            "%s"
            "log = log_$(ClusterId).txt\n"
            "output = output_$(ClusterId)_%s.txt\n"
            "error = error_$(ClusterId)_%s.txt\n",
            emit->options->checkpoint != NULL ? vacating : "",
            universe == PARALLEL ? "$(Node)" : "$(Process)",
            universe == PARALLEL ? "$(Node)" : "$(Process)");
    print_queue(emit, universe, file);
    return PSD_OK;
}
