/*
 * process.c - arguments and environment of one process.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/plan/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/plan/image.h"
#include "launch/plan/personality_words.h"
#include "launch/system/spawn.h"
#include "launch/text/memory.h"
#include "launch/text/variables.h"

enum { LANES_MAX = 64, STANDBY_LANES_MAX = 1024, PLACES_EACH = 2 };

static void
add_number(struct words *argv, const char *option, uint32_t value)
{
    words_add(argv, option);
    words_add_format(argv, "%u", value);
}

static void
add_pair(struct words *argv, const char *option, const char *value)
{
    words_add(argv, option);
    words_add(argv, value);
}

static void
master_arguments(const struct plan *plan, const struct process_facts *facts, struct words *argv)
{
    words_add(argv, "ps_master");
    add_number(argv, "--workers", plan->workers);
    add_number(argv, "--servers", plan_start_servers(plan));
    add_pair(argv, "--bind", facts->address);
    add_number(argv, "--port", facts->term > 1 ? facts->master_port : plan->master_port);
    if (facts->term > 1) {
        add_number(argv, "--term", facts->term);
    }
    add_number(argv, "--ready_fd", SPAWN_EXTRA_FD);
    words_add(argv, "--tell_joins");
    words_add(argv, "--heed_stdin");
    /* Scripts that know nothing of Poseidon join when they train, one alone never does. */
    if (plan->automatic) {
        words_add(argv, "--late_workers");
    }
    words_add_all(argv, &plan->master_settings);
    words_add_all(argv, &plan->resume);
}

/* Cores of the machine, shared by its servers. */
uint32_t
process_lanes(const struct process_facts *facts)
{
    const uint32_t share =
        facts->cores / (facts->place.local_size > 0 ? facts->place.local_size : 1);

    return share < 1 ? 1 : share > LANES_MAX ? LANES_MAX : share;
}

/* Where servers come and go, places are what moves: two for each server that there may be, so that each gets an
 * even share of them. */
static uint32_t
lanes_of(const struct plan *plan, const struct process_facts *facts)
{
    const uint32_t servers = plan_start_servers(plan);
    const uint32_t needed = (PLACES_EACH * plan->servers + servers - 1) / servers;
    const uint32_t lanes = facts->lanes != 0 ? facts->lanes : process_lanes(facts);

    if (plan->lanes != 0) {
        return plan->lanes;
    }
    return plan->start_servers == 0 || lanes >= needed ? lanes
           : needed < LANES_MAX                        ? needed
                                                       : LANES_MAX;
}

/* ... and any of them may be the last one, and have all. */
static uint32_t
standby_lanes_of(const struct plan *plan, const struct process_facts *facts)
{
    const uint32_t places = plan_start_servers(plan) * lanes_of(plan, facts);
    const uint32_t wanted = plan->replicas > 0 ? places + lanes_of(plan, facts) : places;

    return wanted < STANDBY_LANES_MAX ? wanted : STANDBY_LANES_MAX;
}

static void
server_arguments(const struct plan *plan, uint32_t index, const struct process_facts *facts,
                 struct words *argv)
{
    words_add(argv, "ps_server");
    add_number(argv, "--index", index);
    add_pair(argv, "--master_address", facts->master);
    add_pair(argv, "--bind", facts->address);
    add_number(argv, "--servers", facts->place.local_size);
    if (plan->lanes == 0) {
        words_add_format(argv, "--lanes=%u", lanes_of(plan, facts));
    }
    if (plan->start_servers != 0 && plan->standby_lanes == 0) {
        words_add_format(argv, "--standby_lanes=%u", standby_lanes_of(plan, facts));
    }
    words_add_all(argv, &plan->server_settings);
    words_add_all(argv, &plan->resume);
}

/* What a worker is told about its place in the job. */
static void
set_place(const struct plan *plan, const struct command_values *values,
          const struct process_facts *facts, struct words *environment)
{
    const bool masterless = personality_is_foreign(plan->personality) && !plan->joins;
    const char *const texts[][2] = {{"PSD_MASTER_ADDRESS", masterless ? NULL : values->master},
                                    {"PSD_ROLE", values->role},
                                    {"PSD_ADDR", facts->address},
                                    {"PSD_PORT", facts->port},
                                    {"PSD_PEERS", facts->peers},
                                    {"PSD_HOSTS", facts->hosts},
                                    {"PSD_LOG_DIR", facts->logs},
                                    {"PSD_JOB_ID", facts->job}};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i][1] != NULL) {
            variables_set_pair(environment, texts[i][0], texts[i][1]);
        }
    }
    if (masterless) { /* of a job around this one */
        words_add(environment, "PSD_MASTER_ADDRESS");
    }
    variables_set_number(environment, "PSD_RANK", values->rank);
    variables_set_number(environment, "PSD_WORLD", values->world);
    variables_set_number(environment, "PSD_WORLD_SIZE", values->world);
    variables_set_number(environment, "PSD_NUM_WORKERS", values->world);
    variables_set_number(environment, "PSD_NUM_SERVERS", values->servers);
    variables_set_number(environment, "PSD_LOCAL_RANK", facts->place.local_rank);
    variables_set_number(environment, "PSD_LOCAL_SIZE", facts->place.local_size);
    variables_set_number(environment, "PSD_NODE_RANK", facts->place.node);
    variables_set_number(environment, "PSD_NUM_NODES", facts->place.nodes);
    variables_set_number(environment, "PSD_RESTART_COUNT", facts->restart);
    if (plan->max_workers != 0) { /* plain scripts prepare for those who come (docs/automatic.md) */
        variables_set_number(environment, "PSD_MAX_WORKERS", plan->max_workers);
    }
    if (facts->join_step != 0) {
        variables_set_number(environment, "PSD_JOIN_STEP", facts->join_step);
    }
}

/* The machine's GPUs, dealt out to its workers. */
static void
set_gpus(const struct plan *plan, const struct process_facts *facts, struct words *environment)
{
    const uint32_t share = facts->place.local_size > 0 ? facts->gpus / facts->place.local_size : 0;
    const uint32_t each = plan->gpus_per_worker > 0 ? plan->gpus_per_worker : share;
    char list[256] = "";
    size_t used = 0;

    if ((facts->gpus == 0 && each == 0) ||
        variables_get(environment->list, "CUDA_VISIBLE_DEVICES") != NULL) {
        return;
    }
    if (each == 0) { /* more workers than GPUs: they share */
        snprintf(list, sizeof(list), "%u", facts->place.local_rank % facts->gpus);
    }
    for (uint32_t i = 0; i < each && used < sizeof(list); i++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u", i > 0 ? "," : "",
                                 facts->place.local_rank * each + i);
    }
    variables_set_pair(environment, "CUDA_VISIBLE_DEVICES", list);
}

static void
add_flags(const struct command_values *values, struct words *argv)
{
    words_add(argv, "--distributed");
    add_pair(argv, "--master_address", values->master);
    add_number(argv, "--client_id", values->rank);
}

static void
command_environment(const struct plan *plan, uint32_t slot, const struct command_values *values,
                    const struct process_facts *facts, const struct command *command,
                    struct words *environment)
{
    const bool worker = role_of_slot(slot, plan->servers) == LAUNCH_WORKER;
    char *const *set = worker && plan->worker_set != NULL
                           ? plan->worker_set[role_index(slot, plan->servers)].list
                           : NULL;
    struct words own = {0};

    variables_set_all(environment, set);
    if (worker) {
        set_gpus(plan, facts, environment);
    } else if (facts->gpus > 0 || plan->gpus_per_worker > 0) {
        variables_set_pair(environment, "CUDA_VISIBLE_DEVICES", "");
    }
    if (plan_sets_place(plan)) {
        set_place(plan, values, facts, environment);
    }
    personality_add_environment(plan, slot, facts, environment);
    if (plan->keep_env) {
        variables_set_all(environment, plan->own_place.list);
        variables_set_all(environment, set);
    }
    command_fill(&command->environment, values, &own);
    variables_set_all(environment, own.list);
    words_fini(&own);
}

/* What of a worker's environment a container has to be told: all that the job sets, and what was
 * forwarded, save paths to libraries of the machine outside. */
static void
enter_image(const struct plan *plan, struct words *environment, struct words *argv)
{
    const int secret_fd = image_secret_fd(&plan->image);
    struct words names = {0};

    variables_set_all(&names, plan->forwarded.list);
    variables_unset(&names, "LD_LIBRARY_PATH");
    variables_set_all(&names, plan->worker_environment.list);
    variables_set_pair(&names, "OMP_NUM_THREADS", "");
    if (secret_fd >= 0) {
        words_add_format(environment, "PSD_SECRET_FD=%d", secret_fd);
    }
    variables_set_all(&names, environment->list);
    image_begin(&plan->image, &names, argv);
    words_fini(&names);
}

static void
command_process(const struct plan *plan, uint32_t slot, const struct command_values *values,
                const struct process_facts *facts, struct words *argv, struct words *environment)
{
    const uint32_t which = plan_command(plan, role_index(slot, plan->servers));
    const struct command *command = &plan->commands[which];
    const char *reason;

    command_environment(plan, slot, values, facts, command, environment);
    enter_image(plan, environment, argv);
    command_fill(&command->argv, values, argv);
    if (plan_adds_flags(plan, which, facts->knows_flags, &reason)) {
        add_flags(values, argv);
    }
    personality_add_arguments(plan, slot, facts, argv);
}

/* The numbers of a task that was given by a file are those of its cluster, not of this machine. The
 * chief is the first of the workers. *master_p: owned by the caller, for values->master. */
static void
take_given(const struct plan *plan, uint32_t slot, struct command_values *values, char **master_p)
{
    const struct psi_tf_config *given = &plan->given[slot];
    const uint32_t chiefs = given->jobs[PSI_TF_CHIEF].count;
    const char *root = psi_tf_config_address(given, PSI_TF_PS, 0);

    values->rank = given->index + (given->type == PSI_TF_WORKER ? chiefs : 0);
    values->world = chiefs + given->jobs[PSI_TF_WORKER].count;
    values->servers = given->jobs[PSI_TF_PS].count;
    if (plan->joins) {
        *master_p = memory_format("tcp://%s", root != NULL ? root : "");
        values->master = *master_p;
    }
}

void
process_words(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
              struct words *argv_p, struct words *environment_p)
{
    struct command_values values = {.role = plan_task(plan, slot).name,
                                    .rank = role_index(slot, plan->servers),
                                    .world = plan->workers,
                                    .servers = plan_start_servers(plan),
                                    .master = facts->master,
                                    .port = personality_is_foreign(plan->personality) ? facts->port
                                                                                      : NULL};
    char *master = NULL;

    *argv_p = (struct words){0};
    *environment_p = (struct words){0};
    if (plan->given != NULL) {
        take_given(plan, slot, &values, &master);
    }
    if (plan_runs_command(plan, slot)) {
        command_process(plan, slot, &values, facts, argv_p, environment_p);
    } else if (role_of_slot(slot, plan->servers) == LAUNCH_MASTER) {
        master_arguments(plan, facts, argv_p);
    } else {
        server_arguments(plan, values.rank, facts, argv_p);
    }
    free(master);
}
