/*
 * identity.c - the names that members prove to each other before the first frame.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rpc/identity.h"

#include <stdio.h>
#include <string.h>

void
psi_identity_server(char name_p[PSI_IDENTITY_BYTES], uint32_t server, uint32_t lane)
{
    snprintf(name_p, PSI_IDENTITY_BYTES, "server:%u.%u", server, lane);
}

void
psi_identity_worker(char name_p[PSI_IDENTITY_BYTES], uint32_t rank)
{
    if (rank == PSI_RANK_AUTO) {
        snprintf(name_p, PSI_IDENTITY_BYTES, "worker:*");
    } else {
        snprintf(name_p, PSI_IDENTITY_BYTES, "worker:%u", rank);
    }
}

void
psi_identity_pair(char pair_p[2 * PSI_IDENTITY_BYTES], const char *from, const char *to)
{
    snprintf(pair_p, 2 * PSI_IDENTITY_BYTES, "%s %s", from, to);
}

bool
psi_identity_allows(const char *identity, const struct psi_hello *hello)
{
    char name[PSI_IDENTITY_BYTES] = "observer";

    if (identity[0] == '\0') {
        return true;
    }
    if (hello->role == PSI_ROLE_SERVER) {
        psi_identity_server(name, hello->rank, hello->lane);
    } else if (hello->role == PSI_ROLE_WORKER) {
        psi_identity_worker(name, hello->rank);
    }
    return strcmp(identity, name) == 0;
}
