/*
 * every.c - how often a checkpoint is written: after so much time, or at every so many-th step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config/every.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

enum { DIGITS_MAX = 9 };

#define DAYS_MAX_MS (UINT64_C(365) * 24 * 3600 * 1000)

static const struct {
    const char *word;
    uint64_t ms; /* 0: steps */
} units[] = {{"ms", 1},          {"s", 1000},  {"m", 60 * 1000}, {"min", 60 * 1000},
             {"h", 3600 * 1000}, {"steps", 0}, {"step", 0}};

psd_status
psi_every_parse(const char *where, const char *text, struct psi_every *every_p,
                struct psd_error *err)
{
    const size_t digits = strspn(text, "0123456789");
    const uint64_t number = strtoull(text, NULL, 10);
    const char *unit = text + digits + strspn(text + digits, " ");

    if (strcmp(text, "epoch") == 0) {
        *every_p = (struct psi_every){.epoch = true};
        return PSD_OK;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (digits > 0 && digits <= DIGITS_MAX && number > 0 && strcmp(unit, units[i].word) == 0 &&
            number * units[i].ms <= DAYS_MAX_MS) {
            *every_p = (struct psi_every){.ms = number * units[i].ms,
                                          .steps = units[i].ms == 0 ? number : 0};
            return PSD_OK;
        }
    }
    return psi_fail(err, PSD_ERR_INVALID,
                    "%s %.64s: expected a time such as 90s, 10m or 2h, steps such as 1000steps, or "
                    "epoch",
                    where, text);
}
