/*
 * gone.c - a server whose process has ended, by the word of the one who started it; and what else that
 * one says.
 *
 * Its parent has collected it: it is not slow, nor cut off, and it will not come back. So nobody waits
 * for it to renew its connection. The number that the process drew tells its lives apart: the word may
 * come after the next life has joined, and means the last one.
 *
 * A master that has just begun, and knows nothing of the job, hears it, too; with what its last life had
 * told, and what those may have taken with them who died together with it.
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

bool
master_process_is_gone(const struct master *master, uint64_t process)
{
    const uint32_t index = (uint32_t)(process & ((1u << PSI_PROCESS_INDEX_BITS) - 1));

    return process != 0 && index < PSI_SERVERS_MAX && master->gone[index] == process;
}

/* While this life finds out who is in the job, it is only noted. */
void
master_process_gone(struct master *master, uint32_t rank, uint64_t process)
{
    const uint32_t index = (uint32_t)(process & ((1u << PSI_PROCESS_INDEX_BITS) - 1));

    if (index != rank || index >= PSI_SERVERS_MAX) {
        return;
    }
    master->gone[index] = process;
    if (master->phase != PHASE_RUNNING) {
        master_wake_at(master, 0);
        return;
    }
    psi_log(master->log, PSI_LOG_DEBUG, "GONE", "the process of server %u has ended", rank);
    close_standbys(master, process);
    master_pair_gone(master, process);
    master_seek_gone(master, process);
    for (uint32_t i = 0; i < master->config.servers; i++) {
        const struct server *server = &master->server[i];

        for (uint32_t lane = 0; lane < server->lanes && master->phase == PHASE_RUNNING; lane++) {
            if (has_place(&server->lane[lane], process)) {
                master_member_lost(master, &server->lane[lane], PSI_LOSS_CLOSED,
                                   "its process has ended");
            }
        }
    }
    master_wake_at(master, 0);
}

void
master_gone_again(struct master *master)
{
    for (uint32_t index = 0; index < master_indexes(master) && master->phase == PHASE_RUNNING;
         index++) {
        if (master->gone[index] != 0) {
            master_process_gone(master, index, master->gone[index]);
        }
    }
}

void
master_heed(struct master *master, const struct psi_word *word)
{
    const bool rebuilds = master->phase == PHASE_REBUILDING;

    if (word->kind == PSI_WORD_GONE) {
        master_process_gone(master, word->rank, word->number);
    } else if (word->kind == PSI_WORD_DONE && rebuilds && word->rank < master->config.workers) {
        psi_ranks_add(&master->done, word->rank);
    } else if (word->kind == PSI_WORD_DEAD && rebuilds && word->rank < master->config.workers) {
        psi_ranks_add(&master->dead, word->rank);
    } else if (word->kind == PSI_WORD_CROSSED && rebuilds && word->rank < master->config.servers &&
               word->lane < PSI_LANES_MAX &&
               word->number > master->server[word->rank].crossed[word->lane]) {
        master->server[word->rank].crossed[word->lane] = word->number;
    } else if (word->kind == PSI_WORD_ALL) {
        master->is_reminded = true;
        master_wake_at(master, 0);
    } else if (word->kind == PSI_WORD_LEAVE) {
        master_move_leave(master, word->rank, word->number);
    } else if (word->kind == PSI_WORD_SAVE) {
        master_saving_hurry(master);
    }
}
