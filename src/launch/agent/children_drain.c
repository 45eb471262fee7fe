/*
 * children_drain.c - how long a dead process's pipe is read, and who else holds it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/children.h"

#include <string.h>
#include <unistd.h>

#include "launch/agent/filters.h"
#include "launch/agent/tree.h"

enum children_drain
children_drain(const struct child *child, uint64_t now_ms)
{
    if (!printout_is_open(&child->printout)) {
        return CHILDREN_READ;
    }
    if (now_ms >= child->died_ms + CHILDREN_SILENT_MS &&
        now_ms >= child->printout.read_ms + CHILDREN_SILENT_MS) {
        return CHILDREN_SILENT;
    }
    return now_ms >= child->died_ms + CHILDREN_ENDLESS_MS ? CHILDREN_ENDLESS : CHILDREN_READS;
}

uint64_t
children_drain_deadline(const struct child *child)
{
    const uint64_t endless_ms = child->died_ms + CHILDREN_ENDLESS_MS;
    const uint64_t since_ms =
        child->died_ms > child->printout.read_ms ? child->died_ms : child->printout.read_ms;
    const uint64_t silent_ms = since_ms + CHILDREN_SILENT_MS;

    return silent_ms < endless_ms ? silent_ms : endless_ms;
}

void
children_name_holders(const struct child *child, enum children_drain drain, struct link *link)
{
    struct filters_pipes pipes = {0};
    struct tree_pids holders = {0};
    char text[512];

    if (drain == CHILDREN_READS || drain == CHILDREN_READ) {
        return;
    }
    for (unsigned i = 0; i < LINK_STREAMS; i++) {
        filters_pipes_add(&pipes, child->printout.fds[i]);
    }
    filters_find_holders(getpid(), &pipes, &holders);
    filters_describe(&holders, text, sizeof(text));
    link_send(link, LINK_HELD, child->slot, (int32_t)drain, text, strlen(text));
    tree_pids_fini(&holders);
    filters_pipes_fini(&pipes);
}
