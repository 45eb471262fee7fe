/*
 * join.pml - a worker joins while the others train, and nobody has to stop.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Two lanes with a chunk each, two workers that push every step to both, a third that joins, ROUNDS
 * steps. The master asks the lanes how far they are. Each promises to close nothing from the second
 * step after that on, until it hears from which step the joiner takes part: the one after the furthest.
 * Lanes answer when they like, and hear the outcome when they like.
 *
 * Shown: both lanes close a step with the same members; the joiner takes part in no step that is
 * closed already; all steps end.
 */
#ifndef ROUNDS
#define ROUNDS 5
#endif
#define LANES 2
#define JOINER 2
#define NEVER 99
#define BIT(rank) (1 << (rank))

typedef Lane {
    byte version;             /* rounds closed */
    byte given;               /* the open round: whose gradients are here */
    byte joined_at = NEVER;   /* the joiner takes part from this step on */
    byte promised = NEVER;    /* nothing from this step on is closed */
    byte first_step;          /* from the master: joined_at + 1; 0: nothing */
    bool asked;               /* by the master */
    bool answered;
    byte opened;              /* its answer: the first step that has no gradient here */
    bool took_view;
};
Lane lane[LANES];

typedef Worker {
    byte gave[LANES];         /* its pushes under way or there: of the steps below */
};
Worker worker[3];

byte joins_at = NEVER;        /* what the joiner is told */
byte members[ROUNDS];         /* of the first closing of a step; 0: none yet */

#define MEMBERS_NOW (lane[me].version >= lane[me].joined_at -> 7 : 3)
#define IS_COMPLETE (lane[me].version < ROUNDS && lane[me].given == MEMBERS_NOW)

inline answer_master() {
    lane[me].asked = false;
    lane[me].opened = lane[me].version + (lane[me].given != 0);
#ifndef BUG_NO_PROMISE
    lane[me].promised = lane[me].opened + 1;
#endif
    lane[me].answered = true
}

inline take_view() {
    lane[me].joined_at = lane[me].first_step - 1;
    lane[me].first_step = 0;
    lane[me].promised = NEVER;
    assert(lane[me].version <= lane[me].joined_at);
    lane[me].took_view = true
}

inline close_round() {
    assert(members[lane[me].version] == 0 || members[lane[me].version] == lane[me].given);
    members[lane[me].version] = lane[me].given;
    lane[me].given = 0;
    lane[me].version++
}

#define HAS_COME(rank) (worker[rank].gave[me] > lane[me].version && !(lane[me].given & BIT(rank)))

proctype serve(byte me) {
end:
    do
    :: d_step { lane[me].asked -> answer_master() }
    :: d_step { lane[me].first_step != 0 -> take_view() }
    :: d_step { HAS_COME(0) -> lane[me].given = lane[me].given | BIT(0) }
    :: d_step { HAS_COME(1) -> lane[me].given = lane[me].given | BIT(1) }
    :: d_step { HAS_COME(JOINER) && lane[me].version >= lane[me].joined_at ->
        lane[me].given = lane[me].given | BIT(JOINER) }
    :: d_step { IS_COMPLETE && lane[me].version < lane[me].promised -> close_round() }
#ifdef REACH_PROMISE_HELD_UP
    :: d_step { IS_COMPLETE && lane[me].version >= lane[me].promised -> assert(false) }
#endif
    od
}

proctype work(byte me) {
    byte now;

    if
    :: me == JOINER -> atomic { joins_at != NEVER ->
        now = joins_at; worker[me].gave[0] = now; worker[me].gave[1] = now }
    :: else
    fi;
    do
    :: now >= ROUNDS -> break
    :: now < ROUNDS ->
        if
        :: worker[me].gave[0] = now + 1; worker[me].gave[1] = now + 1
        :: worker[me].gave[1] = now + 1; worker[me].gave[0] = now + 1
        fi;
        atomic { lane[0].version > now && lane[1].version > now -> now++ }
    od
}

proctype master() {
    byte first;

    lane[0].asked = true;
    lane[1].asked = true;
    atomic { lane[0].answered && lane[1].answered ->
        first = (lane[0].opened > lane[1].opened -> lane[0].opened : lane[1].opened) + 1;
#ifdef BUG_TOO_EARLY
        first--
#endif
    };
#ifdef REACH_LANES_APART
    assert(lane[0].opened == lane[1].opened);
#endif
    if
    :: lane[0].first_step = first + 1; lane[1].first_step = first + 1
    :: lane[1].first_step = first + 1; lane[0].first_step = first + 1
    fi;
    lane[0].took_view && lane[1].took_view;
    joins_at = first
}

init {
    atomic {
        run serve(0); run serve(1);
        run work(0); run work(1); run work(JOINER);
        run master()
    }
}
