/*
 * scan.h - a strict reader of the JSON in a checkpoint's files: objects, lists, strings and whole
 * numbers, taken one by one. Pure.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_SCAN_H
#define PSI_CHECKPOINT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <psd/status.h>

/*
 * A place in a JSON text. The first problem is written to err and sticks: every call after it
 * returns false and changes nothing, so that a reader may check once, at its end.
 * Thread: owned by its caller.
 */
struct psi_scan {
    const char *file; /* named in errors; borrowed */
    const uint8_t *begin;
    const uint8_t *at;
    const uint8_t *end;
    struct psd_error *err;
    psd_status status; /* PSD_OK, PSD_ERR_CORRUPT or PSD_ERR_NO_MEMORY */
};

void psi_scan_init(struct psi_scan *scan, const char *file, const void *text, size_t bytes,
                   struct psd_error *err);

/* Records "FILE: byte N: PROBLEM" unless there is one already; returns false. */
bool psi_scan_fail(struct psi_scan *scan, const char *problem);

/* The same for a reader that has no memory for what it read. */
bool psi_scan_no_memory(struct psi_scan *scan);

bool psi_scan_take(struct psi_scan *scan, char expected); /* one of []{}:, */

/* Inside [] or {}: is there another item? Takes the comma or the closing character. */
bool psi_scan_more(struct psi_scan *scan, char close, bool *first_p);

/* UTF-8 without NUL, decoded, ended by one. text NULL: of any length, only checked. */
bool psi_scan_string(struct psi_scan *scan, char *text, size_t size);

bool psi_scan_number(struct psi_scan *scan, uint64_t *value_p); /* whole, 0..2^64-1 */
bool psi_scan_end(struct psi_scan *scan);                       /* only white space is left */

/* Writes text as a string that psi_scan_string() reads back. */
void psi_scan_quote(FILE *out, const char *text);

#endif
