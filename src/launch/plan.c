/*
 * plan.c - program, arguments and environment of every process.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>

#include "base/fail.h"
#include "launch/spawn.h"

const char *
plan_variable(char *const *environment, const char *name)
{
    const size_t bytes = strlen(name);

    for (; environment != NULL && *environment != NULL; environment++) {
        if (strncmp(*environment, name, bytes) == 0 && (*environment)[bytes] == '=') {
            return *environment + bytes + 1;
        }
    }
    return NULL;
}

/* Removes a variable: the last takes its place, the order means nothing. */
static void
unset(struct words *environment, const char *name, size_t bytes)
{
    for (size_t i = 0; i < environment->count; i++) {
        if (strncmp(environment->list[i], name, bytes) == 0 && environment->list[i][bytes] == '=') {
            free(environment->list[i]);
            environment->list[i] = environment->list[--environment->count];
            environment->list[environment->count] = NULL;
            return;
        }
    }
}

static psd_status
set(struct words *environment, const char *assignment, struct psd_error *err)
{
    unset(environment, assignment, strcspn(assignment, "="));
    return words_add(environment, assignment, err);
}

static psd_status
set_all(struct words *environment, char *const *assignments, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (; status == PSD_OK && assignments != NULL && *assignments != NULL; assignments++) {
        status = set(environment, *assignments, err);
    }
    return status;
}

static psd_status
set_format(struct words *environment, struct psd_error *err, const char *name, const char *value,
           const char *rest)
{
    char *text;
    psd_status status;

    if (asprintf(&text, "%s=%s%s", name, value, rest) < 0) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "environment: no memory for %s", name);
    }
    status = set(environment, text, err);
    free(text);
    return status;
}

/* What `source VENV/bin/activate` would do. */
static psd_status
activate(struct words *environment, const char *virtualenv, struct psd_error *err)
{
    const char *path = plan_variable(environment->list, "PATH");
    char *python;
    char *joined;
    char *found;
    psd_status status;

    if (asprintf(&python, "%s/bin/python", virtualenv) < 0) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "virtualenv: no memory");
    }
    found = command_find(python, "");
    free(python);
    if (found == NULL) {
        return psi_fail(err, PSD_ERR_IO, "virtualenv %s: no bin/python there", virtualenv);
    }
    free(found);
    if (asprintf(&joined, "/bin%s%s", path != NULL ? ":" : "", path != NULL ? path : "") < 0) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "virtualenv: no memory");
    }
    status = set_format(environment, err, "PATH", virtualenv, joined);
    free(joined);
    unset(environment, "PYTHONHOME", strlen("PYTHONHOME"));
    return status == PSD_OK ? set_format(environment, err, "VIRTUAL_ENV", virtualenv, "") : status;
}

static psd_status
add_words(struct words *words, const struct words *more, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (size_t i = 0; i < more->count && status == PSD_OK; i++) {
        status = words_add(words, more->list[i], err);
    }
    return status;
}

static psd_status
copy_worker_sets(const struct plan_input *input, struct plan *plan, struct psd_error *err)
{
    psd_status status = PSD_OK;

    plan->worker_set = calloc(input->workers, sizeof(*plan->worker_set));
    if (plan->worker_set == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "plan: no memory for %u workers", input->workers);
    }
    for (uint32_t i = 0; i < input->workers && status == PSD_OK; i++) {
        status = add_words(&plan->worker_set[i], &input->worker_set[i], err);
    }
    return status;
}

static psd_status
build_environments(const struct plan_input *input, struct plan *plan, struct psd_error *err)
{
    struct words *workers = &plan->worker_environment;
    psd_status status = set_all(&plan->service_environment, input->environment, err);

    if (status == PSD_OK) {
        status = set_all(workers, input->environment, err);
    }
    if (status == PSD_OK && input->set != NULL) {
        status = set_all(workers, input->set->list, err);
    }
    if (status == PSD_OK && input->worker_set != NULL) {
        status = copy_worker_sets(input, plan, err);
    }
    if (status == PSD_OK && input->virtualenv != NULL) {
        status = activate(workers, input->virtualenv, err);
    }
    /* A worker's lines are wanted when it prints them, not when a buffer is full. */
    if (status == PSD_OK && plan_variable(workers->list, "PYTHONUNBUFFERED") == NULL) {
        status = words_add(workers, "PYTHONUNBUFFERED=1", err);
    }
    return status;
}

/* Beside psd_run first: a build tree runs its own daemons. */
static psd_status
find_daemon(const struct plan_input *input, const char *name, char **path_p, struct psd_error *err)
{
    const char *search = plan_variable(input->environment, "PATH");
    char *beside = NULL;

    if (asprintf(&beside, "%s/%s", input->program_directory, name) < 0) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "%s: no memory for its path", name);
    }
    *path_p = command_find(beside, "");
    free(beside);
    if (*path_p == NULL) {
        *path_p = command_find(name, search);
    }
    if (*path_p == NULL) {
        return psi_fail(err, PSD_ERR_IO, "%s: neither in %s nor in PATH", name,
                        input->program_directory);
    }
    return PSD_OK;
}

static psd_status
parse_commands(const struct words *texts, struct plan *plan, struct psd_error *err)
{
    psd_status status = PSD_OK;

    plan->commands = calloc(texts->count, sizeof(*plan->commands));
    plan->flags = calloc(texts->count, sizeof(*plan->flags));
    if (plan->commands == NULL || plan->flags == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "plan: no memory for %zu commands", texts->count);
    }
    for (size_t i = 0; i < texts->count && status == PSD_OK; i++) {
        status = command_parse(texts->list[i], &plan->commands[i], err);
        plan->command_count += status == PSD_OK;
    }
    return status;
}

/* Words that came as argv are taken as they are; only one command is possible then. */
static psd_status
take_argv(char *const *argv, struct plan *plan, struct psd_error *err)
{
    psd_status status = PSD_OK;

    plan->commands = calloc(1, sizeof(*plan->commands));
    plan->flags = calloc(1, sizeof(*plan->flags));
    if (plan->commands == NULL || plan->flags == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "plan: no memory for a command");
    }
    plan->command_count = 1;
    for (; *argv != NULL && status == PSD_OK; argv++) {
        struct command *command = &plan->commands[0];
        const bool leading = command->argv.count == 0 && words_name_bytes(*argv) > 0;

        status = words_add(leading ? &command->environment : &command->argv, *argv, err);
    }
    if (status == PSD_OK && plan->commands[0].argv.count == 0) {
        return psi_fail(err, PSD_ERR_INVALID, "nothing to run");
    }
    return status;
}

static psd_status
build_commands(const struct plan_input *input, struct plan *plan, struct psd_error *err)
{
    struct words texts = {0};
    psd_status status;

    if (input->argv != NULL) {
        return take_argv(input->argv, plan, err);
    }
    if (input->worker_commands != NULL) {
        if (input->worker_commands->count != input->workers) {
            return psi_fail(err, PSD_ERR_INVALID, "worker_commands: %zu commands for %u workers",
                            input->worker_commands->count, input->workers);
        }
        return parse_commands(input->worker_commands, plan, err);
    }
    status = command_list(input->command, input->workers,
                          plan_variable(plan->worker_environment.list, "PATH"), &texts, err);
    if (status == PSD_OK) {
        status = parse_commands(&texts, plan, err);
    }
    words_fini(&texts);
    return status;
}

/* For a path that command_find() did not take. */
static const char *
why_not_found(const char *program)
{
    struct stat info;

    if (strchr(program, '/') == NULL || stat(program, &info) != 0) {
        return "no such program";
    }
    return S_ISDIR(info.st_mode) ? "is a directory" : "not executable";
}

/* Finds every program, replaces its name by its path, and decides about the flags. */
static psd_status
settle_commands(const struct plan_input *input, struct plan *plan, struct psd_error *err)
{
    static const char *const reasons[] = {"", "pass=flags", "pass=env", "pass=both", "pass=none"};

    for (uint32_t i = 0; i < plan->command_count; i++) {
        struct command *command = &plan->commands[i];
        const char *own_path = plan_variable(command->environment.list, "PATH");
        const char *path = plan_variable(plan->worker_environment.list, "PATH");
        const char *file = NULL;
        char *program = command_find(command->argv.list[0], own_path != NULL ? own_path : path);

        if (program == NULL) {
            return psi_fail(err, PSD_ERR_IO, "%.200s: %s", command->argv.list[0],
                            why_not_found(command->argv.list[0]));
        }
        free(command->argv.list[0]);
        command->argv.list[0] = program;
        if (command_has_placeholder(command)) {
            snprintf(plan->choice, sizeof(plan->choice), "no flags: the command has placeholders");
        } else if (input->pass == PSI_PASS_AUTO) {
            plan->flags[i] = command_knows_flags(command, path, &file);
            snprintf(plan->choice, sizeof(plan->choice), "%s: %.150s %s master_address",
                     plan->flags[i] ? "flags" : "no flags", file,
                     plan->flags[i] ? "knows" : "does not know");
        } else {
            plan->flags[i] = input->pass == PSI_PASS_FLAGS || input->pass == PSI_PASS_BOTH;
            snprintf(plan->choice, sizeof(plan->choice), "%s: %s",
                     plan->flags[i] ? "flags" : "no flags", reasons[input->pass]);
        }
    }
    return PSD_OK;
}

psd_status
plan_build(const struct plan_input *input, struct plan *plan_p, struct psd_error *err)
{
    struct plan plan = {.servers = input->servers,
                        .workers = input->workers,
                        .pass = input->pass,
                        .master_port = input->master_port};
    psd_status status;

    if (input->servers < 1 || input->servers > PSI_CLUSTER_SERVERS_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "%u servers: 1 to %d are possible", input->servers,
                        PSI_CLUSTER_SERVERS_MAX);
    }
    if (input->workers < 1 || input->workers > PSI_CLUSTER_WORKERS_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "%u workers: 1 to %d are possible", input->workers,
                        PSI_CLUSTER_WORKERS_MAX);
    }
    status = build_environments(input, &plan, err);
    if (status == PSD_OK) {
        status = build_commands(input, &plan, err);
    }
    if (status == PSD_OK) {
        status = settle_commands(input, &plan, err);
    }
    if (status == PSD_OK) {
        status = find_daemon(input, "ps_master", &plan.master_path, err);
    }
    if (status == PSD_OK) {
        status = find_daemon(input, "ps_server", &plan.server_path, err);
    }
    if (status == PSD_OK && input->master_settings != NULL) {
        status = add_words(&plan.master_settings, input->master_settings, err);
    }
    if (status == PSD_OK && input->server_settings != NULL) {
        status = add_words(&plan.server_settings, input->server_settings, err);
    }
    if (status != PSD_OK) {
        plan_fini(&plan);
        return status;
    }
    *plan_p = plan;
    return PSD_OK;
}

void
plan_fini(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->command_count; i++) {
        command_fini(&plan->commands[i]);
    }
    for (uint32_t i = 0; plan->worker_set != NULL && i < plan->workers; i++) {
        words_fini(&plan->worker_set[i]);
    }
    free(plan->worker_set);
    free(plan->commands);
    free(plan->flags);
    free(plan->master_path);
    free(plan->server_path);
    words_fini(&plan->master_settings);
    words_fini(&plan->server_settings);
    words_fini(&plan->service_environment);
    words_fini(&plan->worker_environment);
    *plan = (struct plan){0};
}

static psd_status
add_number(struct words *argv, const char *option, uint32_t value, struct psd_error *err)
{
    const psd_status status = words_add(argv, option, err);

    return status == PSD_OK ? words_add_format(argv, err, "%u", value) : status;
}

static psd_status
master_arguments(const struct plan *plan, struct words *argv, struct psd_error *err)
{
    psd_status status = words_add(argv, plan->master_path, err);

    if (status == PSD_OK) {
        status = add_number(argv, "--workers", plan->workers, err);
    }
    if (status == PSD_OK) {
        status = add_number(argv, "--servers", plan->servers, err);
    }
    if (status == PSD_OK) {
        status = add_number(argv, "--port", plan->master_port, err);
    }
    return status == PSD_OK ? add_number(argv, "--ready_fd", SPAWN_EXTRA_FD, err) : status;
}

static psd_status
server_arguments(const struct plan *plan, uint32_t index, const char *master, struct words *argv,
                 struct psd_error *err)
{
    psd_status status = words_add(argv, plan->server_path, err);

    if (status == PSD_OK) {
        status = add_number(argv, "--index", index, err);
    }
    if (status == PSD_OK) {
        status = words_add(argv, "--master_address", err);
    }
    return status == PSD_OK ? words_add(argv, master, err) : status;
}

static psd_status
service_process(const struct plan *plan, uint32_t slot, const char *master, struct words *argv,
                struct words *environment, struct psd_error *err)
{
    psd_status status = slot == 0 ? master_arguments(plan, argv, err)
                                  : server_arguments(plan, slot - 1, master, argv, err);

    if (status == PSD_OK) {
        status = add_words(argv, slot == 0 ? &plan->master_settings : &plan->server_settings, err);
    }
    return status == PSD_OK ? add_words(environment, &plan->service_environment, err) : status;
}

/* What a worker is told about its place in the job. */
static psd_status
set_place(const struct command_values *values, uint32_t restart, struct words *environment,
          struct psd_error *err)
{
    char rank[16];
    char world[16];
    char count[16];
    const char *const variables[][2] = {{"PSD_MASTER_ADDRESS", values->master},
                                        {"PSD_RANK", rank},
                                        {"PSD_ROLE", values->role},
                                        {"PSD_WORLD", world},
                                        {"PSD_RESTART_COUNT", count}};
    psd_status status = PSD_OK;

    snprintf(rank, sizeof(rank), "%u", values->rank);
    snprintf(world, sizeof(world), "%u", values->world);
    snprintf(count, sizeof(count), "%u", restart);
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]) && status == PSD_OK; i++) {
        status = set_format(environment, err, variables[i][0], variables[i][1], "");
    }
    return status;
}

static psd_status
add_flags(const struct command_values *values, struct words *argv, struct psd_error *err)
{
    psd_status status = words_add(argv, "--distributed", err);

    if (status == PSD_OK) {
        status = words_add(argv, "--master_address", err);
    }
    if (status == PSD_OK) {
        status = words_add(argv, values->master, err);
    }
    if (status == PSD_OK) {
        status = words_add(argv, "--client_id", err);
    }
    return status == PSD_OK ? words_add_format(argv, err, "%u", values->rank) : status;
}

static psd_status
worker_process(const struct plan *plan, const struct command_values *values, uint32_t restart,
               struct words *argv, struct words *environment, struct psd_error *err)
{
    const uint32_t which = plan->command_count == 1 ? 0 : values->rank;
    const struct command *command = &plan->commands[which];
    struct words own = {0};
    psd_status status = add_words(environment, &plan->worker_environment, err);

    if (status == PSD_OK && plan->worker_set != NULL) {
        status = set_all(environment, plan->worker_set[values->rank].list, err);
    }
    if (status == PSD_OK && plan->pass != PSI_PASS_NONE && plan->pass != PSI_PASS_FLAGS) {
        status = set_place(values, restart, environment, err);
    }
    if (status == PSD_OK) {
        status = command_fill(&command->environment, values, &own, err);
    }
    if (status == PSD_OK) {
        status = set_all(environment, own.list, err);
    }
    words_fini(&own);
    if (status == PSD_OK) {
        status = command_fill(&command->argv, values, argv, err);
    }
    return status == PSD_OK && plan->flags[which] ? add_flags(values, argv, err) : status;
}

psd_status
plan_process(const struct plan *plan, uint32_t slot, uint32_t restart, const char *master,
             struct words *argv_p, struct words *environment_p, struct psd_error *err)
{
    const struct command_values values = {.role = role_name(LAUNCH_WORKER),
                                          .rank = role_index(slot, plan->servers),
                                          .world = plan->workers,
                                          .master = master};
    struct words argv = {0};
    struct words environment = {0};
    psd_status status;

    if (role_of_slot(slot, plan->servers) == LAUNCH_WORKER) {
        status = worker_process(plan, &values, restart, &argv, &environment, err);
    } else {
        status = service_process(plan, slot, master, &argv, &environment, err);
    }
    if (status != PSD_OK) {
        words_fini(&argv);
        words_fini(&environment);
        return status;
    }
    *argv_p = argv;
    *environment_p = environment;
    return PSD_OK;
}

void
plan_name(const struct plan *plan, uint32_t slot, char name_p[24])
{
    const enum launch_role role = role_of_slot(slot, plan->servers);

    if (role == LAUNCH_MASTER) {
        snprintf(name_p, 24, "master");
    } else {
        snprintf(name_p, 24, "%s%u", role_name(role), role_index(slot, plan->servers));
    }
}
