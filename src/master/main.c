/*
 * main.c - ps_master: who is in the job.
 *
 * options.c reads the command line, daemon.c brings the core (master.h) into the real world.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>

#include "base/exit_code.h"
#include "base/std_fds.h"
#include "master/daemon.h"
#include "master/options.h"

int
main(int argc, char **argv)
{
    struct master_options options;
    struct psd_error err = {0};
    struct psi_log log = {0};
    int exit_code;

    if (psi_std_fds_fill() != 0) {
        return PSI_EXIT_CANNOT_START;
    }
    if (master_options_read(argc, argv, &options, &log, &err) != PSD_OK) {
        fprintf(stderr, "ps_master: %s\nsee ps_master -h\n", err.text);
        return PSI_EXIT_USAGE;
    }
    exit_code = options.answered ? PSI_EXIT_OK : master_daemon_run(&options, &log);
    daemon_security_fini(&options.security);
    return exit_code;
}
