/*
 * listener.h - accepting connections.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_LISTENER_H
#define PSI_TRANSPORT_STREAM_LISTENER_H

#include "transport/stream/listener_state.h"

psd_status psi_listener_create(struct psi_loop *loop, const struct psi_sockets *sockets,
                               const struct psi_address *address, struct psi_listener **listener_p,
                               char bound_p[PSI_ADDRESS_BYTES], struct psd_error *err);
void psi_listener_destroy(struct psi_listener *listener);

#endif
