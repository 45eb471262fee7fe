/*
 * move_plan.c - which place moves next, when servers come and go.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/move_plan.h"

/* Of its even share of the bytes, in tenths: so much a server may have when it gets a place. */
enum { SHARE_MAX_TENTHS = 12 };

/* What each server has: of places, or of copies. */
struct shares {
    uint32_t staying;
    uint32_t items; /* all of them */
    uint64_t bytes; /* ... and theirs; 1 for each on top, so that empty ones count */
    uint32_t count_of[PSI_SERVERS_MAX];
    uint64_t bytes_of[PSI_SERVERS_MAX];
};

static bool
stays(const struct move_server *server)
{
    return server->is_here && !server->is_leaving;
}

uint32_t
move_plan_staying(const struct move_places *places)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < PSI_SERVERS_MAX; i++) {
        count += stays(&places->server[i]);
    }
    return count;
}

static uint64_t
weight(const struct move_places *places, uint32_t place)
{
    return places->bytes[place] + 1;
}

static void
count_shares(const struct move_places *places, const uint32_t *at, struct shares *shares_p)
{
    *shares_p = (struct shares){.staying = move_plan_staying(places)};
    for (uint32_t place = 0; place < places->places; place++) {
        if (at[place] != MOVE_NOWHERE) {
            shares_p->items++;
            shares_p->bytes += weight(places, place);
            shares_p->count_of[at[place]]++;
            shares_p->bytes_of[at[place]] += weight(places, place);
        }
    }
}

/* Has the one server less than the other? */
static bool
has_less(const struct shares *shares, uint32_t one, uint32_t other)
{
    return shares->count_of[one] < shares->count_of[other] ||
           (shares->count_of[one] == shares->count_of[other] &&
            shares->bytes_of[one] < shares->bytes_of[other]);
}

/* A copy is never where its place is, nor the place where... it is already. */
static bool
may_have(const struct move_places *places, const struct move *move, uint32_t server)
{
    return stays(&places->server[server]) && places->at[move->place] != server &&
           (!move->is_copy || places->copy_at[move->place] != server);
}

/* A copy in the server is as good as room for the place. */
static bool
has_room(const struct move_places *places, const struct move *move, uint32_t server)
{
    return places->server[server].spare > 0 ||
           (!move->is_copy && places->copy_at[move->place] == server);
}

/* ---- servers that leave -------------------------------------------------------------------- */

/* Where the place of a server that leaves goes to: where its copy is, so that no byte has to move; else to
 * who has least, and not again to the one that it just failed to move to, if there is another. */
static uint32_t
find_heir(const struct move_places *places, const struct shares *shares, const struct move *move)
{
    const uint32_t copy = places->copy_at[move->place];
    uint32_t best = MOVE_NOWHERE;

    if (!move->is_copy && copy != MOVE_NOWHERE && may_have(places, move, copy)) {
        return copy;
    }
    for (uint32_t i = 0; i < PSI_SERVERS_MAX; i++) {
        if (may_have(places, move, i) && has_room(places, move, i) &&
            (best == MOVE_NOWHERE || best == places->shunned[move->place] ||
             (i != places->shunned[move->place] && has_less(shares, i, best)))) {
            best = i;
        }
    }
    return best;
}

static bool
plan_leaving(const struct move_places *places, const struct shares *shares, bool is_copy,
             struct move *move_p)
{
    const uint32_t *at = is_copy ? places->copy_at : places->at;

    for (uint32_t place = 0; place < places->places; place++) {
        if (!places->waits[place] && at[place] != MOVE_NOWHERE &&
            places->server[at[place]].is_leaving) {
            *move_p = (struct move){.place = place, .is_copy = is_copy};
            move_p->to = find_heir(places, shares, move_p);
            if (move_p->to != MOVE_NOWHERE) {
                return true;
            }
        }
    }
    return false;
}

/* ---- servers that come --------------------------------------------------------------------- */

/* Of those that stay, have fewer than their share and were not tried the one that has least; MOVE_NOWHERE:
 * there is none. */
static uint32_t
find_receiver(const struct move_places *places, const struct shares *shares,
              const bool tried[PSI_SERVERS_MAX])
{
    const uint32_t share = shares->items / shares->staying;
    uint32_t best = MOVE_NOWHERE;

    for (uint32_t i = 0; i < PSI_SERVERS_MAX; i++) {
        if (stays(&places->server[i]) && !tried[i] && shares->count_of[i] < share &&
            (best == MOVE_NOWHERE || has_less(shares, i, best))) {
            best = i;
        }
    }
    return best;
}

static bool
keeps_bound(const struct move_places *places, const struct shares *shares, const struct move *move)
{
    const uint64_t after = shares->bytes_of[move->to] + weight(places, move->place);

    return after * 10 * shares->staying <= shares->bytes * SHARE_MAX_TENTHS;
}

/* Is it better to take this one than the best so far? From who has most; there one of the most bytes. */
static bool
is_better(const struct move_places *places, const uint32_t *at, const struct shares *shares,
          uint32_t place, uint32_t best)
{
    const uint32_t from = at[place];
    const uint32_t other = at[best];

    if (shares->count_of[from] != shares->count_of[other]) {
        return shares->count_of[from] > shares->count_of[other];
    }
    if (shares->bytes_of[from] != shares->bytes_of[other]) {
        return shares->bytes_of[from] > shares->bytes_of[other];
    }
    return from == other && places->bytes[place] > places->bytes[best];
}

/* What that server gets next: not what it could not take the last time, unless there is nobody else. */
static bool
plan_receiving(const struct move_places *places, const struct shares *shares, uint32_t to,
               bool may_be_shunned, struct move *move_p)
{
    const bool is_copy = move_p->is_copy;
    const uint32_t *at = is_copy ? places->copy_at : places->at;
    const uint32_t share = shares->items / shares->staying;
    bool found = false;

    for (uint32_t place = 0; place < places->places; place++) {
        const struct move move = {.place = place, .to = to, .is_copy = is_copy};

        if (!places->waits[place] && at[place] != MOVE_NOWHERE &&
            (may_be_shunned || places->shunned[place] != to) &&
            shares->count_of[at[place]] > share && may_have(places, &move, to) &&
            has_room(places, &move, to) && keeps_bound(places, shares, &move) &&
            (!found || is_better(places, at, shares, place, move_p->place))) {
            *move_p = move;
            found = true;
        }
    }
    return found;
}

/* One that can take nothing keeps nobody else waiting. */
static bool
plan_coming(const struct move_places *places, const struct shares *shares, bool is_copy,
            struct move *move_p)
{
    for (unsigned pass = 0; pass < 2 && shares->staying > 0; pass++) {
        bool tried[PSI_SERVERS_MAX] = {false};
        uint32_t to;

        while ((to = find_receiver(places, shares, tried)) != MOVE_NOWHERE) {
            *move_p = (struct move){.is_copy = is_copy};
            if (plan_receiving(places, shares, to, pass > 0, move_p)) {
                return true;
            }
            tried[to] = true;
        }
    }
    return false;
}

static bool
plan(const struct move_places *places, bool is_copy, struct move *move_p)
{
    struct shares shares;

    count_shares(places, is_copy ? places->copy_at : places->at, &shares);
    return plan_leaving(places, &shares, is_copy, move_p) ||
           plan_coming(places, &shares, is_copy, move_p);
}

bool
move_plan_next(const struct move_places *places, bool copies, struct move *move_p)
{
    return plan(places, false, move_p) || (copies && plan(places, true, move_p));
}
