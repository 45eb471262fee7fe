/*
 * guests.h - who is connected to the page, and who has shown the secret.
 *
 * Connections are few, and anybody may open them. They are let in at a pace; who comes faster waits in
 * the kernel's queue, in the order of coming, and who has hung up meanwhile takes no turn. Whoever has shown the secret stays. Who has not is a
 * stranger, and
 *   - makes room when all places are taken: first those from the address that has the most of them, of
 *     these the one that is here the longest. So nobody keeps the owner out by saying nothing, whoever
 *     opens thousands from elsewhere pushes out his own, and on loopback, where all have one address,
 *     the pace leaves everybody a fifth of a second to ask;
 *   - has GUESTS_STRANGER_MS for the secret, however slowly he says something;
 *   - begins handshakes of TLS, which cost milliseconds with a key of RSA, at a pace of their own.
 *     Beyond it he is hung up on, which costs none. An address from which somebody has shown the secret
 *     does not share the pace of all others.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_GUESTS_H
#define LAUNCH_PAGE_GUESTS_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

#include <sys/socket.h>

#include "transport/loop/admission.h"

enum {
    PAGE_CLIENTS_MAX = 256,
    GUESTS_STRANGER_MS = 10000,
    GUESTS_COME_BURST = 32, /* at once, and then so many a second */
    GUESTS_COME_PER_S = 1000,
    GUESTS_TRIES_BURST = 32, /* likewise handshakes of all, ... */
    GUESTS_TRIES_PER_S = 50,
    GUESTS_TRIES_FROM_ONE_BURST = 16, /* ... and of one address */
    GUESTS_TRIES_FROM_ONE_PER_S = 10,
    GUESTS_FRIENDS = 16,
};

struct guest {
    int fd;          /* borrowed */
    uint64_t number; /* in the order in which they came; 0: a free place */
    uint64_t came_ms;
    struct psi_admission_origin *origin; /* of a stranger; NULL: it is not counted */
    bool is_known;                       /* it has shown the secret, or was hung up on */
};

/* Thread: owned by the main thread of psd_run. */
struct guests {
    struct guest guest[PAGE_CLIENTS_MAX];
    uint64_t number; /* of the last that came */
    struct psi_admission admission;
    struct psi_bucket come;
    uint8_t friend[GUESTS_FRIENDS][16]; /* addresses from which the secret was shown, ... */
    uint64_t friends;                   /* ... ever: the last ones are kept */
};

/* May one more be let in now? Then it counts. */
bool guests_may_come(struct guests *guests);

/* May this one begin a handshake now? Then it counts. */
bool guests_may_try(struct guests *guests, const struct sockaddr *address);

/* For MHD_OPTION_NOTIFY_CONNECTION; context: the guests. */
void guests_notice(void *context, struct MHD_Connection *connection, void **own,
                   enum MHD_ConnectionNotificationCode what);

/* It has shown the secret. */
void guests_know(struct guests *guests, struct MHD_Connection *connection);

/* Hangs up on a stranger: the daemon notices when it runs. False: all are known. */
bool guests_make_room(struct guests *guests);

/* Hangs up on strangers whose time is over. */
void guests_hurry(struct guests *guests, uint64_t now_ms);

#endif
