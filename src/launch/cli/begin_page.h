/*
 * begin_page.h - which page a command line asks for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_BEGIN_PAGE_H
#define LAUNCH_BEGIN_PAGE_H

#include "launch/prepare/options.h"
#include "launch/run/run_args.h"

/* *wanted_p: whether there is to be one at all. PSD_ERR_INVALID: the options make no sense. */
psd_status begin_page(const struct launch_options *options, struct page_args *args_p,
                      bool *wanted_p, struct psd_error *err);

#endif
