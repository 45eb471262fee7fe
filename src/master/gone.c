/*
 * gone.c - a server whose process has ended, by the word of the one who started it.
 *
 * Its parent has collected it: it is not slow, nor cut off, and it will not come back. So nobody waits
 * for it to renew its connection. The number that the process drew tells its lives apart: the word may
 * come after the next life has joined, and means the last one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/master.h"
#include "master/state.h"

/* Lanes that stood by there take no place any more, nor are they copies. */
static void
close_standbys(struct master *master, uint64_t process)
{
    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->kind == SESSION_OBSERVER &&
            session->hello.role == PSI_ROLE_STANDBY && session->hello.host == process) {
            master_session_close(session);
        }
    }
}

static bool
has_place(const struct member *lane, uint64_t process)
{
    return lane->process == process &&
           (lane->state == PSD_NODE_JOINED || lane->state == PSD_NODE_RUNNING);
}

void
master_gone(struct master *master, const struct psi_gone *gone)
{
    const uint32_t index = (uint32_t)(gone->life & ((1u << PSI_PROCESS_INDEX_BITS) - 1));

    if (master->phase != PHASE_RUNNING || index != gone->server) {
        return; /* what is not known yet is found out otherwise */
    }
    psi_log(master->log, PSI_LOG_DEBUG, "GONE", "the process of server %u has ended", gone->server);
    close_standbys(master, gone->life);
    master_pair_gone(master, gone->life);
    for (uint32_t i = 0; i < master->config.servers; i++) {
        const struct server *server = &master->server[i];

        for (uint32_t lane = 0; lane < server->lanes && master->phase == PHASE_RUNNING; lane++) {
            if (has_place(&server->lane[lane], gone->life)) {
                master_member_lost(master, &server->lane[lane], PSI_LOSS_CLOSED,
                                   "its process has ended");
            }
        }
    }
    master_wake_at(master, 0);
}
