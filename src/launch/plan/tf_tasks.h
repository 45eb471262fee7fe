/*
 * tf_tasks.h - tasks of a TensorFlow cluster that somebody laid out by hand: one file with a
 * TF_CONFIG for each task that shall run here.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_TF_TASKS_H
#define LAUNCH_TF_TASKS_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster/tf_config.h"
#include "config/options.h"

enum { TF_TASKS_NOTE_BYTES = 320 };

/* Thread: owned by the caller. Zero is an empty one. */
struct tf_tasks {
    struct psi_tf_config *list; /* the caller's, by slot: role.h; the first is none */
    uint32_t servers;           /* ps that other tasks here use; alone they are the job itself */
    uint32_t workers;
    char note[TF_TASKS_NOTE_BYTES]; /* what is strange about them, but no mistake; "": nothing */
};

/* What the tasks have to be told in. */
enum tf_tasks_need {
    TF_TASKS_VARIABLE, /* TF_CONFIG */
    TF_TASKS_FLAGS,    /* those of tf1, too */
    TF_TASKS_RANK,     /* Poseidon's own: all of them are its workers */
};

/*
 * Reads the files; "env" is the variable TF_CONFIG of the environment. PSD_ERR_INVALID: a file is
 * wrong, two are the same task or contradict each other, or somebody listens already where one of
 * them should.
 */
psd_status tf_tasks_load(const struct psi_option_list *files, char *const *environment,
                         enum tf_tasks_need need, struct tf_tasks *tasks_p, struct psd_error *err);

#endif
