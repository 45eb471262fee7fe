/*
 * seek.c - how long a lost server has to be started again before another one takes its places.
 *
 * A process that has died is started again where it was, in less than a second, and nobody else's place
 * changes: it has server_return_ms. A server that is silent, or that workers do not reach, may be on a
 * machine that is cut off, and nobody can start it there. Who started the job kills it before it
 * begins another life, and says so (GONE). If that word does not come, the machine is cut off from
 * that one, too. Where nobody watches the job, nobody would kill it, and there is nothing to wait for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/state.h"

enum {
    SEEK_MS = 500, /* beside server_return_ms, between two looks for another server */
    WORD_MS = 500, /* for the word that a process which was only silent is dead */
};

bool
master_seek_is_cut_off(enum psi_loss loss)
{
    return loss == PSI_LOSS_SILENT || loss == PSI_LOSS_UNREACHED;
}

void
master_seek_begin(const struct master *master, struct server *server, bool is_here)
{
    uint64_t wait_ms = master->config.server_return_ms;

    if (master_seek_is_cut_off(server->loss) && !is_here) {
        const uint64_t word_ms = master->config.tell != NULL ? WORD_MS : 0;

        wait_ms = wait_ms < word_ms ? wait_ms : word_ms;
    }
    server->seek_ns = psi_now_ns(master->env) + wait_ms * MASTER_MS_NS;
}

void
master_seek_later(const struct master *master, struct server *server, uint64_t now_ns)
{
    server->seek_ns = now_ns + (master->config.server_return_ms + SEEK_MS) * MASTER_MS_NS;
}

void
master_seek_soon(struct server *server, uint64_t now_ns)
{
    server->seek_ns = now_ns + SEEK_MS * MASTER_MS_NS;
}

/* What a guest had waits for nobody: whoever is started again in its stead does not come for it. */
static bool
was_at_home(const struct master *master, const struct server *server, uint64_t process)
{
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (server->lane[lane].state == PSD_NODE_LOST && server->lane[lane].process == process &&
            !master_is_guest(master, &server->lane[lane])) {
            return true;
        }
    }
    return false;
}

void
master_seek_gone(struct master *master, uint64_t process)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        struct server *server = &master->server[index];

        if (server->is_away && !server->is_placed && master_seek_is_cut_off(server->loss) &&
            was_at_home(master, server, process)) {
            server->seek_ns =
                psi_now_ns(master->env) + master->config.server_return_ms * MASTER_MS_NS;
        }
    }
}
