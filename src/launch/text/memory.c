/*
 * memory.c - memory for lists and texts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/text/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/exit_code.h"

void *
memory_need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "psd_run: no memory; close other programs, or raise ulimit -v\n");
        _exit(PSI_EXIT_CANNOT_START);
    }
    return memory;
}

char *
memory_format(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    int bytes;

    va_start(args, format);
    bytes = vasprintf(&text, format, args);
    va_end(args);
    return memory_need(bytes < 0 ? NULL : text);
}
