/*
 * hook.h - what makes Python distribute a script that knows nothing of Poseidon.
 *
 * A directory with a sitecustomize.py comes first in PYTHONPATH; Python imports it before the
 * script begins. PSD_AUTO says what it is to do, PSD_NOTE_FD where it tells of it (notes.h).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_HOOK_H
#define LAUNCH_HOOK_H

#include <stdbool.h>

#include <psd/status.h>

#include "launch/text/words.h"

#define HOOK_MISSING                                                                               \
    "the Python package poseidon does not lie beside psd_run here (share/poseidon/python of its "  \
    "prefix, or the wheel it came with); install it, or say --auto off"

/* The hook that belongs to this psd_run: in its tree, prefix or wheel. NULL: not here. Owned by the
 * caller. */
char *hook_find(void);

/* Whether a worker with this environment gets the hook. directory: NULL: there is none. */
bool hook_is_on(const char *directory, const struct words *environment);

/* Puts the hook first, and gives Python one order of sets (PYTHONHASHSEED) on all workers, if it is
 * on; else changes nothing. */
void hook_enter(const char *directory, struct words *environment);

/* PSD_NOTE_FD: the descriptor and, so that nobody mistakes another one of that number for it, the
 * identity of the pipe. */
psd_status hook_name_note(int fd, struct words *environment, struct psd_error *err);

#endif
