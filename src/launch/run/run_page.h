/*
 * run_page.h - a job's page and its report: what they show of a run (run->feed), and where they are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_RUN_PAGE_H
#define LAUNCH_RUN_PAGE_H

#include "launch/run/run_state.h"

/* Opens the page, if one is wanted and none is open, and shows the job there. If that fails, a line
 * says why, and the job goes on. PSD_ERR_INVALID: the options would let everybody in, or make no
 * sense. */
psd_status run_page_open(struct run *run, struct psd_error *err);

/* The job begins: people are told where its page is, once, with its token on a terminal, else in a file that only they
 * can read. A job that does not come to that has problems to tell, and no report. */
void run_page_begin(struct run *run);

/* "http://...\n" for psd_run page, owned by the caller; with what is in its way instead. */
char *run_page_address(const struct run *run);

/* The same for one without a terminal: "watch the job at the address in FILE\n", a file of the user alone. */
char *run_page_file(const struct run *run);

/* The attempt is over, and the feed knows it: writes report.html. Open pages wait for shown_end(), or for
 * the next attempt. */
void run_page_end(struct run *run);

#endif
