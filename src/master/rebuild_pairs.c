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
            session->claim.number > master->server[lane->rank].crossed[lane->lane] &&
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
            session->hello.pair > master->server[lane->rank].crossed[lane->lane]) {
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

/* ... whose place was handed over to it, and the lane still has it, too: it does not know what became of
 * that. NULL: there is none. */
static const struct session *
find_given(const struct master *master, const struct member *lane)
{
    const struct session *promoted =
        master_may_move(master) && master_lane_has_told(lane) ? find_promoted(master, lane) : NULL;

    return promoted != NULL && promoted->hello.pair == lane->report->pair ? promoted : NULL;
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
    for (uint32_t place = 0; place < master->places && master_may_pair(master); place++) {
        const struct member *lane = master->place[place];

        if (master_lane_has_told(lane) && lane->report->pair != 0 &&
            find_given(master, lane) == NULL && !fits_report(lane, find_claim(master, lane))) {
            return true;
        }
    }
    return false;
}

bool
master_pair_claims(const struct master *master, const struct member *lane)
{
    const struct session *claim = find_claim(master, lane);

    return find_promoted(master, lane) != NULL || (claim != NULL && claim->claim.eligible);
}

/* Lanes know which numbers were crossed out. If none has told, whoever started the last master knows: it
 * heard of it first. Else a copy may lack what its server told without it. */
static bool
are_crossings_known(const struct master *master)
{
    for (uint32_t place = 0; place < master->places; place++) {
        if (master_lane_has_told(master->place[place])) {
            return true;
        }
    }
    return master->is_reminded;
}

static void
note_copy(struct copy *copy, const struct session *session)
{
    *copy = (struct copy){.life = session->hello.life,
                          .process = session->hello.host,
                          .server = session->hello.rank,
                          .lane = session->hello.lane,
                          .lanes = session->hello.lanes};
    memcpy(copy->address, session->hello.address, sizeof(copy->address));
}

/* The last master had lost the lane, and others of its process have been followed by their copies: this one
 * is to be. False: it has no copy. */
static bool
restore_promotion(const struct master *master, const struct member *lane)
{
    struct pair *pair = master_pair_of(master, lane);
    const struct session *promoted = find_promoted(master, lane);
    const struct session *claim = find_claim(master, lane);

    if (promoted == NULL && (claim == NULL || !claim->claim.eligible)) {
        return false;
    }
    note_copy(&pair->copy, promoted != NULL ? promoted : claim);
    pair->copy.is_placed = promoted != NULL;
    pair->number = promoted != NULL ? promoted->hello.pair : claim->claim.number;
    pair->stage = PAIR_WHOLE;
    pair->is_promoting = true;
    pair->left_by = master_process_index(master, lane);
    return true;
}

/* False: it has no copy. */
static bool
restore_pair(const struct master *master, const struct member *lane)
{
    struct pair *pair = master_pair_of(master, lane);
    const struct session *promoted =
        master_lane_has_told(lane) ? find_given(master, lane) : find_promoted(master, lane);
    const struct session *claim = promoted != NULL ? promoted : find_claim(master, lane);

    if (promoted == NULL && !fits_report(lane, claim)) {
        return false;
    }
    pair->number = promoted != NULL ? promoted->hello.pair : claim->claim.number;
    note_copy(&pair->copy, claim);
    pair->copy.is_placed = promoted != NULL;
    pair->stage = promoted != NULL || claim->claim.eligible ||
                          (master_lane_has_told(lane) && lane->report->is_eligible)
                      ? PAIR_WHOLE
                      : PAIR_FORMING;
    return true;
}

/* The highest number that anybody knows of a copy of this lane. */
static uint64_t
last_number(const struct master *master, const struct member *lane)
{
    uint64_t number = master->server[lane->rank].crossed[lane->lane];

    if (master_lane_has_told(lane) && lane->report->pair > number) {
        number = lane->report->pair;
    }
    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->kind == SESSION_OBSERVER &&
            session->claim.server == lane->rank && session->claim.lane == lane->lane &&
            session->claim.number > number) {
            number = session->claim.number;
        }
    }
    return number;
}

bool
master_pairs_were_crossed(const struct master *master)
{
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];

        if (master->server[lane->rank].crossed[lane->lane] > 0) {
            return true;
        }
    }
    return false;
}

/* The last master had let the copy in, and no view has it yet: no other lane gets into a place of values. */
static void
restore_promoted(const struct master *master, const struct member *lane)
{
    const struct member left = {.role = PSI_ROLE_SERVER,
                                .rank = lane->rank,
                                .process =
                                    psi_view_place(&master->view, lane->rank, lane->lane)->process};
    struct pair *pair = master_pair_of(master, lane);

    pair->copy.life = lane->life;
    pair->number = last_number(master, lane);
    pair->stage = PAIR_WHOLE;
    pair->is_promoting = true;
    pair->left_by = master_process_index(master, &left);
}

static void
log_restored(const struct master *master, uint32_t index)
{
    const struct server *server = &master->server[index];
    char copies[MASTER_COPIES_TEXT];
    bool has_any = false;

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        has_any = has_any || master_pair_has_copy(&server->pair[lane]);
    }
    if (has_any && !server->is_away) {
        master_copies_name(server, copies);
        psi_log(master->log, PSI_LOG_INFO, master_pairs_are_whole(server) ? "COPY-WHOLE" : "COPY",
                "server %u has a copy in %s", index, copies);
    }
}

void
master_pairs_restore(struct master *master)
{
    for (uint32_t place = 0; place < master->places && master_may_pair(master); place++) {
        const struct member *lane = master->place[place];

        if (lane->state == PSD_NODE_LOST) {
            (void)restore_promotion(master, lane);
        } else if (lane->state == PSD_NODE_JOINED && master_known_are_frail(master)) {
            restore_promoted(master, lane);
        } else if (!are_crossings_known(master) || !restore_pair(master, lane)) {
            /* A copy that is not here may hear nothing of it, and must take no place later. */
            master_pair_give_up(master, lane, last_number(master, lane));
        }
    }
    for (uint32_t index = 0; index < master->config.servers && master->config.replicas > 0;
         index++) {
        log_restored(master, index);
    }
    master_pairs_tell_crossed(master);
}
