/*
 * guests.h - who is connected to the page, and who has shown the secret.
 *
 * Connections are few, and anybody may open them. Whoever has not shown the secret makes room when
 * they are all taken, the longest here first: so nobody keeps the owner out by saying nothing.
 */
#ifndef LAUNCH_PAGE_GUESTS_H
#define LAUNCH_PAGE_GUESTS_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

enum { PAGE_CLIENTS_MAX = 64 };

struct guest {
    int fd;          /* borrowed */
    uint64_t number; /* in the order in which they came; 0: a free place */
    bool is_known;   /* it has shown the secret */
};

/* Thread: owned by the main thread of psd_run. */
struct guests {
    struct guest guest[PAGE_CLIENTS_MAX];
    uint64_t number; /* of the last that came */
};

/* For MHD_OPTION_NOTIFY_CONNECTION; context: the guests. */
void guests_notice(void *context, struct MHD_Connection *connection, void **own,
                   enum MHD_ConnectionNotificationCode what);

/* It has shown the secret. */
void guests_know(struct MHD_Connection *connection);

/* Hangs up on a stranger: the daemon notices when it runs. False: all are known. */
bool guests_make_room(struct guests *guests);

#endif
