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
static void
describe_line(struct words *answers)
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
    if (ours[0] != '\0') {
        words_add_format(answers, "line=%s %s", its, ours);
    }
}

void
greet_describe(struct words *answers)
{
    const struct passwd *entry = getpwuid(geteuid());
    char name[256] = "?";

    gethostname(name, sizeof(name) - 1);
    words_add(answers, "version=" PSD_VERSION);
    words_add_format(answers, "hostname=%s", name);
    words_add_format(answers, "computer=%016llx", (unsigned long long)psi_machine_guess());
    words_add_format(answers, "user=%s", entry != NULL ? entry->pw_name : "?");
    words_add_format(answers, "clock_ms=%lld", (long long)wall_clock_ms());
    words_add_format(answers, "cores=%u", psi_usable_cores());
    describe_line(answers);
    reach_addresses(answers, NULL);
}
