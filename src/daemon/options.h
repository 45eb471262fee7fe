/*
 * options.h - what the command lines of ps_master and ps_server have in common.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include <stdbool.h>

#include <psd/status.h>

#include "base/log.h"
#include "config/options.h"

/* Options of both; text is borrowed from argv. Starts as {.bind = "127.0.0.1"}. */
struct daemon_given {
    const char *cluster_config;
    const char *bind;
    const char *secret_file;
    bool insecure;
};

/* clang-format off */
/* The rows of a command's table that fill one in. */
#define DAEMON_OPTION_ROWS(given, cluster_help)                                                    \
    {"cluster_config", 'c', PSI_OPTION_TEXT, cluster_help, &(given)->cluster_config},              \
    {"bind", 0, PSI_OPTION_TEXT, "address to listen on (127.0.0.1)", &(given)->bind},              \
    {"secret_file", 0, PSI_OPTION_TEXT,                                                            \
     "file with the job's secret, mode 0600 (PSD_SECRET_FILE)", &(given)->secret_file},            \
    {"insecure", 0, PSI_OPTION_FLAG,                                                               \
     "no secret: anybody on this machine may join; loopback only", &(given)->insecure}
/* clang-format on */

/* Reads the command line, which ends with its options, then the environment's settings.
 * *answered_p: it was -h or --version, and that is answered. */
psd_status daemon_options_parse(const struct psi_command *command, int argc, char *const *argv,
                                struct psi_settings *settings, bool *answered_p,
                                struct psd_error *err);

/* Makes `log` write to stderr under `name`, and says how the daemon runs: its settings, that it is
 * insecure, variables that were probably misspelt. */
void daemon_log_start(struct psi_log *log, const char *name, const struct psi_settings *settings,
                      enum psi_program program, bool insecure);

#endif
