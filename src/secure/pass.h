/*
 * pass.h - what tells members from strangers in a few microseconds, before a handshake is begun.
 *
 * A label ends with a pass: a number that is used once, and a code over it and the label that only
 * somebody with the job's secret can make. It lets nobody in: the handshake proves who is there.
 * But when strangers knock faster than handshakes can be tried, those with a pass are tried all the
 * same, so that others' failures keep no member out; and a recorded pass is good for nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_SECURE_PASS_H
#define PSI_SECURE_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "secure/secret.h"

enum {
    PSI_LABEL_BYTES = 256,  /* of a whole label, with its NUL */
    PSI_PASS_DIGITS = 48,   /* the last word of it: number and code, hexadecimal */
    PSI_PASSES_KEPT = 2048, /* numbers of a listener that are remembered */
};

/* Thread: owned by the loop. */
struct psi_passes;

/* secret is not kept. NULL with err on failure. */
psd_status psi_passes_create(const struct psi_secret *secret, struct psi_passes **passes_p,
                             struct psd_error *err);
void psi_passes_destroy(struct psi_passes *passes);

/* Ends the label with a new pass. false: no room for it, or no random number to be had. */
bool psi_pass_write(const struct psi_passes *passes, char label[PSI_LABEL_BYTES]);

/* Does the label end with a right pass? Then *number_p is its number. */
bool psi_pass_check(const struct psi_passes *passes, const char *label, uint64_t *number_p);

/* Remembers the number. false: it was used before. */
bool psi_pass_use(struct psi_passes *passes, uint64_t number);

/* Whether a label with a right pass that was not used before lies somewhere in the first bytes of a
 * stranger, behind its length in two bytes. Changes nothing. */
bool psi_pass_find(const struct psi_passes *passes, const uint8_t *bytes, size_t count);

#endif
