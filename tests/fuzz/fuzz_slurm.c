/*
 * fuzz_slurm.c - what Slurm says in the environment, and the roles of its tasks.
 *
 * The first byte chooses. 'r': the rest is a list of roles. Anything else: the rest are variables,
 * one NAME=value in each line.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "fuzz.h"
#include "launch/meet/slurm.h"
#include "launch/plan/roles.h"
#include "launch/text/words.h"

static void
check_list(const struct roles *roles)
{
    uint32_t servers = 0;

    for (uint32_t i = 0; i < roles->count; i++) {
        servers += roles->list[i] == LAUNCH_SERVER;
    }
    psi_assert(servers == roles->servers && roles->servers + roles->workers == roles->count);
}

static void
check_roles(const char *text)
{
    struct psd_error err;
    struct roles roles;

    if (roles_parse(text, &roles, &err) == PSD_OK) {
        psi_assert(roles.count > 0);
        check_list(&roles);
        roles_fini(&roles);
    } else {
        psi_assert(err.status == PSD_ERR_INVALID);
    }
    if (roles_take(&text, 1, &roles, &err) == PSD_OK) {
        psi_assert(roles.count == 1);
        roles_fini(&roles);
    }
}

/* Any number of servers finds its place, and leaves a worker. */
static void
check_placement(const struct slurm *slurm, enum roles_placement placement)
{
    const uint32_t servers = slurm->tasks / 2;
    struct roles roles;
    struct psd_error err;

    if (roles_place(servers, placement, slurm->tasks_on.numbers, (uint32_t)slurm->nodes.count,
                    &roles, &err) == PSD_OK) {
        psi_assert(roles.count == slurm->tasks && roles.servers == servers);
        check_list(&roles);
        roles_fini(&roles);
    }
    psi_assert(roles_place(slurm->tasks, placement, slurm->tasks_on.numbers,
                           (uint32_t)slurm->nodes.count, &roles, &err) == PSD_ERR_INVALID);
}

static void
check_environment(char *text)
{
    struct words environment = {0};
    struct psd_error err;
    struct slurm slurm;
    char *rest = NULL;

    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        words_add(&environment, line);
    }
    psi_assert(environment.count == 0 || slurm_is_around(environment.list) ||
               !slurm_is_one_of_many(environment.list));
    if (environment.count > 0 && slurm_read(environment.list, &slurm, &err) == PSD_OK) {
        psi_assert(slurm.nodes.count > 0 && slurm.tasks_on.count == slurm.nodes.count);
        psi_assert(slurm_task(&slurm, (uint32_t)slurm.nodes.count, 0) == slurm.tasks);
        psi_assert(!slurm.is_step || slurm_task(&slurm, slurm.node, slurm.local) < slurm.tasks);
        check_placement(&slurm, ROLES_PACK);
        check_placement(&slurm, ROLES_SPREAD);
        slurm_fini(&slurm);
    } else if (environment.count > 0) {
        psi_assert(err.status == PSD_ERR_INVALID);
    }
    words_fini(&environment);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = size > 0 ? strndup((const char *)data + 1, size - 1) : NULL;

    if (text != NULL && data[0] == 'r') {
        check_roles(text);
    } else if (text != NULL) {
        check_environment(text);
    }
    free(text);
    return 0;
}
