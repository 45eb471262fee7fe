/*
 * ports.h - ports for the workers' own use: one each, free on their machine, theirs alone until
 * they run.
 *
 * Two jobs on a machine never get the same one, and nobody who asks the system for any port gets
 * one of these, where its range for that begins above them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PORTS_H
#define LAUNCH_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/socket.h>

#include <psd/status.h>

enum { PORTS_FIRST = 20000, PORTS_LAST = 32767 };

/* Thread: owned by the agent. */
struct ports {
    struct ports_one *list; /* owned */
    size_t count;
    struct sockaddr_storage address;
    socklen_t address_bytes;
};

struct ports_one {
    uint16_t number;
    int claim;  /* keeps other jobs off it as long as the agent lives */
    int socket; /* bound to it until its worker starts; -1: released */
};

/* Reserves `count` ports of an address; `wish` is the first of them if it is free (0: any). On
 * failure nothing is held. */
psd_status ports_reserve(struct ports *ports, const char *address, size_t count, uint16_t wish,
                         struct psd_error *err);

/* Lets the worker bind its port; a number that is none of them means nothing. */
void ports_release(struct ports *ports, uint16_t number);

/* Whether somebody listens on a port of ours that was released. */
bool ports_is_taken(const struct ports *ports, uint16_t number);
void ports_fini(struct ports *ports);

#endif
