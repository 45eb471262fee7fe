/*
 * address.h - "tcp://host:port", "tcp://[v6]:port" and "inproc://name", taken apart and put
 * together.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_ADDRESS_H
#define PSI_TRANSPORT_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

enum { PSI_HOST_BYTES = 256 };

/*
 * The transports there are: the word before "://", and what follows it. A transport is a file that
 * defines psi_transport_WORD (transport/transports.h), and one line here.
 */
#define PSI_TRANSPORT_MAP(X)                                                                       \
    X(TCP, tcp, HOST_AND_PORT)                                                                     \
    X(INPROC, inproc, NAME)

enum psi_scheme_id {
#define PSI_SCHEME_ENUM(id, word, rest) PSI_SCHEME_##id,
    PSI_TRANSPORT_MAP(PSI_SCHEME_ENUM)
#undef PSI_SCHEME_ENUM
        PSI_SCHEME_COUNT
};

struct psi_address {
    enum psi_scheme_id scheme;
    char host[PSI_HOST_BYTES]; /* without brackets; or the name */
    uint16_t port;             /* 0: any (listening only); with a name: 0 */
};

/* PSD_ERR_INVALID says what is wrong with the text; *address_p is then unchanged. Nothing is looked
 * up: a host may be a name. */
psd_status psi_address_parse(const char *text, struct psi_address *address_p,
                             struct psd_error *err);

/* The other way. PSD_ERR_TOO_BIG: a host name too long for text_p. */
psd_status psi_address_format(const struct psi_address *address, char text_p[PSI_ADDRESS_BYTES],
                              struct psd_error *err);

/* The same with the number of the host instead of its name. Looks it up, which may block. Only for
 * tcp. PSD_ERR_PEER_LOST: nobody knows the name. */
psd_status psi_address_resolve(const struct psi_address *address, struct psi_address *numeric_p,
                               struct psd_error *err);

/* Whether only this host can reach it: a name, 127.0.0.0/8, ::1 and "localhost". */
bool psi_address_is_loopback(const struct psi_address *address);

#endif
