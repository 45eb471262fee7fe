/*
 * job.c - a Poseidon job whose workers are this program, started by psd_run or as the user says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "job.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "config/settings.h"

/* psd_run lies one above the directory of this program (build/bench), or beside it (installed). */
static const char *
find_launcher(const char *own, char path[PATH_MAX])
{
    static const char *const places[] = {"/../psd_run", "/psd_run"};
    const char *slash = strrchr(own, '/');

    for (size_t i = 0; slash != NULL && i < sizeof(places) / sizeof(places[0]); i++) {
        const int used = snprintf(path, PATH_MAX, "%.*s%s", (int)(slash - own), own, places[i]);

        if (used > 0 && used < PATH_MAX && access(path, X_OK) == 0) {
            return path;
        }
    }
    return "psd_run"; /* on the PATH, or a message that says so */
}

/* Psd_run hands its environment on to the servers and the workers. */
static void
make_environment(const struct job_args *args, const char *environment[5])
{
    size_t count = 0;

    environment[count++] = args->tcp ? "PSD_TRANSPORT=tcp" : "PSD_TRANSPORT=auto";
    if (args->job == JOB_BLOCKING) {
        environment[count++] = "PSD_SPIN_US=0";
    }
    if (args->sealed) {
        environment[count++] = "PSD_FORCE_TLS=1";
    }
    if (psi_environment("PSD_LONE_SUMS") == NULL) {
        environment[count++] = "PSD_LONE_SUMS=off"; /* servers are what is measured */
    }
    environment[count] = NULL;
}

static psd_status
start_launcher(const struct job_args *args, struct group *group, struct psd_error *err)
{
    char own[PATH_MAX] = "";
    char path[PATH_MAX];
    char workers[16];
    char servers[16];
    const char *environment[5];
    const char *copies = args->job == JOB_COPIED ? "1" : "0";
    const char *survive = args->job == JOB_SUM_OFF ? "--sum_failover=off" : "--sum_failover=auto";
    const char *words[] = {
        NULL,    "-o",        group->directory, "--pass",       "env",  "--workers",
        workers, "--servers", servers,          "--replicas",   copies, survive,
        "--",    own,         "--control",      group->control, NULL};

    if (readlink("/proc/self/exe", own, sizeof(own) - 1) < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "find this program");
    }
    words[0] = find_launcher(own, path);
    snprintf(workers, sizeof(workers), "%u", args->workers);
    snprintf(servers, sizeof(servers), "%u", args->servers);
    make_environment(args, environment);
    return group_start(group, words, environment, err);
}

static psd_status
start_command(const char *command, struct group *group, struct psd_error *err)
{
    char control[128];
    const char *const words[] = {"/bin/sh", "-c", command, NULL};
    const char *const environment[] = {control, NULL};

    snprintf(control, sizeof(control), "PSD_BENCH_CONTROL=%s", group->control);
    return group_start(group, words, environment, err);
}

psd_status
job_start(const struct job_args *args, struct group *group_p, struct psd_error *err)
{
    const bool own = args->launch == NULL;
    psd_status status = group_init(group_p, own ? "psd_run" : "the launched job", err);

    if (status != PSD_OK) {
        return status;
    }
    status = own ? start_launcher(args, group_p, err) : start_command(args->launch, group_p, err);
    if (status == PSD_OK) {
        status = group_gather(group_p, args->workers, err);
    }
    if (status != PSD_OK) {
        group_abandon(group_p);
    }
    return status;
}
