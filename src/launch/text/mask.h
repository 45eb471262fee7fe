/*
 * mask.h - a command as text for others' eyes: logs, the console, psd_run show.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_MASK_H
#define LAUNCH_MASK_H

#include <stddef.h>

#include "launch/text/words.h"

/* The words, with the values of what looks like a password, token, secret or key masked. */
void mask_words(const struct words *words, char *text_p, size_t size);

#endif
