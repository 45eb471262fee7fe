/*
 * srun.c - how a node of a Slurm allocation is reached.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/srun.h"

#include <stdio.h>
#include <string.h>

#include <sys/wait.h>

#include "base/fail.h"
#include "launch/meet/remote_script.h"
#include "launch/system/stderr_tail.h"

void
srun_arguments(const struct srun_target *target, struct words *argv)
{
    /* Unbuffered: srun would else hold back what does not end with a line, and an agent speaks in
     * bytes. No binding and no share of the memory: workers of a node divide all of it. */
    static const char *const always[] = {
        "srun",    "--overlap",  "--nodes=1",       "--ntasks=1", "--unbuffered",
        "--quiet", "--mpi=none", "--cpu-bind=none", "--mem=0",    "--job-name=psd_agent"};
    char script[REMOTE_SCRIPT_BYTES];

    remote_script(target->program, script);
    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++) {
        words_add(argv, always[i]);
    }
    words_add_format(argv, "--nodelist=%s", target->node);
    words_add(argv, "sh");
    words_add(argv, "-c");
    words_add(argv, script);
    words_add(argv, target->program);
}

/* What srun needs to find its cluster and its job; all else of Slurm's it would read as options. */
static bool
is_kept(const char *variable)
{
    static const char *const kept[] = {
        "SLURM_CONF", "SLURM_CLUSTERS",        "SLURM_JOB_ID",      "SLURM_JOBID",
        "SLURM_JWT",  "SLURM_WORKING_CLUSTER", "SLURM_CONF_SERVER", "SLURM_RESTART_COUNT"};
    const size_t bytes = strcspn(variable, "=");

    if (strncmp(variable, "SLURM_", 6) != 0 && strncmp(variable, "SRUN_", 5) != 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        if (strlen(kept[i]) == bytes && strncmp(variable, kept[i], bytes) == 0) {
            return true;
        }
    }
    return false;
}

void
srun_environment(char *const *environment, struct words *kept)
{
    for (; *environment != NULL; environment++) {
        if (is_kept(*environment)) {
            words_add(kept, *environment);
        }
    }
}

/* --------------------------------------------------------------------------------- failures --- */

bool
srun_may_try_again(const char *stderr_tail)
{
    static const char *const passing[] = {
        "Unable to contact slurm controller", "Socket timed out on send/recv operation",
        "Slurm backup controller in standby mode", "slurmctld is busy"};

    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) {
        if (strstr(stderr_tail, passing[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* That a task ended, said after the reason for it. */
static bool
is_noise(const char *line)
{
    const char *task = strstr(line, ": task 0: ");

    return (strncmp(line, "srun: error: ", 13) == 0 && task != NULL &&
            (size_t)(task - line) < strcspn(line, "\r\n")) ||
           strncmp(line, "srun: Terminating", 17) == 0 ||
           strncmp(line, "srun: launch/slurm:", 19) == 0 ||
           strncmp(line, "srun: Job step aborted", 22) == 0 ||
           strncmp(line, "srun: Force Terminated", 22) == 0;
}

void
srun_last_words(const char *stderr_tail, char *text_p, size_t size)
{
    stderr_tail_last_line(stderr_tail, is_noise, text_p, size);
}

/* What a person can do about it. */
static void
advise(FILE *stream, const struct srun_target *target, const char *stderr_tail, int status)
{
    if (strstr(stderr_tail, "nvalid job id") != NULL ||
        strstr(stderr_tail, "Job/step already") != NULL ||
        strstr(stderr_tail, "Job has expired") != NULL || strstr(stderr_tail, "xpired") != NULL) {
        fputs("the allocation is over; sbatch or salloc makes a new one", stream);
    } else if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        fprintf(stream, "psd_run is not there: install Poseidon on that node, in its PATH or as %s",
                target->program);
    } else if (strstr(stderr_tail, "not allocated") != NULL ||
               strstr(stderr_tail, "nvalid node name") != NULL ||
               strstr(stderr_tail, "not in this job") != NULL) {
        fprintf(
            stream,
            "the node is not part of this allocation; to see which are, run: scontrol show job");
    } else {
        fprintf(stream,
                "for the state of the node, run: sinfo -N -l -n %s; to see for yourself, run: srun "
                "--overlap -N1 -n1 -w %s true",
                target->node, target->node);
    }
}

void
srun_explain(const struct srun_target *target, const char *stderr_tail, const char *printed,
             int status, char *text_p, size_t size)
{
    FILE *stream = fmemopen(text_p, size, "w");
    char said[256];

    text_p[0] = '\0';
    if (stream == NULL) {
        return;
    }
    stderr_tail_describe("srun", stderr_tail, printed, is_noise, status, said, sizeof(said));
    fprintf(stream, "%s (srun -w %s): %s; ", target->node, target->node, said);
    advise(stream, target, stderr_tail, status);
    fclose(stream);
    text_p[size - 1] = '\0';
}
