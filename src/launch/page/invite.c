/*
 * invite.c - how people are told where the page is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/invite.h"

#include <stdio.h>
#include <string.h>

/* The third word of SSH_CONNECTION: the address by which the user's machine reached this one. */
static void
reached_at(const char *connection, char host_p[64])
{
    if (sscanf(connection, "%*63s %*7s %63s", host_p) != 1) {
        host_p[0] = '\0';
    }
}

void
invite_tunnel(const struct invite_place *place, uint16_t port, char text_p[INVITE_BYTES])
{
    const char *user = place->user != NULL ? place->user : "";
    const char *at = user[0] != '\0' ? "@" : "";
    char host[64];

    text_p[0] = '\0';
    if (place->slurm_job != NULL) { /* compute nodes are reached through where it was submitted */
        const char *jump = place->submit_host != NULL ? place->submit_host : "";

        snprintf(text_p, INVITE_BYTES, "ssh -N -L %u:localhost:%u %s%.100s%s%.32s%s%.100s", port,
                 port, jump[0] != '\0' ? "-J " : "", jump, jump[0] != '\0' ? " " : "", user, at,
                 place->hostname);
    } else if (place->ssh_connection != NULL) {
        reached_at(place->ssh_connection, host);
        snprintf(text_p, INVITE_BYTES, "ssh -N -L %u:localhost:%u %.32s%s%.100s", port, port, user,
                 at, host[0] != '\0' ? host : place->hostname);
    }
}
