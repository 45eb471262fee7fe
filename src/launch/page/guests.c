/*
 * guests.c - who is connected to the page, and who has shown the secret.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/guests.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <netinet/in.h>

#include "base/monotonic.h"
#include "launch/page/mhd.h"

/* ------------------------------------------------------------------------------- where from --- */

static struct psi_admission_origin *
find_origin(struct guests *guests, const struct sockaddr *address)
{
    const bool is_6 = address->sa_family == AF_INET6;
    const void *bytes = is_6 ? (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr
                             : (const void *)&((const struct sockaddr_in *)address)->sin_addr;
    char host[INET6_ADDRSTRLEN];
    char peer[INET6_ADDRSTRLEN + 16];

    if (inet_ntop(address->sa_family, bytes, host, sizeof(host)) == NULL) {
        return NULL;
    }
    snprintf(peer, sizeof(peer), is_6 ? "tcp://[%s]:1" : "tcp://%s:1", host);
    return psi_admission_find(&guests->admission, peer);
}

static bool
is_friend(const struct guests *guests, const struct psi_admission_origin *origin)
{
    for (uint64_t i = 0; i < guests->friends && i < GUESTS_FRIENDS; i++) {
        if (memcmp(guests->friend[i], origin -> address, sizeof(origin->address)) == 0) {
            return true;
        }
    }
    return false;
}

bool
guests_may_come(struct guests *guests)
{
    return psi_bucket_take(&guests->come, GUESTS_COME_BURST, GUESTS_COME_PER_S, psi_monotonic_ns());
}

bool
guests_may_try(struct guests *guests, const struct sockaddr *address)
{
    struct psi_admission_origin *origin = find_origin(guests, address);
    const uint64_t now_ns = psi_monotonic_ns();

    if (origin != NULL && !psi_bucket_take(&origin->tries, GUESTS_TRIES_FROM_ONE_BURST,
                                           GUESTS_TRIES_FROM_ONE_PER_S, now_ns)) {
        return false;
    }
    return (origin != NULL && is_friend(guests, origin)) ||
           psi_bucket_take(&guests->admission.tries, GUESTS_TRIES_BURST, GUESTS_TRIES_PER_S,
                           now_ns);
}

static struct psi_admission_origin *
origin_of(struct guests *guests, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);

    return info != NULL && info->client_addr != NULL ? find_origin(guests, info->client_addr)
                                                     : NULL;
}

/* -------------------------------------------------------------------------------- come, go --- */

/* From now on it is no stranger. */
static void
know(struct guest *guest)
{
    psi_admission_leave(guest->origin);
    guest->origin = NULL;
    guest->is_known = true;
}

static void
come(struct guests *guests, struct MHD_Connection *connection, void **own)
{
    const union MHD_ConnectionInfo *info =
        mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    *own = NULL;
    for (unsigned i = 0; info != NULL && *own == NULL && i < PAGE_CLIENTS_MAX; i++) {
        struct guest *guest = &guests->guest[i];

        if (guest->number == 0) {
            *guest = (struct guest){.fd = info->connect_fd,
                                    .number = ++guests->number,
                                    .came_ms = psi_monotonic_ms(),
                                    .origin = origin_of(guests, connection)};
            psi_admission_enter(guest->origin);
            *own = guest;
        }
    }
}

static void
go(struct guest *guest)
{
    psi_admission_leave(guest->origin);
    *guest = (struct guest){0};
}

void
guests_notice(void *context, struct MHD_Connection *connection, void **own,
              enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        come(context, connection, own);
    } else if (*own != NULL) {
        go(*own);
        *own = NULL;
    }
}

/* Others from there need not wait for strangers. */
static void
befriend(struct guests *guests, const struct psi_admission_origin *origin)
{
    if (origin != NULL && !is_friend(guests, origin)) {
        memcpy(guests->friend[guests->friends++ % GUESTS_FRIENDS], origin -> address,
               sizeof(origin->address));
    }
}

void
guests_know(struct guests *guests, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        mhd.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    if (info != NULL && info->socket_context != NULL) {
        befriend(guests, ((struct guest *)info->socket_context)->origin);
        know(info->socket_context);
    }
}

/* -------------------------------------------------------------------------------- strangers --- */

static bool
is_stranger(const struct guest *guest)
{
    return guest->number != 0 && !guest->is_known;
}

/* Nobody waits for it to go: the next one is another's turn. */
static void
hang_up(struct guest *guest)
{
    shutdown(guest->fd, SHUT_RDWR);
    know(guest);
}

/* How many strangers are here from where this one is. */
static uint32_t
companions(const struct guest *guest)
{
    return guest->origin != NULL ? guest->origin->strangers : UINT32_MAX;
}

static bool
goes_before(const struct guest *guest, const struct guest *other)
{
    if (companions(guest) != companions(other)) {
        return companions(guest) > companions(other);
    }
    return guest->number < other->number;
}

bool
guests_make_room(struct guests *guests)
{
    struct guest *first = NULL;

    for (unsigned i = 0; i < PAGE_CLIENTS_MAX; i++) {
        struct guest *guest = &guests->guest[i];

        if (is_stranger(guest) && (first == NULL || goes_before(guest, first))) {
            first = guest;
        }
    }
    if (first != NULL) {
        hang_up(first);
    }
    return first != NULL;
}

void
guests_hurry(struct guests *guests, uint64_t now_ms)
{
    for (unsigned i = 0; i < PAGE_CLIENTS_MAX; i++) {
        struct guest *guest = &guests->guest[i];

        if (is_stranger(guest) && now_ms >= guest->came_ms + GUESTS_STRANGER_MS) {
            hang_up(guest);
        }
    }
}
