/*
 * identity.h - the names that members prove to each other before the first frame.
 *
 * Who accepts is "master", "server:0.1" (lane 1 of server 0), "standby:0.1" (for the lane that it
 * is a copy of), or a worker, for others of its host,
 * by the last of the names below. Who connects is "worker:3", "worker:*" (asks for any rank),
 * "server:0.1", "standby:0.1" (a lane of server 0 without a place), "observer" or "reader" (which is proved with another secret: secure/tls.h); and once the master has told a member the number of the job and which
 * life of its rank it is, "worker:3@2.0123456789abcdef" or "server:0.1@1.0123456789abcdef". What a
 * HELLO claims must agree with what was proved.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_RPC_IDENTITY_H
#define PSI_RPC_IDENTITY_H

#include "transport/transport.h"
#include "wire/message.h"

#define PSI_IDENTITY_MASTER "master"

void psi_identity_server(char name_p[PSI_IDENTITY_BYTES], uint32_t server, uint32_t lane);
void psi_identity_standby(char name_p[PSI_IDENTITY_BYTES], uint32_t server, uint32_t lane);

/* Who sends this HELLO. */
void psi_identity_of(const struct psi_hello *hello, char name_p[PSI_IDENTITY_BYTES]);

/* The two names of a connection: what psi_env_ops.connect takes. */
void psi_identity_pair(char pair_p[2 * PSI_IDENTITY_BYTES], const char *from, const char *to);

/* May a peer that proved `identity` say this HELLO? "" (no authentication) may say anything. */
bool psi_identity_allows(const char *identity, const struct psi_hello *hello);

#endif
