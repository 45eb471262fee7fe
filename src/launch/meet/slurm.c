/*
 * slurm.c - what Slurm says about the allocation that psd_run is in.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/slurm.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "launch/text/variables.h"

enum { TASKS_MAX = 65536 };

/* Step ids that are no step of tasks: the shell of salloc, the script of sbatch. */
static const char *const scripts[] = {"4294967290", "4294967291"};

static const char *
first_of(char *const *environment, const char *const *names, const char **name_p)
{
    for (; *names != NULL; names++) {
        const char *value = variables_get(environment, *names);

        if (value != NULL) {
            *name_p = *names;
            return value;
        }
    }
    return NULL;
}

static const char *
job_id(char *const *environment)
{
    static const char *const names[] = {"SLURM_JOB_ID", "SLURM_JOBID", NULL};
    const char *name;

    return first_of(environment, names, &name);
}

/* A batch script has SLURM_PROCID, too; only tasks of a step have the list of its nodes. */
static bool
is_task(char *const *environment)
{
    const char *step = variables_get(environment, "SLURM_STEP_ID");

    for (size_t i = 0; step != NULL && i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        if (strcmp(step, scripts[i]) == 0) {
            return false;
        }
    }
    return step != NULL && variables_get(environment, "SLURM_STEP_NODELIST") != NULL;
}

bool
slurm_is_around(char *const *environment)
{
    static const char *const names[] = {"SLURM_JOB_NODELIST", "SLURM_NODELIST", NULL};
    const char *name;

    return job_id(environment) != NULL && first_of(environment, names, &name) != NULL;
}

bool
slurm_is_one_of_many(char *const *environment)
{
    static const char *const names[] = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS",
                                        NULL};
    const char *name;
    const char *tasks = first_of(environment, names, &name);

    return slurm_is_around(environment) && is_task(environment) && tasks != NULL &&
           strtoul(tasks, NULL, 10) > 1;
}

void
slurm_fini(struct slurm *slurm)
{
    psi_hostlist_free(&slurm->nodes);
    psi_numberlist_free(&slurm->tasks_on);
    psi_numberlist_free(&slurm->ports);
    *slurm = (struct slurm){0};
}

static psd_status
wrong_list(const char *name, const char *value, const char *wrong, size_t column,
           struct psd_error *err)
{
    return psi_fail(err, PSD_ERR_INVALID, "%s=%.200s: %s (column %zu)", name, value, wrong, column);
}

static psd_status
read_nodes(char *const *environment, struct slurm *slurm, struct psd_error *err)
{
    static const char *const names[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
                                        "SLURM_NODELIST", NULL};
    const char *name = "";
    const char *value = first_of(environment, slurm->is_step ? names : names + 1, &name);
    size_t column = 0;
    const char *wrong;

    if (value == NULL || value[0] == '\0' || strcmp(value, "(null)") == 0) {
        value = "localhost"; /* Slurm's words for "no other machine" */
    }
    wrong = psi_hostlist_expand(value, &slurm->nodes, &column);
    return wrong == NULL ? PSD_OK : wrong_list(name, value, wrong, column, err);
}

static psd_status
read_number(char *const *environment, const char *name, uint32_t *number_p, struct psd_error *err)
{
    const char *value = variables_get(environment, name);
    char *end = NULL;
    const unsigned long number = value != NULL ? strtoul(value, &end, 10) : 0;

    if (value == NULL) {
        return PSD_OK;
    }
    if (end == value || *end != '\0' || number > UINT32_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "%s=%.64s: is no number", name, value);
    }
    *number_p = (uint32_t)number;
    return PSD_OK;
}

static psd_status
read_tasks(char *const *environment, struct slurm *slurm, struct psd_error *err)
{
    static const char *const names[] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", NULL};
    const char *name = "SLURM_TASKS_PER_NODE";
    const char *value = first_of(environment, slurm->is_step ? names : names + 1, &name);
    size_t column = 0;
    const char *wrong;

    if (value == NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%s is not set: this allocation does not say how many tasks each node has; "
                        "ask for them (sbatch --ntasks-per-node=1)",
                        name);
    }
    wrong = psi_numberlist_counts(value, &slurm->tasks_on, &column);
    if (wrong != NULL) {
        return wrong_list(name, value, wrong, column, err);
    }
    if (slurm->tasks_on.count != slurm->nodes.count) {
        return psi_fail(err, PSD_ERR_INVALID, "%s=%.200s: tasks of %zu nodes, but there are %zu",
                        name, value, slurm->tasks_on.count, slurm->nodes.count);
    }
    for (size_t i = 0; i < slurm->tasks_on.count; i++) {
        slurm->tasks += slurm->tasks_on.numbers[i];
        if (slurm->tasks > TASKS_MAX) {
            return psi_fail(err, PSD_ERR_INVALID, "%s=%.200s: more than %d tasks", name, value,
                            TASKS_MAX);
        }
    }
    return PSD_OK;
}

static psd_status
read_ports(char *const *environment, struct slurm *slurm, struct psd_error *err)
{
    static const char name[] = "SLURM_STEP_RESV_PORTS";
    const char *value = variables_get(environment, name);
    size_t column = 0;
    const char *wrong = NULL;

    if (value != NULL && value[0] != '\0' && strcmp(value, "(null)") != 0) {
        wrong = psi_numberlist_ports(value, &slurm->ports, &column);
    }
    return wrong == NULL ? PSD_OK : wrong_list(name, value, wrong, column, err);
}

/* Which of the step's tasks we are. */
static psd_status
read_own_place(char *const *environment, struct slurm *slurm, struct psd_error *err)
{
    psd_status status = read_number(environment, "SLURM_NODEID", &slurm->node, err);

    if (status == PSD_OK) {
        status = read_number(environment, "SLURM_LOCALID", &slurm->local, err);
    }
    if (status == PSD_OK && (slurm->node >= slurm->nodes.count ||
                             slurm->local >= slurm->tasks_on.numbers[slurm->node])) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "SLURM_NODEID=%u and SLURM_LOCALID=%u name no task of this step",
                        slurm->node, slurm->local);
    }
    return status;
}

psd_status
slurm_read(char *const *environment, struct slurm *slurm_p, struct psd_error *err)
{
    struct slurm slurm = {.job_id = job_id(environment),
                          .step_id = variables_get(environment, "SLURM_STEP_ID"),
                          .is_step = is_task(environment)};
    psd_status status = read_nodes(environment, &slurm, err);

    if (status == PSD_OK) {
        status = read_tasks(environment, &slurm, err);
    }
    if (status == PSD_OK) {
        status = read_ports(environment, &slurm, err);
    }
    if (status == PSD_OK) {
        status = read_number(environment, "SLURM_RESTART_COUNT", &slurm.restarts, err);
    }
    if (status == PSD_OK && slurm.is_step) {
        status = read_own_place(environment, &slurm, err);
    }
    if (status != PSD_OK) {
        slurm_fini(&slurm);
        return status;
    }
    *slurm_p = slurm;
    return PSD_OK;
}

uint32_t
slurm_task(const struct slurm *slurm, uint32_t node, uint32_t local)
{
    uint32_t before = 0;

    for (uint32_t i = 0; i < node; i++) {
        before += slurm->tasks_on.numbers[i];
    }
    return before + local;
}
