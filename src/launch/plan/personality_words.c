/*
 * personality_words.c - what scripts written for other systems are told.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/plan/personality_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "cluster/tf_config.h"
#include "launch/text/variables.h"

struct number {
    const char *name;
    uint32_t value;
};

static psd_status
set_numbers(struct words *environment, const struct number *numbers, size_t count,
            struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (size_t i = 0; i < count && status == PSD_OK; i++) {
        char text[16];

        snprintf(text, sizeof(text), "%u", numbers[i].value);
        status = variables_set_pair(environment, numbers[i].name, text, err);
    }
    return status;
}

/* NULL: not known, and so not set. */
struct text {
    const char *name;
    const char *value;
};

static psd_status
set_texts(struct words *environment, const struct text *texts, size_t count, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (size_t i = 0; i < count && status == PSD_OK; i++) {
        if (texts[i].value != NULL) {
            status = variables_set_pair(environment, texts[i].name, texts[i].value, err);
        }
    }
    return status;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static psd_status
tell_tf_config(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
               struct words *environment, struct psd_error *err)
{
    const struct plan_task task = plan_task(plan, slot);
    char *text = psi_tf_config_text(facts->cluster, task.type, task.index);
    psd_status status;

    if (text == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for TF_CONFIG");
    }
    status = variables_set_pair(environment, "TF_CONFIG", text, err);
    free(text);
    /* Without it a task that is started before its peers fails instead of waiting for them. */
    if (status == PSD_OK && (plan->personality & PERSONALITY_TF_CONFIG) != 0 &&
        !plan->sets_grpc_fail_fast) {
        status = variables_set_pair(environment, "GRPC_FAIL_FAST", "use_caller", err);
    }
    return status;
}

static psd_status
tell_torch(const struct plan *plan, uint32_t rank, const struct process_facts *facts,
           struct words *environment, struct psd_error *err)
{
    char *error_file = NULL;
    psd_status status;

    if (facts->logs != NULL &&
        asprintf(&error_file, "%s/worker%u.error.json", facts->logs, rank) < 0) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a path");
    }
    {
        const struct text texts[] = {{"MASTER_ADDR", facts->store_address},
                                     {"MASTER_PORT", facts->store_port},
                                     {"ROLE_NAME", "default"},
                                     {"TORCHELASTIC_RUN_ID", facts->job},
                                     {"TORCHELASTIC_ERROR_FILE", error_file},
                                     /* rank 0 has the store, no agent does */
                                     {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
        const struct number numbers[] = {{"RANK", rank},
                                         {"WORLD_SIZE", plan->workers},
                                         {"LOCAL_RANK", facts->local_rank},
                                         {"LOCAL_WORLD_SIZE", facts->local_size},
                                         {"GROUP_RANK", facts->worker_machine},
                                         {"GROUP_WORLD_SIZE", facts->worker_machines},
                                         {"NODE_RANK", facts->worker_machine},
                                         {"ROLE_RANK", rank},
                                         {"ROLE_WORLD_SIZE", plan->workers},
                                         {"TORCHELASTIC_RESTART_COUNT", facts->restart},
                                         {"TORCHELASTIC_MAX_RESTARTS", plan->max_restarts}};

        status = set_texts(environment, texts, COUNT(texts), err);
        status = status == PSD_OK ? set_numbers(environment, numbers, COUNT(numbers), err) : status;
    }
    free(error_file);
    return status;
}

/* The scheduler, the servers and the workers, each of its own kind. */
static psd_status
tell_dmlc(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
          struct words *environment, struct psd_error *err)
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
        {"BYTEPS_LOCAL_RANK", facts->local_rank},
        {"BYTEPS_LOCAL_SIZE", facts->local_size}};
    psd_status status = set_texts(environment, texts, COUNT(texts), err);

    if (status == PSD_OK) {
        status = set_numbers(environment, common, COUNT(common), err);
    }
    if (status == PSD_OK && role != LAUNCH_MASTER) { /* a server's local rank means nothing */
        status = set_numbers(environment, place, role == LAUNCH_WORKER ? COUNT(place) : 2, err);
    }
    /* ps-lite would take an inherited one for where to listen: for all processes the same. */
    return status == PSD_OK ? words_add(environment, "PORT", err) : status;
}

static psd_status
tell_mpi(const struct plan *plan, uint32_t rank, const struct process_facts *facts,
         struct words *environment, struct psd_error *err)
{
    const struct text texts[] = {{"HOROVOD_HOSTNAME", facts->address}};
    const struct number numbers[] = {{"OMPI_COMM_WORLD_RANK", rank},
                                     {"OMPI_COMM_WORLD_SIZE", plan->workers},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", facts->local_rank},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", facts->local_size},
                                     {"PMI_RANK", rank},
                                     {"PMI_SIZE", plan->workers},
                                     {"HOROVOD_RANK", rank},
                                     {"HOROVOD_SIZE", plan->workers},
                                     {"HOROVOD_LOCAL_RANK", facts->local_rank},
                                     {"HOROVOD_LOCAL_SIZE", facts->local_size},
                                     {"HOROVOD_CROSS_RANK", facts->cross_rank},
                                     {"HOROVOD_CROSS_SIZE", facts->cross_size}};
    const psd_status status = set_texts(environment, texts, COUNT(texts), err);

    return status == PSD_OK ? set_numbers(environment, numbers, COUNT(numbers), err) : status;
}

psd_status
personality_add_environment(const struct plan *plan, uint32_t slot,
                            const struct process_facts *facts, struct words *environment,
                            struct psd_error *err)
{
    const bool worker = role_of_slot(slot, plan->servers) == LAUNCH_WORKER;
    const uint32_t rank = role_index(slot, plan->servers);
    psd_status status = PSD_OK;

    if (personality_is_tensorflow(plan->personality)) {
        status = tell_tf_config(plan, slot, facts, environment, err);
    }
    if (status == PSD_OK && (plan->personality & PERSONALITY_TORCH) != 0 && worker) {
        status = tell_torch(plan, rank, facts, environment, err);
    }
    if (status == PSD_OK && (plan->personality & PERSONALITY_DMLC) != 0) {
        status = tell_dmlc(plan, slot, facts, environment, err);
    }
    if (status == PSD_OK && (plan->personality & PERSONALITY_MPI) != 0 && worker) {
        status = tell_mpi(plan, rank, facts, environment, err);
    }
    return status;
}

/* One of the two lists of hosts. */
static psd_status
add_hosts(struct words *argv, const char *option, const struct psi_tf_job *job,
          struct psd_error *err)
{
    char *hosts = psi_tf_job_text(job);
    psd_status status = hosts != NULL ? words_add(argv, option, err)
                                      : psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for hosts");

    status = status == PSD_OK ? words_add(argv, hosts, err) : status;
    free(hosts);
    return status;
}

psd_status
personality_add_arguments(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
                          struct words *argv, struct psd_error *err)
{
    const struct plan_task task = plan_task(plan, slot);
    psd_status status;

    if ((plan->personality & PERSONALITY_TF1) == 0) {
        return PSD_OK;
    }
    status = words_add(argv, "--job_name", err);
    if (status == PSD_OK) {
        status = words_add(argv, task.name, err);
    }
    if (status == PSD_OK) {
        status = words_add(argv, "--task_index", err);
    }
    if (status == PSD_OK) {
        status = words_add_format(argv, err, "%u", task.index);
    }
    if (status == PSD_OK) {
        status = add_hosts(argv, "--ps_hosts", &facts->cluster->jobs[PSI_TF_PS], err);
    }
    return status == PSD_OK
               ? add_hosts(argv, "--worker_hosts", &facts->cluster->jobs[PSI_TF_WORKER], err)
               : status;
}
