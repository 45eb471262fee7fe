/*
 * main.c - ps_server: holds parameters, adds gradients.
 *
 * options.c reads the command line, daemon.c runs the lanes (lane.h) on threads.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>

#include "base/exit_code.h"
#include "base/std_fds.h"
#include "server/daemon.h"
#include "server/options.h"

int
main(int argc, char **argv)
{
    struct server_options options;
    struct psd_error err = {0};
    struct psi_log log = {0};
    int exit_code;

    if (psi_std_fds_fill() != 0) {
        return PSI_EXIT_CANNOT_START;
    }
    if (server_options_read(argc, argv, &options, &log, &err) != PSD_OK) {
        fprintf(stderr, "ps_server: %s\nsee ps_server -h\n", err.text);
        return PSI_EXIT_USAGE;
    }
    exit_code = options.answered ? PSI_EXIT_OK : server_daemon_run(&options, &log);
    daemon_security_fini(&options.security);
    return exit_code;
}
