/*
 * roles.c - which task of a batch job is what.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/plan/roles.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

enum { TASKS_MAX = 65536 };

void
roles_fini(struct roles *roles)
{
    free(roles->list);
    *roles = (struct roles){0};
}

static psd_status
add(struct roles *roles, enum launch_role role, uint32_t times, struct psd_error *err)
{
    enum launch_role *list = NULL;

    if (times <= TASKS_MAX - roles->count) {
        list = realloc(roles->list, (roles->count + (size_t)times + 1) * sizeof(*list));
    }
    if (list == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "more than %d roles", TASKS_MAX);
    }
    roles->list = list;
    for (uint32_t i = 0; i < times; i++) {
        list[roles->count++] = role;
    }
    *(role == LAUNCH_SERVER ? &roles->servers : &roles->workers) += times;
    return PSD_OK;
}

static bool
find_role(const char *name, size_t bytes, enum launch_role *role_p)
{
    static const struct {
        const char *name;
        enum launch_role role;
    } names[] = {{"ps", LAUNCH_SERVER}, {"server", LAUNCH_SERVER}, {"worker", LAUNCH_WORKER}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i].name) == bytes && strncmp(name, names[i].name, bytes) == 0) {
            *role_p = names[i].role;
            return true;
        }
    }
    return false;
}

/* "worker" or "worker*6", up to the comma or the end. Returns false for anything else. */
static bool
read_item(const char *text, size_t bytes, enum launch_role *role_p, uint32_t *times_p)
{
    const size_t name = strcspn(text, "*,");
    uint32_t times = 0;

    *times_p = 1;
    if (!find_role(text, name, role_p)) {
        return false;
    }
    if (name == bytes) {
        return true;
    }
    for (size_t i = name + 1; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9' || times > TASKS_MAX) {
            return false;
        }
        times = times * 10 + (uint32_t)(text[i] - '0');
    }
    *times_p = times;
    return times > 0;
}

psd_status
roles_parse(const char *text, struct roles *roles_p, struct psd_error *err)
{
    struct roles roles = {0};
    const char *at = text;
    psd_status status = PSD_OK;

    for (;;) {
        const size_t bytes = strcspn(at, ",");
        enum launch_role role = LAUNCH_WORKER;
        uint32_t times;

        if (!read_item(at, bytes, &role, &times)) {
            status = psi_fail(err, PSD_ERR_INVALID,
                              "roles \"%.100s\", column %zu: \"%.*s\" is no role; ps, worker and "
                              "worker*6 are",
                              text, (size_t)(at - text) + 1, (int)(bytes < 64 ? bytes : 64), at);
        } else {
            status = add(&roles, role, times, err);
        }
        if (status != PSD_OK || at[bytes] == '\0') {
            break;
        }
        at += bytes + 1;
    }
    if (status != PSD_OK) {
        roles_fini(&roles);
        return status;
    }
    *roles_p = roles;
    return PSD_OK;
}

psd_status
roles_take(const char *const *names, uint32_t count, struct roles *roles_p, struct psd_error *err)
{
    struct roles roles = {0};
    psd_status status = PSD_OK;

    for (uint32_t i = 0; i < count && status == PSD_OK; i++) {
        enum launch_role role = LAUNCH_WORKER;

        status = find_role(names[i], strlen(names[i]), &role)
                     ? add(&roles, role, 1, err)
                     : psi_fail(err, PSD_ERR_INVALID, "\"%.64s\" is no role; ps and worker are",
                                names[i]);
    }
    if (status != PSD_OK) {
        roles_fini(&roles);
        return status;
    }
    *roles_p = roles;
    return PSD_OK;
}

/* One server more on every node that has room, until there are enough. */
static void
spread(struct roles *roles, uint32_t servers, const uint32_t *tasks_on, uint32_t nodes)
{
    uint32_t placed = 0;

    for (uint32_t round = 0; placed < servers; round++) {
        uint32_t first = 0; /* task of the node */

        for (uint32_t node = 0; node < nodes && placed < servers; node++) {
            if (round < tasks_on[node]) {
                roles->list[first + round] = LAUNCH_SERVER;
                placed++;
            }
            first += tasks_on[node];
        }
    }
}

psd_status
roles_place(uint32_t servers, enum roles_placement placement, const uint32_t *tasks_on,
            uint32_t nodes, struct roles *roles_p, struct psd_error *err)
{
    struct roles roles = {0};
    uint32_t tasks = 0;
    psd_status status;

    for (uint32_t node = 0; node < nodes; node++) {
        tasks += tasks_on[node];
    }
    if (servers >= tasks) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%u servers among %u tasks leave no worker: ask for more tasks (sbatch "
                        "--ntasks), or for fewer servers",
                        servers, tasks);
    }
    status = add(&roles, LAUNCH_WORKER, tasks, err);
    if (status != PSD_OK) {
        return status;
    }
    if (placement == ROLES_SPREAD) {
        spread(&roles, servers, tasks_on, nodes);
    } else {
        for (uint32_t i = 0; i < servers; i++) {
            roles.list[i] = LAUNCH_SERVER;
        }
    }
    roles.servers = servers;
    roles.workers = tasks - servers;
    *roles_p = roles;
    return PSD_OK;
}
