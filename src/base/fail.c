/*
 * fail.c - making an error, and stopping on a bug.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

psd_status
psi_fail(struct psd_error *err, psd_status status, const char *format, ...)
{
    if (err != NULL) {
        va_list args;

        err->status = status;
        va_start(args, format);
        vsnprintf(err->text, sizeof(err->text), format, args);
        va_end(args);
    }
    return status;
}

psd_status
psi_fail_errno(struct psd_error *err, psd_status status, const char *format, ...)
{
    const int code = errno;

    if (err != NULL) {
        va_list args;
        size_t used;

        err->status = status;
        va_start(args, format);
        vsnprintf(err->text, sizeof(err->text), format, args);
        va_end(args);
        used = strlen(err->text);
        snprintf(err->text + used, sizeof(err->text) - used, ": %s", strerror(code));
    }
    return status;
}

void
psi_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}
