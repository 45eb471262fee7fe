/*
 * refuse.c - what psd_run says when it does not start a job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/refuse.h"

#include <stdio.h>

#include "launch/rules/watch.h"

int
refuse(const struct psd_error *err)
{
    fprintf(stderr, "psd_run: %s\n", err->text);
    if (err->status != PSD_ERR_INVALID) {
        return WATCH_CODE_CANNOT_START;
    }
    fprintf(stderr, "see psd_run -h\n");
    return WATCH_CODE_USAGE;
}
