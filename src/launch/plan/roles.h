/*
 * roles.h - which task of a batch job is what: "ps,ps,worker*6".
 *
 * Tasks are numbered node by node: with M of them on the first node, the first M roles are its.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_ROLES_H
#define LAUNCH_ROLES_H

#include <stdint.h>

#include <psd/status.h>

#include "launch/rules/role.h"

struct roles {
    enum launch_role *list; /* owned; LAUNCH_SERVER or LAUNCH_WORKER */
    uint32_t count;
    uint32_t servers;
    uint32_t workers;
};

/* PSD_ERR_INVALID with the column for what is no role. "ps" and "server" are the same. */
psd_status roles_parse(const char *text, struct roles *roles_p, struct psd_error *err);

/* The same from a list of names, each "ps", "server" or "worker". */
psd_status roles_take(const char *const *names, uint32_t count, struct roles *roles_p,
                      struct psd_error *err);

enum roles_placement {
    ROLES_NOT_SAID, /* as ROLES_PACK */
    ROLES_PACK,     /* servers on the first tasks */
    ROLES_SPREAD,   /* servers on the first tasks of each node, one node after the other */
};

/* Makes `servers` of the tasks servers and the rest workers. PSD_ERR_INVALID: none would be left.
 */
psd_status roles_place(uint32_t servers, enum roles_placement placement, const uint32_t *tasks_on,
                       uint32_t nodes, struct roles *roles_p, struct psd_error *err);

void roles_fini(struct roles *roles);

#endif
