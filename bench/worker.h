/*
 * worker.h - a worker of the Poseidon job that is measured.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_WORKER_H
#define BENCH_WORKER_H

#include <psd/status.h>

/* Joins the job that psd_run started, then follows the orders of the runner that listens at
 * `control` until it is dismissed. */
psd_status worker_run(const char *control, struct psd_error *err);

#endif
