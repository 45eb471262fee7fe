/*
 * greet.c - what an agent says about its machine.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/greet.h"

#include <pwd.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/machine.h"
#include "config/settings.h"
#include "launch/system/reach.h"
#include "launch/system/wall_clock.h"

/* Under which address we see psd_run, and under which it sees us, as far as ssh or srun tell:
 * "line=ITS OURS". */
static psd_status
describe_line(struct words *answers, struct psd_error *err)
{
    const char *ssh = psi_environment("SSH_CONNECTION");
    const char *srun = psi_environment("SLURM_LAUNCH_NODE_IPADDR");
    const bool in_step = psi_environment("SLURM_STEP_ID") != NULL;
    char its[64] = "";
    char ours[64] = "";

    if (in_step && srun != NULL) {
        snprintf(its, sizeof(its), "%.63s", srun);
        reach_source(its, ours);
    } else if (ssh != NULL) {
        sscanf(ssh, "%63s %*s %63s", its, ours);
    }
    return ours[0] != '\0' ? words_add_format(answers, err, "line=%s %s", its, ours) : PSD_OK;
}

psd_status
greet_describe(struct words *answers, struct psd_error *err)
{
    const struct passwd *entry = getpwuid(geteuid());
    char name[256] = "?";
    psd_status status = words_add(answers, "version=" PSD_VERSION, err);

    gethostname(name, sizeof(name) - 1);
    if (status == PSD_OK) {
        status = words_add_format(answers, err, "hostname=%s", name);
    }
    if (status == PSD_OK) {
        status = words_add_format(answers, err, "computer=%016llx",
                                  (unsigned long long)psi_machine_guess());
    }
    if (status == PSD_OK) {
        status = words_add_format(answers, err, "user=%s", entry != NULL ? entry->pw_name : "?");
    }
    if (status == PSD_OK) {
        status = words_add_format(answers, err, "clock_ms=%lld", (long long)wall_clock_ms());
    }
    if (status == PSD_OK) {
        status = words_add_format(answers, err, "cores=%u", psi_usable_cores());
    }
    if (status == PSD_OK) {
        status = describe_line(answers, err);
    }
    return status == PSD_OK ? reach_addresses(answers, err) : status;
}
