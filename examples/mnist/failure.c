/*
 * failure.c - see failure.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "failure.h"

#include <stdarg.h>
#include <stdio.h>

bool
failed(struct failure *failure, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(failure->text, sizeof(failure->text), format, args);
    va_end(args);
    return false;
}
