/*
 * identity.c - the names that members prove to each other before the first frame.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rpc/identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void
psi_identity_server(char name_p[PSI_IDENTITY_BYTES], uint32_t server, uint32_t lane)
{
    snprintf(name_p, PSI_IDENTITY_BYTES, "server:%u.%u", server, lane);
}

void
psi_identity_standby(char name_p[PSI_IDENTITY_BYTES], uint32_t server, uint32_t lane)
{
    snprintf(name_p, PSI_IDENTITY_BYTES, "standby:%u.%u", server, lane);
}

static void
name_worker(char name_p[PSI_IDENTITY_BYTES], uint32_t rank)
{
    if (rank == PSI_RANK_AUTO) {
        snprintf(name_p, PSI_IDENTITY_BYTES, "worker:*");
    } else {
        snprintf(name_p, PSI_IDENTITY_BYTES, "worker:%u", rank);
    }
}

void
psi_identity_of(const struct psi_hello *hello, char name_p[PSI_IDENTITY_BYTES])
{
    size_t bytes;

    if (hello->role == PSI_ROLE_OBSERVER) { /* of no job in particular */
        snprintf(name_p, PSI_IDENTITY_BYTES, "observer");
        return;
    }
    if (hello->role ==
        PSI_ROLE_READER) { /* its job is in its HELLO: nothing that it may do counts */
        snprintf(name_p, PSI_IDENTITY_BYTES, "reader");
        return;
    }
    if (hello->role == PSI_ROLE_STANDBY) {
        psi_identity_standby(name_p, hello->rank, hello->lane);
    } else if (hello->role == PSI_ROLE_SERVER) {
        psi_identity_server(name_p, hello->rank, hello->lane);
    } else {
        name_worker(name_p, hello->rank);
    }
    bytes = strlen(name_p);
    if (hello->job != 0) {
        snprintf(name_p + bytes, PSI_IDENTITY_BYTES - bytes, "@%u.%016" PRIx64, hello->incarnation,
                 hello->job);
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
    char name[PSI_IDENTITY_BYTES];

    if (identity[0] == '\0') {
        return true;
    }
    psi_identity_of(hello, name);
    return strcmp(identity, name) == 0;
}
