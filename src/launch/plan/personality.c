/*
 * personality.c - which kinds of scripts there are, and what they have.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/plan/personality.h"

#include <string.h>

#include "base/fail.h"
#include "cluster/cluster.h"

enum { NAMES_MAX = 24 };

/* The kinds, with the variables that each sets: personality_words.c. */
static const struct kind {
    enum personality bit;
    const char *name;
    unsigned traits;
    uint16_t port;
    const char *variables[NAMES_MAX]; /* ended by NULL */
} kinds[] = {
    {.bit = PERSONALITY_POSEIDON, /* plan.c has the variables */
     .name = "poseidon",
     .traits = PERSONALITY_HAS_DAEMONS | PERSONALITY_HAS_SERVERS | PERSONALITY_HAS_MASTER},
    {.bit = PERSONALITY_TF1,
     .name = "tf1",
     .traits = PERSONALITY_HAS_SERVERS | PERSONALITY_HAS_TASKS | PERSONALITY_HAS_FLAGS,
     .port = 2222,
     .variables = {"TF_CONFIG"}},
    {.bit = PERSONALITY_TF_CONFIG,
     .name = "tf_config",
     .traits = PERSONALITY_HAS_SERVERS | PERSONALITY_HAS_TASKS | PERSONALITY_HAS_CHIEF,
     .variables = {"TF_CONFIG"}},
    {.bit = PERSONALITY_TORCH,
     .name = "torch",
     .traits = PERSONALITY_HAS_STORE,
     .variables = {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                   "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK", "ROLE_NAME",
                   "ROLE_RANK", "ROLE_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
                   "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
                   "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_USE_AGENT_STORE"}},
    {.bit = PERSONALITY_DMLC,
     .name = "dmlc",
     .traits = PERSONALITY_HAS_SERVERS | PERSONALITY_HAS_MASTER | PERSONALITY_HAS_SCHEDULER,
     .variables = {"DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER",
                   "DMLC_NUM_SERVER", "DMLC_NODE_HOST", "DMLC_INTERFACE", "DMLC_WORKER_ID",
                   "DMLC_SERVER_ID", "DMLC_RANK", "DMLC_TASK_ID", "DMLC_NUM_ATTEMPT",
                   "DMLC_JOB_CLUSTER", "DMLC_ENABLE_RDMA", "BYTEPS_LOCAL_RANK", "BYTEPS_LOCAL_SIZE",
                   "NVIDIA_VISIBLE_DEVICES", "PORT"}},
    {.bit = PERSONALITY_MPI,
     .name = "mpi",
     .variables = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                   "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE", "HOROVOD_RANK",
                   "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK",
                   "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME"}},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static psd_status
check_set(unsigned set, struct psd_error *err)
{
    if ((set & PERSONALITY_POSEIDON) != 0 &&
        (set & (PERSONALITY_TF1 | PERSONALITY_TF_CONFIG | PERSONALITY_DMLC)) != 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--personality: with poseidon the servers are ps_servers, with %s they run "
                        "your command: take one of the two",
                        (set & PERSONALITY_DMLC) != 0  ? "dmlc"
                        : (set & PERSONALITY_TF1) != 0 ? "tf1"
                                                       : "tf_config");
    }
    if ((set & PERSONALITY_DMLC) != 0 && personality_is_tensorflow(set)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--personality: dmlc has a scheduler that runs your command, and "
                        "TensorFlow knows none: take one of the two");
    }
    return PSD_OK;
}

psd_status
personality_parse(const char *list, unsigned *set_p, struct psd_error *err)
{
    unsigned set = 0;
    psd_status status;

    if (list == NULL) {
        *set_p = PERSONALITY_POSEIDON;
        return PSD_OK;
    }
    for (const char *at = list;; at++) {
        const size_t bytes = strcspn(at, ",");
        size_t i = 0;

        while (i < KINDS &&
               (strlen(kinds[i].name) != bytes || strncmp(kinds[i].name, at, bytes) != 0)) {
            i++;
        }
        if (i == KINDS) {
            return psi_fail(err, PSD_ERR_INVALID,
                            "--personality=%.64s: must be some of poseidon, tf1, tf_config, torch, "
                            "dmlc, mpi, with commas between",
                            list);
        }
        set |= kinds[i].bit;
        at += bytes;
        if (*at == '\0') {
            break;
        }
    }
    status = check_set(set, err);
    if (status == PSD_OK) {
        *set_p = set;
    }
    return status;
}

bool
personality_has(unsigned set, enum personality_trait trait)
{
    for (size_t i = 0; i < KINDS; i++) {
        if ((set & kinds[i].bit) != 0 && (kinds[i].traits & trait) != 0) {
            return true;
        }
    }
    return false;
}

bool
personality_is_foreign(unsigned set)
{
    return !personality_has(set, PERSONALITY_HAS_DAEMONS);
}

bool
personality_is_tensorflow(unsigned set)
{
    return personality_has(set, PERSONALITY_HAS_TASKS);
}

bool
personality_has_servers(unsigned set)
{
    return personality_has(set, PERSONALITY_HAS_SERVERS);
}

bool
personality_has_master(unsigned set)
{
    return personality_has(set, PERSONALITY_HAS_MASTER);
}

uint16_t
personality_port(unsigned set)
{
    uint16_t port = 0;

    for (size_t i = 0; i < KINDS; i++) {
        port = (set & kinds[i].bit) != 0 && kinds[i].port != 0 ? kinds[i].port : port;
    }
    return port;
}

uint32_t
personality_usual_servers(unsigned set)
{
    return personality_has_servers(set) ? 1 : 0;
}

psd_status
personality_check_servers(unsigned set, const char *list, uint32_t servers, struct psd_error *err)
{
    if (servers > 0 && !personality_has_servers(set)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--servers %u: --personality=%.64s has none (poseidon,%.64s starts "
                        "ps_servers)",
                        servers, list, list);
    }
    if (servers == 0 && personality_has_servers(set) && !personality_is_tensorflow(set)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--servers 0: a job of personality %.64s needs servers; give 1 to %d",
                        list != NULL ? list : "poseidon", PSI_CLUSTER_SERVERS_MAX);
    }
    return PSD_OK;
}

void
personality_each(unsigned set, void (*tell)(void *owner, const char *variable), void *owner)
{
    for (size_t i = 0; i < KINDS; i++) {
        const bool told = kinds[i].bit == PERSONALITY_TF_CONFIG && (set & PERSONALITY_TF1) != 0;

        for (size_t k = 0; (set & kinds[i].bit) != 0 && !told && kinds[i].variables[k] != NULL;
             k++) {
            tell(owner, kinds[i].variables[k]);
        }
    }
}
