/*
 * plan.c - what a job runs, checked and put together before anything starts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "launch/plan/image.h"
#include "launch/text/memory.h"
#include "launch/text/variables.h"

const char *const plan_automatic_words[] = {"on", "warn", "tf1", "off", NULL};

static const char *
automatic_word(enum plan_automatic automatic)
{
    return plan_automatic_words[automatic - 1];
}

bool
plan_pattern_fits(const char *pattern, const char *variable)
{
    const size_t bytes = strcspn(pattern, "*=");

    return pattern[bytes] != '=' && strncmp(variable, pattern, bytes) == 0 &&
           (pattern[bytes] == '*' || variable[bytes] == '=');
}

/* What workers on other machines get of our environment without being asked: not PATH, which
 * differs by machine. */
static bool
is_forwarded(const char *variable, const struct words *forward, bool joined)
{
    static const char *const always[] = {"LD_LIBRARY_PATH", "PYTHONPATH", "OMP_*",
                                         "CUDA_*",          "NCCL_*",     "GRPC_*"};
    const size_t count = joined ? 0 : sizeof(always) / sizeof(always[0]);

    for (size_t i = 0; i < count + forward->count; i++) {
        if (plan_pattern_fits(i < count ? always[i] : forward->list[i - count], variable)) {
            return true;
        }
    }
    return false;
}

static void
forward_variables(const struct plan_sources *sources, struct plan *plan)
{
    const struct words *forward = &sources->forward;

    for (char *const *at = sources->environment; *at != NULL; at++) {
        if (is_forwarded(*at, forward, sources->joined)) {
            variables_set(&plan->forwarded, *at);
        }
    }
    for (size_t i = 0; i < forward->count; i++) {
        if (words_name_bytes(forward->list[i]) > 0) {
            variables_set(&plan->worker_environment, forward->list[i]);
        }
    }
}

bool
plan_sets_place(const struct plan *plan)
{
    return personality_is_foreign(plan->personality) ||
           (plan->pass != PSI_PASS_NONE && plan->pass != PSI_PASS_FLAGS);
}

/* What set_place() of process.c sets. */
static const char *const place_names[] = {
    "PSD_RANK",        "PSD_WORLD",          "PSD_WORLD_SIZE",    "PSD_NUM_WORKERS",
    "PSD_NUM_SERVERS", "PSD_LOCAL_RANK",     "PSD_LOCAL_SIZE",    "PSD_NODE_RANK",
    "PSD_NUM_NODES",   "PSD_PORT",           "PSD_RESTART_COUNT", "PSD_PEERS",
    "PSD_HOSTS",       "PSD_MASTER_ADDRESS", "PSD_ROLE",          "PSD_ADDR",
    "PSD_JOB_ID",      "PSD_LOG_DIR",
};
enum { PLACE_NAMES = sizeof(place_names) / sizeof(place_names[0]) };

/* The variables that processes get from us. */
static void
each_place_name(const struct plan *plan, void (*tell)(void *owner, const char *name), void *owner)
{
    for (size_t i = 0; i < PLACE_NAMES && plan_sets_place(plan); i++) {
        tell(owner, place_names[i]);
    }
    personality_each(plan->personality, tell, owner);
}

struct note {
    char *const *list;
    struct words *own;
};

static void
note_one(void *owner, const char *name)
{
    struct note *note = owner;
    const char *value = variables_get(note->list, name);

    if (value != NULL) {
        variables_set_pair(note->own, name, value);
    }
}

/* Adds those of the list that workers get from us. */
static void
note_own_place(char *const *list, struct plan *plan)
{
    struct note note = {.list = list, .own = &plan->own_place};

    each_place_name(plan, note_one, &note);
}

static void
build_environments(const struct plan_sources *sources, struct plan *plan)
{
    struct words *workers = &plan->worker_environment;

    forward_variables(sources, plan);
    variables_set_all(workers, sources->set.list);
    note_own_place(sources->environment, plan);
    note_own_place(workers->list, plan);
    plan->sets_grpc_fail_fast = variables_get(workers->list, "GRPC_FAIL_FAST") != NULL ||
                                variables_get(sources->environment, "GRPC_FAIL_FAST") != NULL;
    /* A worker's lines are wanted when it prints them, not when a buffer is full. What the shell
     * has is handed on: another machine has another shell. */
    if (variables_get(workers->list, "PYTHONUNBUFFERED") == NULL) {
        const char *own = variables_get(sources->environment, "PYTHONUNBUFFERED");

        variables_set_pair(workers, "PYTHONUNBUFFERED", own != NULL ? own : "1");
    }
    if (sources->automatic != PLAN_AUTOMATIC_NOT_SAID) {
        variables_set_pair(workers, "PSD_AUTO",
                           plan->automatic   ? automatic_word(sources->automatic)
                           : plan->old_names ? "names"
                                             : "off");
    }
}

static psd_status
parse_commands(const struct words *texts, struct plan *plan, struct psd_error *err)
{
    psd_status status = PSD_OK;

    plan->commands = memory_need(calloc(texts->count, sizeof(*plan->commands)));
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
    plan->commands = memory_need(calloc(1, sizeof(*plan->commands)));
    plan->command_count = 1;
    for (; *argv != NULL; argv++) {
        command_take(&plan->commands[0], *argv);
    }
    return plan->commands[0].argv.count > 0
               ? PSD_OK
               : psi_fail(err, PSD_ERR_INVALID, "nothing to run: give the workers' command");
}

static psd_status
build_commands(const struct plan_sources *sources, struct plan *plan, struct psd_error *err)
{
    struct words texts = {0};
    psd_status status;

    if (sources->argv != NULL) {
        return take_argv(sources->argv, plan, err);
    }
    if (sources->worker_commands.count > 0) {
        if (sources->worker_commands.count != plan->workers) {
            return psi_fail(err, PSD_ERR_INVALID,
                            "worker_commands has %zu commands for %u workers: give one for each",
                            sources->worker_commands.count, plan->workers);
        }
        return parse_commands(&sources->worker_commands, plan, err);
    }
    status =
        command_list(sources->command, plan->workers, variables_get(sources->environment, "PATH"),
                     sources->remote || sources->image != NULL, &texts, err);
    if (status == PSD_OK) {
        status = parse_commands(&texts, plan, err);
    }
    words_fini(&texts);
    return status;
}

static psd_status
check_servers(const struct plan *plan, struct psd_error *err)
{
    /* TensorFlow's workers may do without, those of torch know none. */
    const bool some = personality_has_servers(plan->personality);
    const uint32_t least = some && !personality_is_tensorflow(plan->personality) ? 1 : 0;
    const uint32_t most = some ? PSI_CLUSTER_SERVERS_MAX : 0;

    if (plan->servers < least || plan->servers > most) {
        return psi_fail(err, PSD_ERR_INVALID, "%u servers: %u to %u are possible", plan->servers,
                        least, most);
    }
    return PSD_OK;
}

/* Special tasks are workers, so there have to be some; servers run the workers' command. */
static psd_status
check_tasks(const struct plan *plan, struct psd_error *err)
{
    const uint32_t special = (uint32_t)plan->chief + (uint32_t)plan->evaluator;

    if (special > 0 && !personality_has(plan->personality, PERSONALITY_HAS_CHIEF)) {
        return psi_fail(err, PSD_ERR_INVALID, "--%s works only with --personality=tf_config",
                        plan->chief ? "chief" : "evaluator");
    }
    if (special > 0 && personality_has(plan->personality, PERSONALITY_HAS_FLAGS)) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "--%s does not go with --personality=tf1: its flags know only ps and worker",
            plan->chief ? "chief" : "evaluator");
    }
    if (plan->workers < special || (plan->evaluator && plan->workers == 1)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%u worker%s: chief and evaluator are among the workers; there must be "
                        "more of them",
                        plan->workers, plan->workers == 1 ? "" : "s");
    }
    if (plan->command_count > 1 && plan->servers > 0 && personality_is_foreign(plan->personality)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%u commands, one for each worker, leave none for the servers, which run "
                        "it too: give one command for all",
                        plan->command_count);
    }
    return PSD_OK;
}

/* Whether plain scripts are distributed, and whether what was asked for can be. */
static psd_status
decide_automatic(const struct plan_sources *sources, struct plan *plan, struct psd_error *err)
{
    const bool foreign = personality_is_foreign(plan->personality);
    const bool wanted =
        sources->automatic != PLAN_AUTOMATIC_NOT_SAID && sources->automatic != PLAN_AUTOMATIC_OFF;
    const bool asked = wanted && plan->automatic_asked;

    /* The hook's directory is not in a container, nor is the descriptor for its notes; and it needs
     * servers of ours. */
    plan->automatic = wanted && sources->image == NULL && !foreign;
    plan->old_names = asked && sources->automatic == PLAN_AUTOMATIC_TF1 && foreign &&
                      personality_has(plan->personality, PERSONALITY_HAS_FLAGS);
    if (asked && sources->image != NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--auto %s does not work in containers (\"image\"): let the script import "
                        "poseidon (docs/python.md)",
                        automatic_word(sources->automatic));
    }
    if (asked && foreign && !plan->old_names) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "--auto %s needs ps_servers, and that --personality has none: leave out one of the two",
            automatic_word(sources->automatic));
    }
    return PSD_OK;
}

psd_status
plan_build(struct plan *plan, const struct plan_sources *sources, struct psd_error *err)
{
    psd_status status;

    plan->personality = plan->personality != 0 ? plan->personality : PERSONALITY_POSEIDON;
    status = check_servers(plan, err);
    status = status == PSD_OK ? decide_automatic(sources, plan, err) : status;
    if (status == PSD_OK && (plan->workers < 1 || plan->workers > PSI_CLUSTER_WORKERS_MAX)) {
        status = psi_fail(err, PSD_ERR_INVALID, "%u workers: 1 to %d are possible", plan->workers,
                          PSI_CLUSTER_WORKERS_MAX);
    }
    if (status != PSD_OK) {
        return status;
    }
    build_environments(sources, plan);
    status = build_commands(sources, plan, err);
    status = status == PSD_OK ? check_tasks(plan, err) : status;
    if (status == PSD_OK && sources->image != NULL) {
        status = words_split(sources->image, &plan->image, err);
        status = status == PSD_OK ? image_check(&plan->image, err) : status;
    }
    return status;
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
    for (uint32_t slot = 0; plan->given != NULL && slot <= plan->servers + plan->workers; slot++) {
        psi_tf_config_free(&plan->given[slot]);
    }
    free(plan->given);
    free(plan->worker_set);
    free(plan->commands);
    free(plan->virtualenv);
    free(plan->workdir);
    words_fini(&plan->image);
    words_fini(&plan->own_place);
    words_fini(&plan->master_settings);
    words_fini(&plan->server_settings);
    words_fini(&plan->resume);
    words_fini(&plan->worker_environment);
    words_fini(&plan->forwarded);
    *plan = (struct plan){0};
}

static bool
is_set_for_one(const struct plan *plan, const char *name)
{
    for (uint32_t rank = 0; plan->worker_set != NULL && rank < plan->workers; rank++) {
        if (variables_get(plan->worker_set[rank].list, name) != NULL) {
            return true;
        }
    }
    return false;
}

/* A list of names that is being written. */
struct names {
    const struct plan *plan;
    char *text;
    size_t size;
    size_t used;
};

static void
list_overwritten(void *owner, const char *name)
{
    struct names *names = owner;

    if (names->plan->given != NULL && strcmp(name, "TF_CONFIG") == 0) {
        return; /* who names the files knows */
    }
    if (names->used < names->size && (variables_get(names->plan->own_place.list, name) != NULL ||
                                      is_set_for_one(names->plan, name))) {
        names->used += (size_t)snprintf(names->text + names->used, names->size - names->used,
                                        "%s%s", names->used > 0 ? ", " : "", name);
    }
}

void
plan_overwritten(const struct plan *plan, char *text_p, size_t size)
{
    struct names names = {.plan = plan, .text = text_p, .size = size};

    text_p[0] = '\0';
    if (!plan->keep_env) {
        each_place_name(plan, list_overwritten, &names);
    }
}

uint32_t
plan_command(const struct plan *plan, uint32_t rank)
{
    return plan->command_count == 1 ? 0 : rank;
}

bool
plan_adds_flags(const struct plan *plan, uint32_t command, bool knows_flags, const char **reason_p)
{
    static const char *const reasons[] = {"", "pass=flags", "pass=env", "pass=both", "pass=none"};

    if (personality_is_foreign(plan->personality)) {
        *reason_p = "another personality";
        return false;
    }
    if (command_has_placeholder(&plan->commands[command])) {
        *reason_p = "the command has placeholders";
        return false;
    }
    if (plan->pass == PSI_PASS_AUTO) {
        *reason_p = knows_flags ? "the command knows master_address"
                                : "the command does not know master_address";
        return knows_flags;
    }
    *reason_p = reasons[plan->pass];
    return plan->pass == PSI_PASS_FLAGS || plan->pass == PSI_PASS_BOTH;
}

bool
plan_runs_command(const struct plan *plan, uint32_t slot)
{
    return personality_is_foreign(plan->personality) ||
           role_of_slot(slot, plan->servers) == LAUNCH_WORKER;
}

/* The first worker may be the chief, the last one the evaluator; the others move up. */
static void
name_tensorflow_task(const struct plan *plan, enum launch_role role, struct plan_task *task)
{
    if (role == LAUNCH_SERVER) {
        task->type = PSI_TF_PS;
    } else if (plan->chief && task->index == 0) {
        task->type = PSI_TF_CHIEF;
    } else if (plan->evaluator && task->index == plan->workers - 1) {
        task->type = PSI_TF_EVALUATOR;
        task->index = 0;
    } else {
        task->type = PSI_TF_WORKER;
        task->index -= plan->chief;
    }
    task->name = psi_tf_type_name(task->type);
}

struct plan_task
plan_task(const struct plan *plan, uint32_t slot)
{
    const enum launch_role role = role_of_slot(slot, plan->servers);
    struct plan_task task = {.name = role_name(role), .index = role_index(slot, plan->servers)};

    if (plan->given != NULL) {
        task.type = plan->given[slot].type;
        task.index = plan->given[slot].index;
        task.name = psi_tf_type_name(task.type);
    } else if (personality_is_tensorflow(plan->personality)) {
        name_tensorflow_task(plan, role, &task);
    } else if (role == LAUNCH_MASTER &&
               personality_has(plan->personality, PERSONALITY_HAS_SCHEDULER)) {
        task.name = "scheduler";
    }
    return task;
}

uint32_t
plan_leaders(const struct plan *plan)
{
    const struct plan_task first = plan_task(plan, 1 + plan->servers);
    const struct plan_task last = plan_task(plan, plan->servers + plan->workers);

    if (!personality_is_tensorflow(plan->personality) || plan->workers == 1) {
        return plan->workers;
    }
    if (first.type == PSI_TF_CHIEF) {
        return 1;
    }
    return last.type == PSI_TF_EVALUATOR ? plan->workers - 1 : plan->workers;
}

void
plan_name(const struct plan *plan, uint32_t slot, char name_p[24])
{
    const struct plan_task task = plan_task(plan, slot);

    if (slot == 0 || task.type == PSI_TF_EVALUATOR ||
        (task.type == PSI_TF_CHIEF && personality_is_tensorflow(plan->personality))) {
        snprintf(name_p, 24, "%s", task.name);
    } else {
        snprintf(name_p, 24, "%s%u", task.name, task.index);
    }
}
