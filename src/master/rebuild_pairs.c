/*
 * rebuild_pairs.c - another life of the master: which copies there are, by what both sides tell.
 *
 * A lane says the number of its copy, and a copy whose it is. What both say is taken up. If the lane
 * is gone, the copy alone says it: its owner has told it whether it lacks anything, and lanes keep
 * in mind which numbers were crossed out before a server went on alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/rebuild.h"

#include <stdlib.h>
#include <string.h>

#include "master/state.h"

psd_status
master_on_copy(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;

    (void)body;
    (void)bytes;
    (void)err;
    if (session->hello.role == PSI_ROLE_STANDBY) {
        session->claim.number = frame->seq;
        session->claim.server = frame->rank;
        session->claim.lane = frame->chunk;
        session->claim.eligible = frame->status == PSD_OK;
        psi_fail_point(master_rebuild_copy_told);
        master_wake_at(session->master, 0);
    }
    return PSD_OK;
}

/* Who says that it is the copy of that lane, by the highest number that is not crossed out? */
static const struct session *
find_claim(const struct master *master, const struct member *lane)
{
    const struct session *found = NULL;

    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->kind == SESSION_OBSERVER &&
            session->claim.number > master->server[lane->rank].pair.crossed &&
            session->claim.server == lane->rank && session->claim.lane == lane->lane &&
            (found == NULL || session->claim.number > found->claim.number)) {
            found = session;
        }
    }
    return found;
}

/* A copy that the last master had told to take the place, and that has not been let in. It says by
 * which number: one that was crossed out since then lacks what the server told alone. */
static const struct session *
find_promoted(const struct master *master, const struct member *lane)
{
    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->kind == SESSION_WAITING &&
            session->hello.role == PSI_ROLE_SERVER && session->hello.rank == lane->rank &&
            session->hello.lane == lane->lane && session->hello.incarnation == 0 &&
            session->hello.pair > master->server[lane->rank].pair.crossed) {
            return session;
        }
    }
    return NULL;
}

bool
master_promoted_knocks(const struct master *master, const struct member *lane)
{
    return find_promoted(master, lane) != NULL;
}

/* If the lane is here, it says which number is that of its copy. */
static bool
fits_report(const struct member *lane, const struct session *claim)
{
    return claim != NULL &&
           (!master_lane_has_told(lane) || lane->report->pair == claim->claim.number);
}

bool
master_pairs_are_missing(const struct master *master)
{
    for (uint32_t place = 0; place < master->places && master->config.replicas > 0; place++) {
        const struct member *lane = master->place[place];

        if (master_lane_has_told(lane) && lane->report->pair != 0 &&
            !fits_report(lane, find_claim(master, lane))) {
            return true;
        }
    }
    return false;
}

static void
note_copy(struct copy *copy, const struct session *session)
{
    *copy = (struct copy){.life = session->hello.life,
                          .server = session->hello.rank,
                          .lane = session->hello.lane,
                          .lanes = session->hello.lanes};
    memcpy(copy->address, session->hello.address, sizeof(copy->address));
}

/* The last master had lost the server, and some of its copy's lanes have been let in: the others
 * follow. False: some have no copy. */
static bool
restore_promotion(const struct master *master, struct server *server)
{
    struct pair *pair = &server->pair;

    for (uint32_t i = 0; i < server->lanes; i++) {
        const struct member *lane = &server->lane[i];
        const struct session *promoted = find_promoted(master, lane);
        const struct session *claim = find_claim(master, lane);

        if (lane->state != PSD_NODE_LOST) {
            pair->copy[i].life = lane->life;
            continue;
        }
        if (promoted == NULL && (claim == NULL || !claim->claim.eligible)) {
            return false;
        }
        note_copy(&pair->copy[i], promoted != NULL ? promoted : claim);
        pair->copy[i].is_placed = promoted != NULL;
        pair->number = promoted != NULL ? promoted->hello.pair : claim->claim.number;
    }
    pair->stage = PAIR_WHOLE;
    server->is_promoting = true;
    server->left_by = server->lane[0].rank;
    return true;
}

/* False: it has no copy, or not of all its lanes. */
static bool
restore_pair(const struct master *master, struct server *server)
{
    struct pair *pair = &server->pair;
    bool whole = true;

    for (uint32_t i = 0; i < server->lanes; i++) {
        const struct member *lane = &server->lane[i];
        const struct session *promoted =
            master_lane_has_told(lane) ? NULL : find_promoted(master, lane);
        const struct session *claim = promoted != NULL ? promoted : find_claim(master, lane);
        const uint64_t number = promoted != NULL ? promoted->hello.pair
                                : claim != NULL  ? claim->claim.number
                                                 : 0;

        if ((promoted == NULL && !fits_report(lane, claim)) ||
            (pair->number != 0 && number != pair->number)) {
            return false;
        }
        pair->number = number;
        pair->process = claim->hello.host;
        note_copy(&pair->copy[i], claim);
        pair->copy[i].is_placed = promoted != NULL;
        pair->copy[i].eligible = promoted != NULL || claim->claim.eligible ||
                                 (master_lane_has_told(lane) && lane->report->is_eligible);
        whole = whole && pair->copy[i].eligible;
    }
    pair->stage = whole ? PAIR_WHOLE : PAIR_FORMING;
    return true;
}

/* The highest number that anybody knows of a copy of this server. */
static uint64_t
last_number(const struct master *master, uint32_t index)
{
    const struct server *server = &master->server[index];
    uint64_t number = server->pair.crossed;

    for (uint32_t i = 0; i < server->lanes; i++) {
        const struct member *lane = &server->lane[i];

        if (master_lane_has_told(lane) && lane->report->pair > number) {
            number = lane->report->pair;
        }
    }
    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->kind == SESSION_OBSERVER &&
            session->claim.server == index && session->claim.number > number) {
            number = session->claim.number;
        }
    }
    return number;
}

bool
master_pairs_were_crossed(const struct master *master)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        if (master->server[index].pair.crossed > 0) {
            return true;
        }
    }
    return false;
}

psd_status
master_pairs_restore(struct master *master)
{
    for (uint32_t index = 0; index < master->config.servers && master->config.replicas > 0;
         index++) {
        struct server *server = &master->server[index];

        server->pair.copy = calloc(server->lanes, sizeof(*server->pair.copy));
        if (server->pair.copy == NULL) {
            return PSD_ERR_NO_MEMORY;
        }
        if (server->is_away) {
            (void)restore_promotion(master, server);
        } else if (restore_pair(master, server)) {
            psi_log(master->log, PSI_LOG_INFO,
                    server->pair.stage == PAIR_WHOLE ? "COPY-WHOLE" : "COPY",
                    "server %u has a copy in server %u (%s)", index, server->pair.copy[0].server,
                    server->pair.copy[0].address);
        } else { /* a copy that is not here may hear nothing of it, and must take no place later */
            master_pair_give_up(master, server, last_number(master, index));
        }
    }
    return PSD_OK;
}
