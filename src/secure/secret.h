/*
 * secret.h - the job's secret: 32 random bytes that every member has and nobody else.
 *
 * It travels by inherited descriptor (a sealed memfd, PSD_SECRET_FD) or by file (PSD_SECRET_FILE or
 * --secret_file; mode 0600, owned by us): never on a command line, in the environment or in a log.
 * In memory it has a page of its own that is locked, left out of core files and wiped at the end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_SECURE_SECRET_H
#define PSI_SECURE_SECRET_H

#include <stdint.h>

#include <psd/status.h>

enum { PSI_SECRET_BYTES = 32, PSI_KEY_BYTES = 32 };

/* Thread: immutable. */
struct psi_secret;

/* Fresh from the kernel. */
psd_status psi_secret_create(struct psi_secret **secret_p, struct psd_error *err);
void psi_secret_destroy(struct psi_secret *secret);

/* From an inherited descriptor, which stays open: a second context may want it, or a child.
 * Anything but a sealed memory file of 32 bytes is refused. */
psd_status psi_secret_from_fd(int fd, struct psi_secret **secret_p, struct psd_error *err);

/* From a file of 64 hexadecimal digits. Refused when group or others may read it, when it is not
 * ours, not a plain file, or a link. */
psd_status psi_secret_from_file(const char *path, struct psi_secret **secret_p,
                                struct psd_error *err);

/* Writes such a file: created new, mode 0600. */
psd_status psi_secret_to_file(const struct psi_secret *secret, const char *path,
                              struct psd_error *err);

/* A sealed descriptor to hand to a child (no close-on-exec); -1 with err on failure. */
int psi_secret_to_fd(const struct psi_secret *secret, struct psd_error *err);

/* What readers of the job have in its stead: a secret of their own, from which nobody can compute the
 * job's. It proves the name "reader" and no other (tls.h). */
psd_status psi_secret_for_readers(const struct psi_secret *secret, struct psi_secret **readers_p,
                                  struct psd_error *err);

/* A key for one purpose: HKDF-SHA256 of the secret with `label`. */
psd_status psi_secret_derive(const struct psi_secret *secret, const char *label,
                             uint8_t key_p[PSI_KEY_BYTES], struct psd_error *err);

#endif
