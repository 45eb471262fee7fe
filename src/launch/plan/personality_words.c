/*
 * personality_words.c - what scripts written for other systems are told.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/plan/personality_words.h"

#include <stdlib.h>

#include "cluster/tf_config.h"
#include "launch/text/memory.h"
#include "launch/text/variables.h"

struct number {
    const char *name;
    uint32_t value;
};

static void
set_numbers(struct words *environment, const struct number *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        variables_set_number(environment, numbers[i].name, numbers[i].value);
    }
}

/* NULL: not known, and so not set. */
struct text {
    const char *name;
    const char *value;
};

static void
set_texts(struct words *environment, const struct text *texts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (texts[i].value != NULL) {
            variables_set_pair(environment, texts[i].name, texts[i].value);
        }
    }
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void
tell_tf1(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
         struct words *environment)
{
    const struct plan_task task = plan_task(plan, slot);
    char *text = memory_need(psi_tf_config_text(facts->cluster, task.type, task.index));

    variables_set_pair(environment, "TF_CONFIG", text);
    free(text);
}

static void
tell_tf_config(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
               struct words *environment)
{
    tell_tf1(plan, slot, facts, environment);
    /* Without it a task that is started before its peers fails instead of waiting for them. */
    if (!plan->sets_grpc_fail_fast) {
        variables_set_pair(environment, "GRPC_FAIL_FAST", "use_caller");
    }
}

static void
tell_torch(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
           struct words *environment)
{
    const uint32_t rank = role_index(slot, plan->servers);
    char *error_file =
        facts->logs != NULL ? memory_format("%s/worker%u.error.json", facts->logs, rank) : NULL;
    const struct text texts[] = {{"MASTER_ADDR", facts->store_address},
                                 {"MASTER_PORT", facts->store_port},
                                 {"ROLE_NAME", "default"},
                                 {"TORCHELASTIC_RUN_ID", facts->job},
                                 {"TORCHELASTIC_ERROR_FILE", error_file},
                                 /* rank 0 has the store, no agent does */
                                 {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
    const struct number numbers[] = {{"RANK", rank},
                                     {"WORLD_SIZE", plan->workers},
                                     {"LOCAL_RANK", facts->place.local_rank},
                                     {"LOCAL_WORLD_SIZE", facts->place.local_size},
                                     {"GROUP_RANK", facts->place.worker_node},
                                     {"GROUP_WORLD_SIZE", facts->place.worker_nodes},
                                     {"NODE_RANK", facts->place.worker_node},
                                     {"ROLE_RANK", rank},
                                     {"ROLE_WORLD_SIZE", plan->workers},
                                     {"TORCHELASTIC_RESTART_COUNT", facts->restart},
                                     {"TORCHELASTIC_MAX_RESTARTS", plan->max_restarts}};

    set_texts(environment, texts, COUNT(texts));
    set_numbers(environment, numbers, COUNT(numbers));
    free(error_file);
}

/* The scheduler, the servers and the workers, each of its own kind. */
static void
tell_dmlc(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
          struct words *environment)
{
    static const char *const roles[] = {"scheduler", "server", "worker"};
    const enum launch_role role = role_of_slot(slot, plan->servers);
    const uint32_t index = role_index(slot, plan->servers);
    const struct text texts[] = {
        {"DMLC_ROLE", roles[role]},
        {"DMLC_PS_ROOT_URI", facts->root_address},
        {"DMLC_PS_ROOT_PORT", facts->root_port},
        {"DMLC_NODE_HOST", facts->address},
        {"DMLC_INTERFACE", facts->interface},
        {"DMLC_JOB_CLUSTER", facts->remote ? "ssh" : "local"},
        {"NVIDIA_VISIBLE_DEVICES", variables_get(environment->list, "CUDA_VISIBLE_DEVICES")},
    };
    const struct number common[] = {{"DMLC_NUM_WORKER", plan->workers},
                                    {"DMLC_NUM_SERVER", plan->servers},
                                    {"DMLC_TASK_ID", index},
                                    {"DMLC_NUM_ATTEMPT", facts->restart},
                                    {"DMLC_ENABLE_RDMA", 0}};
    const struct number place[] = {
        {role == LAUNCH_WORKER ? "DMLC_WORKER_ID" : "DMLC_SERVER_ID", index},
        {"DMLC_RANK", index},
        {"BYTEPS_LOCAL_RANK", facts->place.local_rank},
        {"BYTEPS_LOCAL_SIZE", facts->place.local_size}};

    set_texts(environment, texts, COUNT(texts));
    set_numbers(environment, common, COUNT(common));
    if (role != LAUNCH_MASTER) { /* a server's local rank means nothing */
        set_numbers(environment, place, role == LAUNCH_WORKER ? COUNT(place) : 2);
    }
    /* ps-lite would take an inherited one for where to listen: for all processes the same. */
    words_add(environment, "PORT");
}

static void
tell_mpi(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
         struct words *environment)
{
    const uint32_t rank = role_index(slot, plan->servers);
    const struct number numbers[] = {{"OMPI_COMM_WORLD_RANK", rank},
                                     {"OMPI_COMM_WORLD_SIZE", plan->workers},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", facts->place.local_rank},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", facts->place.local_size},
                                     {"PMI_RANK", rank},
                                     {"PMI_SIZE", plan->workers},
                                     {"HOROVOD_RANK", rank},
                                     {"HOROVOD_SIZE", plan->workers},
                                     {"HOROVOD_LOCAL_RANK", facts->place.local_rank},
                                     {"HOROVOD_LOCAL_SIZE", facts->place.local_size},
                                     {"HOROVOD_CROSS_RANK", facts->place.cross_rank},
                                     {"HOROVOD_CROSS_SIZE", facts->place.cross_size}};

    variables_set_pair(environment, "HOROVOD_HOSTNAME", facts->address);
    set_numbers(environment, numbers, COUNT(numbers));
}

static const struct {
    enum personality kind;
    bool workers; /* nobody else is told */
    void (*tell)(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
                 struct words *environment);
} tellings[] = {{PERSONALITY_TF1, false, tell_tf1},
                {PERSONALITY_TF_CONFIG, false, tell_tf_config},
                {PERSONALITY_TORCH, true, tell_torch},
                {PERSONALITY_DMLC, false, tell_dmlc},
                {PERSONALITY_MPI, true, tell_mpi}};

void
personality_add_environment(const struct plan *plan, uint32_t slot,
                            const struct process_facts *facts, struct words *environment)
{
    const bool worker = role_of_slot(slot, plan->servers) == LAUNCH_WORKER;

    for (size_t i = 0; i < COUNT(tellings); i++) {
        if ((plan->personality & tellings[i].kind) != 0 && (worker || !tellings[i].workers)) {
            tellings[i].tell(plan, slot, facts, environment);
        }
    }
}

/* One of the two lists of hosts. */
static void
add_hosts(struct words *argv, const char *option, const struct psi_tf_job *job)
{
    char *hosts = memory_need(psi_tf_job_text(job));

    words_add(argv, option);
    words_add(argv, hosts);
    free(hosts);
}

void
personality_add_arguments(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
                          struct words *argv)
{
    const struct plan_task task = plan_task(plan, slot);

    if (!personality_has(plan->personality, PERSONALITY_HAS_FLAGS)) {
        return;
    }
    words_add(argv, "--job_name");
    words_add(argv, task.name);
    words_add(argv, "--task_index");
    words_add_format(argv, "%u", task.index);
    add_hosts(argv, "--ps_hosts", &facts->cluster->jobs[PSI_TF_PS]);
    add_hosts(argv, "--worker_hosts", &facts->cluster->jobs[PSI_TF_WORKER]);
}
