/*
 * admission.c - how many strangers come, from where, and how fast.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/loop/admission.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>

#include "transport/address.h"

#define SECOND_NS UINT64_C(1000000000)

enum { NETWORK_BYTES = 8 };

/* IPv4 as the last four bytes, like ::ffff:1.2.3.4. */
static bool
read_address(const char *peer, uint8_t address_p[16])
{
    struct psi_address parts;

    memset(address_p, 0, 16);
    if (psi_address_parse(peer, &parts, NULL) != PSD_OK) {
        return false;
    }
    if (inet_pton(AF_INET, parts.host, address_p + 12) == 1) {
        return true;
    }
    if (inet_pton(AF_INET6, parts.host, address_p) != 1) {
        return false;
    }
    if (!IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)address_p)) {
        memset(address_p + NETWORK_BYTES, 0, 16 - NETWORK_BYTES);
    } else {
        memset(address_p, 0, 12);
    }
    return true;
}

bool
psi_bucket_take(struct psi_bucket *bucket, uint64_t burst, uint64_t per_s, uint64_t now_ns)
{
    const uint64_t each_ns = SECOND_NS / per_s;
    const uint64_t from_ns = bucket->full_ns > now_ns ? bucket->full_ns : now_ns;

    if (from_ns + each_ns > now_ns + burst * each_ns) {
        return false;
    }
    bucket->full_ns = from_ns + each_ns;
    return true;
}

bool
psi_admission_accepts(struct psi_admission *admission, uint64_t now_ns)
{
    return psi_bucket_take(&admission->accepts, PSI_ADMISSION_ACCEPTS_BURST,
                           PSI_ADMISSION_ACCEPTS_PER_S, now_ns);
}

void
psi_admission_return(struct psi_admission *admission)
{
    admission->accepts.full_ns -= SECOND_NS / PSI_ADMISSION_ACCEPTS_PER_S;
}

struct psi_admission_origin *
psi_admission_find(struct psi_admission *admission, const char *peer)
{
    struct psi_admission_origin *spare = NULL;
    uint8_t address[16];

    if (!read_address(peer, address)) {
        return NULL;
    }
    for (size_t i = 0; i < PSI_ADMISSION_ORIGINS; i++) {
        struct psi_admission_origin *origin = &admission->origins[i];

        if (origin->used && memcmp(origin->address, address, sizeof(address)) == 0) {
            return origin;
        }
        if (origin->strangers == 0 &&
            (spare == NULL || origin->tries.full_ns < spare->tries.full_ns)) {
            spare = origin;
        }
    }
    if (spare != NULL) {
        *spare = (struct psi_admission_origin){.used = true};
        memcpy(spare->address, address, sizeof(address));
    }
    return spare;
}

void
psi_admission_enter(struct psi_admission_origin *origin)
{
    if (origin != NULL) {
        origin->strangers++;
    }
}

void
psi_admission_leave(struct psi_admission_origin *origin)
{
    if (origin != NULL) {
        origin->strangers--;
    }
}

bool
psi_admission_tries(struct psi_admission *admission, struct psi_admission_origin *origin,
                    uint64_t now_ns)
{
    if (origin != NULL && !psi_bucket_take(&origin->tries, PSI_ADMISSION_TRIES_FROM_ONE_BURST,
                                           PSI_ADMISSION_TRIES_FROM_ONE_PER_S, now_ns)) {
        return false;
    }
    return psi_bucket_take(&admission->tries, PSI_ADMISSION_TRIES_BURST, PSI_ADMISSION_TRIES_PER_S,
                           now_ns);
}
