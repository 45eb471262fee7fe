/*
 * tf_config.h - TF_CONFIG: who listens where in a TensorFlow cluster, and which task a process is.
 *
 *   {"cluster": {"chief": ["h0:p"], "worker": ["h1:p", "h2:p"], "ps": ["h3:p"]},
 *    "task": {"type": "worker", "index": 0}}
 *
 * A job may also be a map from index to address, which need not know all of them. "master" is the
 * old name of the chief. The evaluator is a task and stands in no cluster. Other keys are left to
 * TensorFlow.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLUSTER_TF_CONFIG_H
#define PSI_CLUSTER_TF_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

enum psi_tf_type { PSI_TF_CHIEF, PSI_TF_WORKER, PSI_TF_PS, PSI_TF_EVALUATOR };

enum {
    PSI_TF_TYPES = 4,
    PSI_TF_INDEX_MAX = 65535,
    PSI_TF_TASKS_MAX = 2048, /* of a cluster */
    PSI_TF_BYTES_MAX = 1 << 20,
    PSI_TF_WORD_BYTES = 256,
};

struct psi_tf_task {
    uint32_t index;
    char *address; /* owned: "host:port", "[v6 address]:port" */
};

struct psi_tf_job {
    struct psi_tf_task *tasks; /* owned, by index */
    uint32_t count;
};

/* Thread: owned by the caller. Zero is an empty one. */
struct psi_tf_config {
    struct psi_tf_job jobs[PSI_TF_TYPES];
    bool has_task;
    enum psi_tf_type type;             /* of the task ... */
    uint32_t index;                    /* ... which may lie beyond what the cluster lists */
    char rpc_layer[PSI_TF_WORD_BYTES]; /* handed on as they came; "": not said */
    char session_master[PSI_TF_WORD_BYTES];
};

/* "chief", "worker", "ps", "evaluator" */
const char *psi_tf_type_name(enum psi_tf_type type);

/* PSD_ERR_INVALID: "NAME:LINE:COLUMN: what is wrong"; then *config_p is not written. */
psd_status psi_tf_config_parse(const char *text, size_t bytes, const char *name,
                               struct psi_tf_config *config_p, struct psd_error *err);
psd_status psi_tf_config_load(const char *path, struct psi_tf_config *config_p,
                              struct psd_error *err);
psd_status psi_tf_config_copy(const struct psi_tf_config *from, struct psi_tf_config *to_p,
                              struct psd_error *err);
void psi_tf_config_free(struct psi_tf_config *config);

/* One more task of the cluster. PSD_ERR_INVALID: that one has an address already. */
psd_status psi_tf_config_add(struct psi_tf_config *config, enum psi_tf_type type, uint32_t index,
                             const char *address, struct psd_error *err);

/*
 * Adds what another piece knows of the cluster. PSD_ERR_INVALID: they contradict each other; both
 * are shown, one below the other, by their names.
 */
psd_status psi_tf_config_merge(struct psi_tf_config *config, const char *name,
                               const struct psi_tf_config *piece, const char *piece_name,
                               struct psd_error *err);

/*
 * Where a task listens; NULL: not known. A task beyond a list of one stands in that list itself: it
 * knows nobody else of its kind.
 */
const char *psi_tf_config_address(const struct psi_tf_config *config, enum psi_tf_type type,
                                  uint32_t index);

/* Whether the tasks of a job are 0 to count - 1. */
bool psi_tf_job_is_full(const struct psi_tf_job *job);

/* The variable for one task, or NULL without memory. Owned by the caller. */
char *psi_tf_config_text(const struct psi_tf_config *config, enum psi_tf_type type, uint32_t index);

/* "a:1,b:2": a job for a command line. NULL without memory. Owned by the caller. */
char *psi_tf_job_text(const struct psi_tf_job *job);

#endif
