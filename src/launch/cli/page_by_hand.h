/*
 * page_by_hand.h - `psd_run page --master`: a page for a job that no psd_run started.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_BY_HAND_H
#define LAUNCH_PAGE_BY_HAND_H

/* Serves a page over what this master tells, until the job is over or a signal comes. Returns the
 * exit code. */
int page_by_hand(const char *master_address);

#endif
