/*
 * door.c - who comes from where: strangers and members by address, and who failed before.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/door.h"

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

static bool
is_occupied(const struct psi_door_place *place)
{
    return place->strangers > 0 || place->members > 0;
}

static bool
is_forgotten(const struct psi_door_place *place, uint64_t now_ns)
{
    return now_ns >= place->shut_until_ns + PSI_DOOR_MEMORY_S * SECOND_NS;
}

struct psi_door_place *
psi_door_find(struct psi_door *door, const char *peer, uint64_t now_ns)
{
    struct psi_door_place *spare = NULL;
    uint8_t address[16];

    if (!read_address(peer, address)) {
        return NULL;
    }
    for (size_t i = 0; i < PSI_DOOR_PLACES; i++) {
        struct psi_door_place *place = &door->places[i];

        if (place->used && memcmp(place->address, address, sizeof(address)) == 0) {
            if (is_forgotten(place, now_ns)) {
                place->failures = 0;
            }
            return place;
        }
        if (!is_occupied(place) && (spare == NULL || place->shut_until_ns < spare->shut_until_ns)) {
            spare = place;
        }
    }
    if (spare != NULL) {
        *spare = (struct psi_door_place){.used = true};
        memcpy(spare->address, address, sizeof(address));
    }
    return spare;
}

bool
psi_door_is_shut(const struct psi_door_place *place, uint64_t now_ns)
{
    return place != NULL && place->members == 0 && now_ns < place->shut_until_ns;
}

void
psi_door_enter(struct psi_door_place *place)
{
    if (place != NULL) {
        place->strangers++;
    }
}

void
psi_door_leave(struct psi_door_place *place)
{
    if (place != NULL) {
        place->strangers--;
    }
}

void
psi_door_welcome(struct psi_door_place *place)
{
    if (place != NULL) {
        place->members++;
        place->failures = 0;
    }
}

void
psi_door_farewell(struct psi_door_place *place)
{
    if (place != NULL) {
        place->members--;
    }
}

void
psi_door_failed(struct psi_door_place *place, uint64_t now_ns)
{
    uint32_t doublings;
    uint64_t shut_s = PSI_DOOR_SHUT_MAX_S;

    if (place == NULL) {
        return;
    }
    place->failures++;
    if (place->failures <= PSI_DOOR_FAILURES_FREE) {
        place->shut_until_ns = now_ns; /* open, but remembered */
        return;
    }
    doublings = place->failures - PSI_DOOR_FAILURES_FREE - 1;
    if (doublings < 5) {
        shut_s = UINT64_C(1) << doublings;
    }
    place->shut_until_ns = now_ns + shut_s * SECOND_NS;
}
