/*
 * again.c - a job that is run again goes on from its checkpoints.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/again.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/settings.h"
#include "launch/prepare/checkpoints.h"

enum { SIGNALLED = 128 };

bool
again_from_checkpoint(const struct launch_options *options, struct plan *plan)
{
    struct psd_error err = {0};

    if (options->checkpoint == NULL || !checkpoints_any(options->checkpoint)) {
        return true;
    }
    if (checkpoints_resume(options->checkpoint, plan, &err) != PSD_OK) {
        fprintf(stderr, "psd_run: the job cannot start again from its checkpoints: %s\n", err.text);
        return false;
    }
    return true;
}

bool
again_was_requeued(void)
{
    const char *restarts = psi_environment("SLURM_RESTART_COUNT");

    return restarts != NULL && strcmp(restarts, "0") != 0;
}

void
again_ask(int code, uint64_t saved)
{
    const char *id = psi_environment("SLURM_JOB_ID");
    const char *argv[] = {"scontrol", "requeue", id, NULL};
    int status = 0;
    pid_t pid;

    if (code != SIGNALLED + SIGTERM || saved == 0 || id == NULL) {
        return;
    }
    fprintf(stderr, "psd_run: saved at step %llu: scontrol requeue %s\n", (unsigned long long)saved,
            id);
    errno = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);
    if (errno != 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr,
                "psd_run: scontrol requeue %s failed (%s): the job has to be run again by hand\n",
                id, errno != 0 ? strerror(errno) : "see above");
    }
}
