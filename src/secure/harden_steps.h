/*
 * harden_steps.h - the steps of hardening, and the line that says which of them were taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_SECURE_HARDEN_STEPS_H
#define PSI_SECURE_HARDEN_STEPS_H

#include <stdbool.h>
#include <stddef.h>

struct psi_harden_args;

/* The line that says what was done. Thread: owned by the caller of psi_harden(). */
struct psi_harden_report {
    char text[320];
    size_t used;
    bool complete;
};

/* Adds a step; done is false where this kernel or this build lacks it. */
void psi_harden_say(struct psi_harden_report *report, bool done, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Landlock: which files and ports are left. */
void psi_harden_files(const struct psi_harden_args *args, struct psi_harden_report *report);

/* Seccomp: which system calls are left. Last, since it forbids the calls that other steps make. */
void psi_harden_calls(const struct psi_harden_args *args, struct psi_harden_report *report);

#endif
