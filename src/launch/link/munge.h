/*
 * munge.h - the job's secret among machines that share a MUNGE key, as those of a Slurm cluster do.
 *
 * A credential is a line of text that anybody may see: only processes of our own user, on machines
 * with the same MUNGE key, get at the secret in it, for as long as munged allows (5 minutes by
 * default). libmunge is loaded when it is needed; nothing links against it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_MUNGE_H
#define LAUNCH_MUNGE_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

#include "secure/secret.h"

/* Whether libmunge is on this machine. A munged that answers is another matter. */
bool munge_is_there(void);

/*
 * Makes a credential of a secret. socket: of munged; NULL: the usual one. The credential is owned
 * by the caller. PSD_ERR_IO: no library, no munged, or it refuses; err says which.
 */
psd_status munge_seal(const char *socket, const uint8_t secret[PSI_SECRET_BYTES],
                      char **credential_p, struct psd_error *err);

/*
 * Takes the secret out of a credential. Any number of processes of a machine may do so.
 * PSD_ERR_REFUSED: it was made by another user or for another one, is too old, or is none at all.
 * PSD_ERR_IO: as above.
 */
psd_status munge_unseal(const char *socket, const char *credential,
                        uint8_t secret_p[PSI_SECRET_BYTES], struct psd_error *err);

#endif
