/*
 * sockets.h - how a kind of stream socket comes into being. All the rest (frames, queues, deadlines,
 * authentication) is the same for every kind: stream.c.
 *
 * Every hook returns at once, except that a host name (not a numeric address) to listen on is
 * looked up first. A name to connect to is looked up by lookup.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_SOCKETS_H
#define PSI_TRANSPORT_STREAM_SOCKETS_H

#include "transport/address.h"

struct psi_sockets {
    /* (optional) Is this a name that has to be looked up before `connect`? */
    bool (*is_name)(const struct psi_address *address);

    /* A non-blocking descriptor that becomes writable when `connected` can tell. PSD_ERR_PEER_LOST:
     * nobody is there, already known. Any other error: our own fault or lack. */
    psd_status (*connect)(const struct psi_address *address, int *fd_p, struct psd_error *err);

    /* How the attempt ended; peer is for the message. */
    psd_status (*connected)(int fd, const char *peer, struct psd_error *err);

    /* A descriptor that is readable when somebody waits. PSD_ERR_BUSY: the address is taken. */
    psd_status (*listen)(const struct psi_address *address, int *fd_p,
                         char bound_p[PSI_ADDRESS_BYTES], struct psd_error *err);

    /* The next one who waits, non-blocking; or -1 and errno. */
    int (*accept)(int listen_fd, char peer_p[PSI_ADDRESS_BYTES]);

    void (*unlisten)(int listen_fd);

    /* (optional) The descriptor becomes readable only when so many bytes wait there, or when it
     * ends; what a listening one accepts inherits it. */
    void (*wake_at)(int fd, size_t bytes);

    /* (optional) Bytes may stay unacknowledged for so long before the kernel gives a connection up;
     * what a listening one accepts inherits it. */
    void (*give_up_after)(int fd, uint32_t ms);

    /* Are both ends on this machine, out of reach of any other? */
    bool (*loopback)(int fd);

    /* See psi_auth_args. */
    void (*ends)(int fd, bool connecting, char ends_p[PSI_ENDS_BYTES]);
};

/* ms 0: as the kind of socket has it. */
static inline void
psi_sockets_give_up_after(const struct psi_sockets *sockets, int fd, uint32_t ms)
{
    if (ms > 0 && sockets->give_up_after != NULL) {
        sockets->give_up_after(fd, ms);
    }
}

extern const struct psi_sockets psi_sockets_tcp;
extern const struct psi_sockets psi_sockets_inproc;

#endif
