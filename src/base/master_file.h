/*
 * master_file.h - a file that says where the job's master listens, for those who do not find it.
 *
 * A master that has another life on another machine, or at another port, cannot tell those who look for
 * it at its old address. Whoever started it can: there is such a file on every machine of the job, in a
 * directory that nobody else may write to. It is replaced as a whole. That somebody listens where the
 * file says proves nothing: the job's secret does, as everywhere.
 *
 *     2 tcp://10.0.0.3:40001
 *
 * The number is the term of the master, that is, which of its lives this is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_MASTER_FILE_H
#define PSI_BASE_MASTER_FILE_H

#include <stdint.h>

#include <psd/status.h>

enum { PSI_MASTER_FILE_ADDRESS = 72 }; /* bytes of an address, with the final NUL */

/* term 0: nothing is said. */
struct psi_master_told {
    uint32_t term;
    char address[PSI_MASTER_FILE_ADDRESS];
};

/* A file that is not there says nothing. PSD_ERR_REFUSED names the file, and why it is not believed: it is
 * a link or no plain file, not ours, others may read or write it, or it is no such line. */
psd_status psi_master_file_read(const char *path, struct psi_master_told *told_p,
                                struct psd_error *err);

/* Puts another file in its place, for its owner alone. */
psd_status psi_master_file_write(const char *path, const struct psi_master_told *told,
                                 struct psd_error *err);

#endif
