/*
 * door.h - who comes from where: strangers and members by address, and who failed before.
 *
 * An address that fails to authenticate again and again finds the door shut for a while: a second,
 * then twice as long each time. Where a member has come from, it stays open: nobody on a member's
 * machine can shut its other members out.
 *
 * The kernel's loopback is not counted here at all: everybody on this machine shares it.
 */
#ifndef PSI_TRANSPORT_DOOR_H
#define PSI_TRANSPORT_DOOR_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PSI_DOOR_PLACES = 512,
    PSI_DOOR_FAILURES_FREE = 3, /* a person may mistype */
    PSI_DOOR_SHUT_MAX_S = 32,
    PSI_DOOR_MEMORY_S = 60, /* failures are forgotten so long after the door opened again */
};

/* Thread: owned by the loop. */
struct psi_door_place {
    uint8_t address[16]; /* IPv6: only the first 8 bytes, all that an attacker cannot choose */
    bool used;
    uint32_t strangers;
    uint32_t members;
    uint32_t failures;
    uint64_t shut_until_ns;
};

/* A zeroed one has seen nobody. Thread: owned by the loop. */
struct psi_door {
    struct psi_door_place places[PSI_DOOR_PLACES];
};

/* The place of the host in "tcp://HOST:PORT". NULL: all are taken by others who are still here; the
 * limit on all strangers together holds nevertheless. Somebody else may get the place when nobody
 * from there is in it. Every call below takes NULL, too. */
struct psi_door_place *psi_door_find(struct psi_door *door, const char *peer, uint64_t now_ns);

bool psi_door_is_shut(const struct psi_door_place *place, uint64_t now_ns);

void psi_door_enter(struct psi_door_place *place);   /* one stranger more */
void psi_door_leave(struct psi_door_place *place);   /* one less: gone, or a member now */
void psi_door_welcome(struct psi_door_place *place); /* one member more */
void psi_door_farewell(struct psi_door_place *place);
void psi_door_failed(struct psi_door_place *place, uint64_t now_ns);

#endif
