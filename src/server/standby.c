/*
 * standby.c - a lane without a place, until that of a lost server's lane is given to it.
 *
 * It listens, and the master knows of it; nobody else does. With TAKE_PLACE it becomes that lane:
 * it greets the master anew by that name, and is another life of the lane from then on, with
 * nothing in it, as if the server had been started again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/exit_code.h"
#include "base/fail.h"
#include "server/lane.h"
#include "server/state.h"

enum { FAREWELL_MS = 100 };

void
standby_welcomed(struct lane *lane, const struct psi_welcome *welcome)
{
    if (!welcome->survives || welcome->servers == 1) {
        psi_peer_close_after_send(&lane->master.peer, FAREWELL_MS);
        lane_finish(lane, PSI_EXIT_OK, "there is no place to stand by for");
    }
}

psd_status
standby_take_place(struct lane *lane, const struct psi_frame *order, struct psd_error *err)
{
    if (!lane->config.is_standby) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "TAKE_PLACE: this lane has a place");
    }
    if (order->rank >= PSI_SERVERS_MAX || order->step > PSI_LANES_MAX ||
        order->chunk >= order->step) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "TAKE_PLACE: lane %u of server %u", order->chunk,
                        order->rank);
    }
    psi_log(&lane->log, PSI_LOG_INFO, "TAKE-PLACE", "becomes lane %u of server %u, which is lost",
            order->chunk, order->rank);
    /* Its share of what this server may use is that of a lane of the other one. */
    lane->config.memory_max = lane->config.memory_max * lane->config.lanes / order->step;
    lane->config.pool_bytes = lane->config.pool_bytes * lane->config.lanes / order->step;
    lane->config.server = order->rank;
    lane->config.lane = order->chunk;
    lane->config.lanes = (uint32_t)order->step;
    lane->config.is_standby = false;
    lane->takes_place = true;
    return PSD_OK;
}

bool
lane_took_place(struct lane *lane, uint32_t *server_p, uint32_t *lane_p)
{
    if (!lane->takes_place) {
        return false;
    }
    lane->takes_place = false;
    psi_master_link_again(&lane->master);
    *server_p = lane->config.server;
    *lane_p = lane->config.lane;
    return true;
}
