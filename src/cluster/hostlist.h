/*
 * hostlist.h - "n[01-16],gpu7": many host names written as one.
 *
 *     list  := item ("," item)*
 *     item  := (text | "[" range ("," range)* "]")+
 *     range := number | number "-" number
 *
 * Commas in brackets do not separate. Several brackets make all combinations, the left one slowest.
 * Order and repetitions are kept. The digits of a lower bound are a minimum: [08-10] is 08 09 10.
 * Brackets around an IPv6 address are text.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLUSTER_HOSTLIST_H
#define PSI_CLUSTER_HOSTLIST_H

#include <stddef.h>
#include <stdint.h>

enum { PSI_HOSTLIST_NAMES_MAX = 65536, PSI_HOSTLIST_NAME_BYTES = 320 };

struct psi_hostlist {
    char **names; /* owned; count of them */
    size_t count;
};

/* NULL, or what is wrong ("has a range that runs backwards"), with its column, counted from 1; then
 * nothing is owned. */
const char *psi_hostlist_expand(const char *text, struct psi_hostlist *list_p, size_t *column_p);
void psi_hostlist_free(struct psi_hostlist *list);

#endif
