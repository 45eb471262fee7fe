/*
 * process.c - arguments and environment of one process.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/plan/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "launch/plan/image.h"
#include "launch/plan/personality_words.h"
#include "launch/system/spawn.h"
#include "launch/text/variables.h"

enum { LANES_MAX = 64 };

static psd_status
add_number(struct words *argv, const char *option, uint32_t value, struct psd_error *err)
{
    const psd_status status = words_add(argv, option, err);

    return status == PSD_OK ? words_add_format(argv, err, "%u", value) : status;
}

static psd_status
add_pair(struct words *argv, const char *option, const char *value, struct psd_error *err)
{
    const psd_status status = words_add(argv, option, err);

    return status == PSD_OK ? words_add(argv, value, err) : status;
}

static psd_status
master_arguments(const struct plan *plan, const struct process_facts *facts, struct words *argv,
                 struct psd_error *err)
{
    psd_status status = words_add(argv, "ps_master", err);

    if (status == PSD_OK) {
        status = add_number(argv, "--workers", plan->workers, err);
    }
    if (status == PSD_OK) {
        status = add_number(argv, "--servers", plan->servers, err);
    }
    if (status == PSD_OK) {
        status = add_pair(argv, "--bind", facts->address, err);
    }
    if (status == PSD_OK) {
        status = add_number(argv, "--port", plan->master_port, err);
    }
    if (status == PSD_OK) {
        status = add_number(argv, "--ready_fd", SPAWN_EXTRA_FD, err);
    }
    if (status == PSD_OK) {
        status = words_add(argv, "--tell_joins", err);
    }
    /* Scripts that know nothing of Poseidon join when they train, one alone never does. */
    return status == PSD_OK && plan->automatic ? words_add(argv, "--late_workers", err) : status;
}

/* Cores of the machine, shared by its servers. */
static uint32_t
lanes(const struct process_facts *facts)
{
    const uint32_t share = facts->cores / (facts->local_size > 0 ? facts->local_size : 1);

    return share < 1 ? 1 : share > LANES_MAX ? LANES_MAX : share;
}

static psd_status
server_arguments(const struct plan *plan, uint32_t index, const struct process_facts *facts,
                 struct words *argv, struct psd_error *err)
{
    psd_status status = words_add(argv, "ps_server", err);

    if (status == PSD_OK) {
        status = add_number(argv, "--index", index, err);
    }
    if (status == PSD_OK) {
        status = add_pair(argv, "--master_address", facts->master, err);
    }
    if (status == PSD_OK) {
        status = add_pair(argv, "--bind", facts->address, err);
    }
    if (status == PSD_OK) {
        status = add_number(argv, "--servers", facts->local_size, err);
    }
    if (status == PSD_OK && plan->lanes == 0) {
        status = words_add_format(argv, err, "--lanes=%u", lanes(facts));
    }
    return status;
}

/* What a worker is told about its place in the job. */
static psd_status
set_place(const struct plan *plan, const struct command_values *values,
          const struct process_facts *facts, struct words *environment, struct psd_error *err)
{
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"PSD_RANK", values->rank},
                   {"PSD_WORLD", values->world},
                   {"PSD_WORLD_SIZE", values->world},
                   {"PSD_NUM_WORKERS", values->world},
                   {"PSD_NUM_SERVERS", values->servers},
                   {"PSD_LOCAL_RANK", facts->local_rank},
                   {"PSD_LOCAL_SIZE", facts->local_size},
                   {"PSD_NODE_RANK", facts->machine},
                   {"PSD_NUM_NODES", facts->machines},
                   {"PSD_RESTART_COUNT", facts->restart}};
    const bool masterless = personality_is_foreign(plan->personality) && !plan->joins;
    const char *const texts[][2] = {{"PSD_MASTER_ADDRESS", masterless ? NULL : values->master},
                                    {"PSD_ROLE", values->role},
                                    {"PSD_ADDR", facts->address},
                                    {"PSD_PORT", facts->port},
                                    {"PSD_PEERS", facts->peers},
                                    {"PSD_HOSTS", facts->hosts},
                                    {"PSD_LOG_DIR", facts->logs},
                                    {"PSD_JOB_ID", facts->job}};
    psd_status status = PSD_OK;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]) && status == PSD_OK; i++) {
        if (texts[i][1] != NULL) {
            status = variables_set_pair(environment, texts[i][0], texts[i][1], err);
        }
    }
    if (status == PSD_OK && masterless) { /* of a job around this one */
        status = words_add(environment, "PSD_MASTER_ADDRESS", err);
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && status == PSD_OK; i++) {
        char text[16];

        snprintf(text, sizeof(text), "%u", numbers[i].value);
        status = variables_set_pair(environment, numbers[i].name, text, err);
    }
    return status;
}

/* The machine's GPUs, dealt out to its workers. */
static psd_status
set_gpus(const struct plan *plan, const struct process_facts *facts, struct words *environment,
         struct psd_error *err)
{
    const uint32_t share = facts->local_size > 0 ? facts->gpus / facts->local_size : 0;
    const uint32_t each = plan->gpus_per_worker > 0 ? plan->gpus_per_worker : share;
    char list[256] = "";
    size_t used = 0;

    if ((facts->gpus == 0 && each == 0) ||
        variables_get(environment->list, "CUDA_VISIBLE_DEVICES") != NULL) {
        return PSD_OK;
    }
    if (each == 0) { /* more workers than GPUs: they share */
        snprintf(list, sizeof(list), "%u", facts->local_rank % facts->gpus);
    }
    for (uint32_t i = 0; i < each && used < sizeof(list); i++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u", i > 0 ? "," : "",
                                 facts->local_rank * each + i);
    }
    return variables_set_pair(environment, "CUDA_VISIBLE_DEVICES", list, err);
}

static psd_status
add_flags(const struct command_values *values, struct words *argv, struct psd_error *err)
{
    psd_status status = words_add(argv, "--distributed", err);

    if (status == PSD_OK) {
        status = add_pair(argv, "--master_address", values->master, err);
    }
    return status == PSD_OK ? add_number(argv, "--client_id", values->rank, err) : status;
}

static psd_status
command_environment(const struct plan *plan, uint32_t slot, const struct command_values *values,
                    const struct process_facts *facts, const struct command *command,
                    struct words *environment, struct psd_error *err)
{
    const bool worker = role_of_slot(slot, plan->servers) == LAUNCH_WORKER;
    const struct words *set = worker && plan->worker_set != NULL
                                  ? &plan->worker_set[role_index(slot, plan->servers)]
                                  : NULL;
    struct words own = {0};
    psd_status status = PSD_OK;

    if (set != NULL) {
        status = variables_set_all(environment, set->list, err);
    }
    if (status == PSD_OK && worker) {
        status = set_gpus(plan, facts, environment, err);
    } else if (status == PSD_OK && (facts->gpus > 0 || plan->gpus_per_worker > 0)) {
        status = variables_set_pair(environment, "CUDA_VISIBLE_DEVICES", "", err);
    }
    if (status == PSD_OK && plan_sets_place(plan)) {
        status = set_place(plan, values, facts, environment, err);
    }
    if (status == PSD_OK) {
        status = personality_add_environment(plan, slot, facts, environment, err);
    }
    if (status == PSD_OK && plan->keep_env) {
        status = variables_set_all(environment, plan->own_place.list, err);
        status = status == PSD_OK && set != NULL ? variables_set_all(environment, set->list, err)
                                                 : status;
    }
    if (status == PSD_OK) {
        status = command_fill(&command->environment, values, &own, err);
    }
    if (status == PSD_OK) {
        status = variables_set_all(environment, own.list, err);
    }
    words_fini(&own);
    return status;
}

/* What of a worker's environment a container has to be told: all that the job sets, and what was
 * forwarded, save paths to libraries of the machine outside. */
static psd_status
enter_image(const struct plan *plan, struct words *environment, struct words *argv,
            struct psd_error *err)
{
    const int secret_fd = image_secret_fd(&plan->image);
    struct words names = {0};
    psd_status status = variables_set_all(&names, plan->forwarded.list, err);

    variables_unset(&names, "LD_LIBRARY_PATH");
    if (status == PSD_OK) {
        status = variables_set_all(&names, plan->worker_environment.list, err);
    }
    if (status == PSD_OK) {
        status = variables_set_pair(&names, "OMP_NUM_THREADS", "", err);
    }
    if (status == PSD_OK && secret_fd >= 0) {
        status = words_add_format(environment, err, "PSD_SECRET_FD=%d", secret_fd);
    }
    if (status == PSD_OK) {
        status = variables_set_all(&names, environment->list, err);
    }
    if (status == PSD_OK) {
        status = image_begin(&plan->image, &names, argv, err);
    }
    words_fini(&names);
    return status;
}

static psd_status
command_process(const struct plan *plan, uint32_t slot, const struct command_values *values,
                const struct process_facts *facts, struct words *argv, struct words *environment,
                struct psd_error *err)
{
    const uint32_t which = plan_command(plan, role_index(slot, plan->servers));
    const struct command *command = &plan->commands[which];
    const char *reason;
    psd_status status = command_environment(plan, slot, values, facts, command, environment, err);

    if (status == PSD_OK) {
        status = enter_image(plan, environment, argv, err);
    }
    if (status == PSD_OK) {
        status = command_fill(&command->argv, values, argv, err);
    }
    if (status == PSD_OK && plan_adds_flags(plan, which, facts->knows_flags, &reason)) {
        status = add_flags(values, argv, err);
    }
    return status == PSD_OK ? personality_add_arguments(plan, slot, facts, argv, err) : status;
}

/* The numbers of a task that was given by a file are those of its cluster, not of this machine. The
 * chief is the first of the workers. */
static psd_status
take_given(const struct plan *plan, uint32_t slot, struct command_values *values, char **master_p,
           struct psd_error *err)
{
    const struct psi_tf_config *given = &plan->given[slot];
    const uint32_t chiefs = given->jobs[PSI_TF_CHIEF].count;
    const char *root = psi_tf_config_address(given, PSI_TF_PS, 0);

    values->rank = given->index + (given->type == PSI_TF_WORKER ? chiefs : 0);
    values->world = chiefs + given->jobs[PSI_TF_WORKER].count;
    values->servers = given->jobs[PSI_TF_PS].count;
    if (plan->joins) {
        if (asprintf(master_p, "tcp://%s", root != NULL ? root : "") < 0) {
            *master_p = NULL;
            return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for an address");
        }
        values->master = *master_p;
    }
    return PSD_OK;
}

psd_status
process_words(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
              struct words *argv_p, struct words *environment_p, struct psd_error *err)
{
    struct command_values values = {.role = plan_task(plan, slot).name,
                                    .rank = role_index(slot, plan->servers),
                                    .world = plan->workers,
                                    .servers = plan->servers,
                                    .master = facts->master,
                                    .port = personality_is_foreign(plan->personality) ? facts->port
                                                                                      : NULL};
    struct words argv = {0};
    struct words environment = {0};
    char *master = NULL;
    psd_status status = PSD_OK;

    if (plan->given != NULL) {
        status = take_given(plan, slot, &values, &master, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    if (plan_runs_command(plan, slot)) {
        status = command_process(plan, slot, &values, facts, &argv, &environment, err);
    } else if (role_of_slot(slot, plan->servers) == LAUNCH_MASTER) {
        status = master_arguments(plan, facts, &argv, err);
        status = status == PSD_OK ? words_add_all(&argv, &plan->master_settings, err) : status;
    } else {
        status = server_arguments(plan, values.rank, facts, &argv, err);
        status = status == PSD_OK ? words_add_all(&argv, &plan->server_settings, err) : status;
    }
    free(master);
    if (status != PSD_OK) {
        words_fini(&argv);
        words_fini(&environment);
        return status;
    }
    *argv_p = argv;
    *environment_p = environment;
    return PSD_OK;
}
