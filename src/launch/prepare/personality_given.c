/*
 * personality_given.c - what kind of script the options say it is, and its tasks, if somebody laid
 * them out by hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/prepare/personality_given.h"

#include <string.h>

#include "base/fail.h"
#include "launch/plan/personality.h"

/* The tasks of TensorFlow's that were laid out by hand. */
static psd_status
read_tf_config(const struct launch_options *options, char *const *environment, struct plan *plan,
               char note_p[TF_TASKS_NOTE_BYTES], struct psd_error *err)
{
    struct tf_tasks tasks = {0};
    enum tf_tasks_need need;
    psd_status status;

    if ((plan->personality & (PERSONALITY_TORCH | PERSONALITY_DMLC | PERSONALITY_MPI)) != 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--tf_config runs tasks of TensorFlow's clusters: with it, --personality "
                        "is tf_config, tf1 or poseidon");
    }
    if (options->cluster_config != NULL || options->workers != LAUNCH_NOT_GIVEN ||
        options->servers != LAUNCH_NOT_GIVEN || options->roles != NULL || options->chief ||
        options->evaluator || options->tf_config_dir != NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--tf_config says which tasks run here, and where all of them listen: give "
                        "no cluster file, --workers, --servers, --roles, --chief, --evaluator or "
                        "--tf_config_dir beside it");
    }
    need = !personality_is_foreign(plan->personality)                  ? TF_TASKS_RANK
           : personality_has(plan->personality, PERSONALITY_HAS_FLAGS) ? TF_TASKS_FLAGS
                                                                       : TF_TASKS_VARIABLE;
    status = tf_tasks_load(&options->tf_config, environment, need, &tasks, err);
    if (status != PSD_OK) {
        return status;
    }
    if (need == TF_TASKS_RANK) { /* its daemons run elsewhere */
        plan->personality = PERSONALITY_TF_CONFIG;
        plan->joins = true;
    }
    plan->servers = tasks.servers;
    plan->workers = tasks.workers;
    plan->given = tasks.list;
    memcpy(note_p, tasks.note, TF_TASKS_NOTE_BYTES);
    return PSD_OK;
}

psd_status
personality_given(const struct launch_options *options, char *const *environment, struct plan *plan,
                  char note_p[TF_TASKS_NOTE_BYTES], struct psd_error *err)
{
    const bool by_hand = options->tf_config.count > 0;
    psd_status status = PSD_OK;

    plan->personality = by_hand ? PERSONALITY_TF_CONFIG : PERSONALITY_POSEIDON;
    plan->chief = options->chief;
    plan->evaluator = options->evaluator;
    if (options->personality != NULL) {
        status = personality_parse(options->personality, &plan->personality, err);
    }
    if (status == PSD_OK && options->pass != NULL && personality_is_foreign(plan->personality)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--pass is about Poseidon's own flags and variables, and does not go with "
                        "--personality=%.64s",
                        options->personality != NULL ? options->personality : "tf_config");
    }
    return status == PSD_OK && by_hand ? read_tf_config(options, environment, plan, note_p, err)
                                       : status;
}
