/*
 * numberlist.h - "3(x2),2,1" and "12000-12003,12010": many numbers written as few, as Slurm does.
 *
 *     counts := count ("," count)*        count := number | number "(x" number ")"
 *     ports  := range ("," range)*        range := number | number "-" number
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLUSTER_NUMBERLIST_H
#define PSI_CLUSTER_NUMBERLIST_H

#include <stddef.h>
#include <stdint.h>

enum { PSI_NUMBERLIST_MAX = 65536 };

struct psi_numberlist {
    uint32_t *numbers; /* owned; count of them */
    size_t count;
};

/* Each returns NULL, or what is wrong ("is no number"), with its column, counted from 1; then
 * nothing is owned. Counts are 1 to 65536, ports 1 to 65535. */
const char *psi_numberlist_counts(const char *text, struct psi_numberlist *list_p,
                                  size_t *column_p);
const char *psi_numberlist_ports(const char *text, struct psi_numberlist *list_p, size_t *column_p);
void psi_numberlist_free(struct psi_numberlist *list);

#endif
