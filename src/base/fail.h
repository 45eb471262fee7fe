/*
 * fail.h - making an error, and stopping on a bug.
 *
 * The function that first knows which error it is writes the text, once; everyone above passes it
 * on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_FAIL_H
#define PSI_BASE_FAIL_H

#include <stdarg.h>

#include <psd/status.h>

/* Writes status and text into err (which may be NULL) and returns status. */
psd_status psi_fail(struct psd_error *err, psd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same with errno's words appended: "open FILE: No such file or directory". */
psd_status psi_fail_errno(struct psd_error *err, psd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Prints the broken assumption to stderr and aborts. */
_Noreturn void psi_assert_failed(const char *condition, const char *file, int line);

/* For what we produced ourselves. Stays on in release builds. */
#define psi_assert(condition)                                                                      \
    ((condition) ? (void)0 : psi_assert_failed(#condition, __FILE__, __LINE__))

/* Large memory on the stack of a hot path, written before it is read: not worth the zeros that the
 * compiler would put there as a precaution. */
#if defined(__has_attribute)
#if __has_attribute(uninitialized)
#define PSI_UNINITIALIZED __attribute__((uninitialized))
#endif
#endif
#ifndef PSI_UNINITIALIZED
#define PSI_UNINITIALIZED
#endif

#endif
