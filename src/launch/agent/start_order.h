/*
 * start_order.h - an order to start a process, as LINK_START brings it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_START_ORDER_H
#define LAUNCH_START_ORDER_H

#include "launch/agent/setup.h"
#include "launch/link/link.h"

/* The parts of LINK_START. */
struct start_order {
    struct words strings; /* owned */
    const char *role;
    const char *log;
    const char *ports;
    char **argv;
    struct words environment; /* owned */
    char *path;               /* owned */
};

/* The strings are ROLE, LOG, PORTS, arguments, environment; message->number counts the arguments.
 * *order is zero before, and wants start_order_fini() even if this fails. Returns 0 or an errno. */
int start_order_read(struct start_order *order, const struct setup *setup,
                     const struct link_message *message);
void start_order_fini(struct start_order *order);

#endif
