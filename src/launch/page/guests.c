/*
 * guests.c - who is connected to the page, and who has shown the secret.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/guests.h"

#include <sys/socket.h>

#include "launch/page/mhd.h"

static void
come(struct guests *guests, struct MHD_Connection *connection, void **own)
{
    const union MHD_ConnectionInfo *info =
        mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    *own = NULL;
    for (unsigned i = 0; info != NULL && *own == NULL && i < PAGE_CLIENTS_MAX; i++) {
        struct guest *guest = &guests->guest[i];

        if (guest->number == 0) {
            *guest = (struct guest){.fd = info->connect_fd, .number = ++guests->number};
            *own = guest;
        }
    }
}

void
guests_notice(void *context, struct MHD_Connection *connection, void **own,
              enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        come(context, connection, own);
    } else if (*own != NULL) {
        *(struct guest *)*own = (struct guest){0};
        *own = NULL;
    }
}

void
guests_know(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        mhd.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    if (info != NULL && info->socket_context != NULL) {
        ((struct guest *)info->socket_context)->is_known = true;
    }
}

bool
guests_make_room(struct guests *guests)
{
    struct guest *first = NULL;

    for (unsigned i = 0; i < PAGE_CLIENTS_MAX; i++) {
        struct guest *guest = &guests->guest[i];

        if (guest->number != 0 && !guest->is_known &&
            (first == NULL || guest->number < first->number)) {
            first = guest;
        }
    }
    if (first != NULL) {
        shutdown(first->fd, SHUT_RDWR);
        first->is_known = true; /* it is on its way out: the next one is another's turn */
    }
    return first != NULL;
}
