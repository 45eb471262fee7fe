/*
 * watcher.h - what a client that subscribes hears besides tables of nodes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_CORE_WATCHER_H
#define PSI_CLIENT_CORE_WATCHER_H

#include "wire/message.h"

/* Both are called from inside an event: they make no call of the client's. */
struct psi_watcher {
    void *context;

    /* What a member has counted: role is enum psi_role; lane only of a server. */
    void (*told)(void *context, uint8_t role, uint32_t rank, uint32_t lane,
                 const struct psi_telling *telling);

    /* A table that it had not heard of. */
    void (*table)(void *context, const struct psi_table_info *info);
};

#endif
