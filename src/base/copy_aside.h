/*
 * copy_aside.h - copying what nobody reads soon.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_COPY_ASIDE_H
#define PSI_BASE_COPY_ASIDE_H

#include <stddef.h>

/* As memcpy(). The copy goes past the caches: nothing is read to be overwritten, and nothing else is pushed out. */
void psi_copy_aside(void *to, const void *from, size_t bytes);

#endif
