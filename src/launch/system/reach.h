/*
 * reach.h - whether machines reach each other, and under which addresses: tried before anything
 * starts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_REACH_H
#define LAUNCH_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/text/words.h"

/* Listens on any port of an address. Returns the descriptor, or -1 with err. */
int reach_listen(const char *address, uint16_t *port_p, struct psd_error *err);

/* Connects to "ADDRESS PORT" strings, all at once. Answers "ADDRESS PORT: why not", none if all
 * answered. */
void reach_all(const struct words *targets, uint32_t timeout_ms, struct words *answers);

/* The addresses of this machine, loopback last: "address=INTERFACE ADDRESS" each. */
psd_status reach_addresses(struct words *answers, struct psd_error *err);

/* A connection to an address, or -1 with errno. */
int reach_connect(const char *address, uint16_t port, uint32_t timeout_ms);

/* An address that a name means here, of IPv4 if there is one; "" if it means none. */
void reach_resolve(const char *name, char text_p[64]);
bool reach_is_loopback(const char *address);

/* The address this machine would use to talk to another; "" if there is no way. No packet is sent.
 */
void reach_source(const char *address, char text_p[64]);

#endif
