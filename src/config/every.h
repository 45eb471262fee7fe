/*
 * every.h - how often a checkpoint is written: after so much time, or at every so many-th step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CONFIG_EVERY_H
#define PSI_CONFIG_EVERY_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

/* All but one are 0. */
struct psi_every {
    uint64_t ms;
    uint64_t steps;
    bool epoch; /* each; only the program's framework knows when that is */
};

/* "10m", "90s", "2h", "1000steps", "epoch". PSD_ERR_INVALID says what was expected, `where` in front. */
psd_status psi_every_parse(const char *where, const char *text, struct psi_every *every_p,
                           struct psd_error *err);

#endif
