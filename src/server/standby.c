/*
 * standby.c - a lane without a place, until that of a lost server's lane is given to it.
 *
 * It listens, and the master knows of it; nobody else does. With TAKE_PLACE it becomes that lane:
 * it greets the master anew by that name, and is another life of the lane from then on: with
 * nothing in it, as if the server had been started again, or with all that was told, if it was a
 * copy of that lane (mirror.c). A copy may also be given the place by the lane itself, when the master
 * wants places to move (pair_give.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/exit_code.h"
#include "base/fail.h"
#include "server/lane.h"
#include "server/state.h"

enum { FAREWELL_MS = 100 };

void
standby_begin(struct lane *lane)
{
    psi_log(&lane->log, PSI_LOG_INFO, "STANDS-BY",
            "lane %u of server %u: another server has its place and all that was in it; it stands "
            "by",
            lane->config.lane, lane->config.server);
    if (lane->joined) {
        lane_begin_anew(lane);
    }
    lane->stands_by = false;
    lane->stood_down = true;
    lane->config.is_standby = true;
    mirror_refused(lane);
    psi_fail_point(server_stands_by);
    psi_peer_close(&lane->master.peer);
    lane_find_master(lane); /* by another name */
}

void
standby_welcomed(struct lane *lane, const struct psi_welcome *welcome)
{
    if (!welcome->survives || welcome->servers == 1) {
        psi_peer_close_after_send(&lane->master.peer, FAREWELL_MS);
        lane_finish(lane, PSI_EXIT_OK, "there is no place to stand by for");
        return;
    }
    if (lane->rows == 0) {
        lane->job = *welcome;
    }
    mirror_tell(lane, welcome);
}

psd_status
standby_take_place(struct lane *lane, const struct psi_frame *order, struct psd_error *err)
{
    bool has_all = false;

    if (!lane->config.is_standby) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "TAKE_PLACE: this lane has a place");
    }
    if (order->rank >= PSI_SERVERS_MAX || order->step > PSI_LANES_MAX ||
        order->chunk >= order->step) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "TAKE_PLACE: lane %u of server %u", order->chunk,
                        order->rank);
    }
    if (order->seq != 0) {
        has_all = mirror_promote(lane, order->seq);
        if (!has_all) {
            mirror_lost(lane, order->seq, "no whole copy of that number");
            return PSD_OK;
        }
    }
    mirror_forget(lane);
    psi_log(&lane->log, PSI_LOG_INFO, "TAKE-PLACE", "becomes lane %u of server %u, which is lost%s",
            order->chunk, order->rank, has_all ? "; it has all that was told" : "");
    lane_take_name(lane, order->rank, order->chunk, (uint32_t)order->step);
    lane->config.is_standby = false;
    lane->takes_place = true;
    psi_fail_point(server_place_taken);
    return PSD_OK;
}

void
standby_take_over(struct lane *lane)
{
    const uint64_t number = lane->mirror->number;
    const struct psi_pair owner = lane->mirror->owner;

    if (!mirror_promote(lane, number)) {
        lane->mirror->is_given = false; /* it is broken, which was told */
        return;
    }
    psi_log(&lane->log, PSI_LOG_INFO, "TAKE-PLACE",
            "becomes lane %u of server %u, which has handed it over", owner.lane, owner.server);
    lane_take_name(lane, owner.server, owner.lane, owner.lanes);
    lane->config.is_standby = false;
    lane->takes_place = true;
    psi_fail_point(server_place_given);
}

bool
lane_stands_by_now(struct lane *lane, uint32_t *server_p, uint32_t *lane_p)
{
    const bool is_news = lane->stood_down;

    lane->stood_down = false;
    *server_p = lane->standby.server;
    *lane_p = lane->standby.lane;
    return is_news;
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

bool
lane_saw_it_through(const struct lane *lane)
{
    return lane->finished && lane->exit_code == PSI_EXIT_OK && !lane->config.is_standby;
}

/*
 * A guest is sent away when the server whose place it has has been lost again, or when a master that returned has found
 * another one in it. Nobody misses one that has not come to its place: the server was started again first, or the
 * master looks for another. Nor does a master wait for one of which it never knew: it may have had its place from an
 * earlier life that died before anybody else had heard so. Such a guest finds nobody any more when all is over.
 */
bool
lane_guest_is_no_loss(const struct lane *lane, bool is_over)
{
    return lane->exit_code == PSI_EXIT_FENCED || lane->exit_code == PSI_EXIT_REFUSED ||
           !lane_has_joined(lane) || (lane->exit_code == PSI_EXIT_MASTER_LOST && is_over);
}

bool
lane_has_nothing(const struct lane *lane)
{
    return lane->config.is_standby && lane->mirror == NULL;
}
