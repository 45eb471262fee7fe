/*
 * rebuild_gather.c - another life of the master of a job that had not begun: nobody has any view.
 *
 * It waits for all servers, and for workers for as long as they may take to find it. None of them has a view,
 * then nobody has acted on any, and the job gathers as if this were the first life.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>

#include "base/exit_code.h"
#include "master/rebuild.h"

/* Is a lane here that has no view, in the job already or on its way into it? One that has is about
 * to tell of it. */
static bool
is_here(const struct master *master, uint32_t index, uint32_t lane)
{
    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->hello.role == PSI_ROLE_SERVER &&
            session->hello.rank == index && session->hello.lane == lane &&
            session->hello.view == 0 &&
            (session->kind == SESSION_WAITING || session->kind == SESSION_MEMBER)) {
            return true;
        }
    }
    return false;
}

static uint32_t
lanes_of(const struct master *master, uint32_t index)
{
    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->hello.role == PSI_ROLE_SERVER &&
            session->hello.rank == index) {
            return session->hello.lanes;
        }
    }
    return 0;
}

void
master_rebuild_absent(const struct master *master, struct names *missing)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        const uint32_t lanes = lanes_of(master, index);
        bool here = lanes > 0;

        for (uint32_t lane = 0; lane < lanes; lane++) {
            here = here && is_here(master, index, lane);
        }
        if (!here) {
            master_names_add(missing, "server", index);
        }
    }
    master_names_end(missing);
}

/* Servers that have just been started know nothing, and a worker that is not here yet may. */
static bool
may_have_begun(const struct master *master)
{
    uint32_t workers = 0;

    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        workers += session->guest.conn != NULL && session->hello.role == PSI_ROLE_WORKER &&
                   session->kind == SESSION_WAITING;
    }
    return workers < master->config.size;
}

void
master_rebuild_gather(struct master *master, uint64_t now_ns)
{
    const uint64_t late_ns = master->begun_ns + master->config.start_timeout_ms * MASTER_MS_NS;
    struct names missing = {0};
    char text[PSI_TEXT_MAX];

    master_rebuild_absent(master, &missing);
    if (missing.count == 0 && may_have_begun(master) &&
        now_ns < master_rebuild_patience_ns(master)) {
        master_wake_at(master, master_rebuild_patience_ns(master));
    } else if (missing.count == 0) {
        master->is_new_job = master->job == 0;
        while (master->job == 0) {
            master->job = master->env->ops->random(master->env);
        }
        master->phase = PHASE_GATHERING;
        for (uint32_t index = 0; index < master->config.servers; index++) {
            for (uint32_t lane = 0; lane < master->server[index].lanes; lane++) {
                master_report_free(&master->server[index].lane[lane]);
            }
        }
    } else if (now_ns >= late_ns) {
        snprintf(text, sizeof(text), "%s not here after %u ms", missing.text,
                 master->config.start_timeout_ms);
        master_rebuild_give_up(master, PSI_EXIT_START_TIMEOUT, PSD_ERR_TIMEOUT, text);
    } else {
        master_wake_at(master, late_ns);
    }
}
