/*
 * std_fds.h - descriptors 0 to 2 of a program. Programs only: those of a worker's process are not
 * ours.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_STD_FDS_H
#define PSI_BASE_STD_FDS_H

/*
 * Puts /dev/null where a shell closed one of the three (`psd_run ... >&-`). Otherwise the next file
 * or socket that is opened gets its number, and whatever is printed goes there. To be called first
 * in main(). Returns 0, or an errno: then the program must not go on.
 */
int psi_std_fds_fill(void);

#endif
