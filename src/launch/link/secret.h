/*
 * secret.h - the job's secret, on its way to the job's processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SECRET_H
#define LAUNCH_SECRET_H

#include <psd/status.h>

#include "launch/link/link.h"
#include "secure/secret.h"

/*
 * Draws a secret, or reads it from `file` (NULL: PSD_SECRET_FILE, and a fresh one without that). It
 * then waits in a sealed descriptor that children inherit; PSD_SECRET_FD in our environment, and so
 * in theirs, tells its number. Returns that number, -1 on failure.
 */
int launch_secret_offer(const char *file, struct psd_error *err);

/* The same for a secret that came another way. */
int launch_secret_adopt(const uint8_t secret[PSI_SECRET_BYTES], struct psd_error *err);

/* Sends the secret behind such a descriptor to an agent. */
psd_status launch_secret_send(int fd, struct link *link, struct psd_error *err);

/*
 * The same over a line that others may read, as srun's: as a MUNGE credential (munge.h); without
 * MUNGE as the name of a file that the agent has, too (NULL: none). PSD_ERR_IO: there is neither.
 */
psd_status launch_secret_send_sealed(int fd, const char *file, struct link *link,
                                     struct psd_error *err);

/* In the agent: makes a descriptor of it that children inherit; -1 with err. */
int launch_secret_take(const struct link_message *message, struct psd_error *err);

/* psd_run secret FILE: a new secret file, for jobs that are started by hand. */
psd_status launch_secret_make(const char *file, struct psd_error *err);

/* A new file with the key of those who read the job: made from the secret behind such a descriptor, or
 * from that of a secret file. */
psd_status launch_secret_reader_key(int fd, const char *file, struct psd_error *err);
psd_status launch_secret_make_reader_key(const char *secret_file, const char *file,
                                         struct psd_error *err);

#endif
