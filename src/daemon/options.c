/*
 * options.c - what the command lines of ps_master and ps_server have in common.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "daemon/options.h"

#include <stdio.h>

#include "base/fail.h"
#include "config/environment.h"

psd_status
daemon_options_parse(const struct psi_command *command, int argc, char *const *argv,
                     struct psi_settings *settings, bool *answered_p, struct psd_error *err)
{
    struct psi_arguments arguments = {0};
    const psd_status status = psi_options_parse(command, argc, argv, settings, &arguments, err);

    if (status != PSD_OK) {
        return status;
    }
    *answered_p = psi_options_answer(stdout, command, &arguments);
    if (*answered_p) {
        return PSD_OK;
    }
    if (arguments.first < argc) {
        return psi_fail(err, PSD_ERR_INVALID, "%s: not an option", argv[arguments.first]);
    }
    return psi_settings_environment(settings, command->program, err);
}

static void
warn_of_slip(void *owner, const char *written, const char *meant)
{
    psi_log(owner, PSI_LOG_WARN, "UNKNOWN-VARIABLE", "%s is set and not known: did you mean %s?",
            written, meant);
}

void
daemon_log_start(struct psi_log *log, const char *name, const struct psi_settings *settings,
                 enum psi_program program, bool insecure)
{
    psi_log_to_stderr(log, name, (enum psi_log_level)settings->log_level);
    psi_settings_log(settings, program, log);
    psi_environment_slips(warn_of_slip, log);
    if (insecure) {
        psi_log(log, PSI_LOG_WARN, "INSECURE",
                "--insecure: no secret, so every user of this machine may join the job");
    }
}
