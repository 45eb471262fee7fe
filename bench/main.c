/*
 * main.c - psd_bench: how fast Poseidon is, beside what the machine allows and beside its peers.
 *
 * Without a job around it the program is the runner, which starts itself under psd_run, as the
 * workers of the jobs it measures.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/exit_code.h"
#include "config/settings.h"
#include "options.h"
#include "process.h"
#include "runner.h"
#include "start.h"
#include "worker.h"

int
main(int argc, char **argv)
{
    struct bench_options options;
    struct psd_error err = {0};
    psd_status status = bench_options_parse(argc, argv, &options, &err);

    if (status != PSD_OK) {
        fprintf(stderr, "psd_bench: %s; -h shows the options\n", err.text);
        return PSI_EXIT_USAGE;
    }
    if (options.answered) {
        return PSI_EXIT_OK;
    }
    process_keep_to(options.cores);
    if (options.backward_ms != 0) { /* workers and peers find it there */
        char text[16];

        snprintf(text, sizeof(text), "%u", options.backward_ms);
        setenv("PSD_BENCH_BACKWARD_MS", text, 1);
    }
    if (options.control != NULL && psi_environment("PSD_MASTER_ADDRESS") != NULL) {
        status = worker_run(options.control, &err);
    } else if (options.what == BENCH_START) {
        status = start_run(&options, &err);
    } else {
        status = runner_run(&options, &err);
    }
    if (status != PSD_OK) {
        fprintf(stderr, "psd_bench: %s\n", err.text);
        return 1;
    }
    return PSI_EXIT_OK;
}
