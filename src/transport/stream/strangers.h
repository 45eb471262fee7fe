/*
 * strangers.h - accepted connections of which nothing is known yet: let in, and made to give way.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_STRANGERS_H
#define PSI_TRANSPORT_STREAM_STRANGERS_H

#include <stdbool.h>

struct psi_listener;
struct psi_loop;

/* Makes a stranger out of a descriptor that the listener accepted; takes fd. */
void psi_stream_accept(struct psi_listener *listener, int fd, const char *peer);

/* Somebody is to be let in for whom there is no descriptor: closes the oldest stranger that has
 * shown nothing yet. false: there is none. */
bool psi_stream_make_way(struct psi_loop *loop);

/* Whether a stranger more can be inside: there is a place, or somebody who would give way. */
bool psi_stream_has_room(struct psi_loop *loop);

/* The listener goes: closes those which it accepted and which have not authenticated yet. */
void psi_stream_forget(const struct psi_listener *listener);

#endif
