/*
 * master.pml - the master dies, or is only thought dead, in the middle of a change of view.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Three lanes; lane 1 is the backup of lane 0. The first master (term 1) is about to make a change,
 * called X, in its three moves: propose, commit to the lanes, tell the workers. At any moment it may
 * die, or a second one (term 2) may be started while it lives and goes on. One lane may die, or lane 0
 * may be taken for dead by the second master while it lives on in its old view. The second master
 * reads the lanes, finishes what any of them has taken, and decides for itself (called Y) if none has.
 *
 * A view's number is its term and a count, compared as one number. Lane 0 acts on a view, that is
 * closes rounds by it and answers, as soon as its backup has the view too: a backup acknowledges
 * nothing in a view that it does not have.
 *
 * Shown: X and Y are never both acted on or told to workers; in the end all lanes that count have one
 * view, none is frozen, and a change that was acted on is part of it.
 */
#define LANES 3
#define VIEW(of_term, count) ((of_term) * 16 + (count))
#define FIRST 0
#define SECOND 1

#define NOTHING 0
#define X 1
#define Y 2

typedef Lane {
    bool alive = true;
    byte view = VIEW(1, 1);
    byte decision;  /* what its view decided */
    byte term = 1;  /* of the newest master that it has heard */
    bool frozen;    /* closes no round until it hears of the view that was proposed */
};
Lane lane[LANES];

typedef Talk { /* what a master and a lane have to say to each other */
    bool propose;
    bool proposed;  /* the lane's answer */
    byte commit;    /* the decision + 1; 0: nothing */
    bool committed; /* the lane's answer */
};
Talk talk[6];
#define TALK(master, of_lane) talk[(master) * LANES + (of_lane)]

typedef Report { /* from a lane to the second master */
    bool asked;
    bool heard;
    byte view;
    byte decision;
    bool frozen;
};
Report report[LANES];

bool first_lives = true;
bool first_refused;     /* it will hear that there is a newer master, and leave */
bool second_started;
bool finished[2];
byte number[2];         /* of the view that each master makes */
bool away;              /* the second master takes lane 0 for dead; it lives on */
bool fault_happened;
byte workers_view = VIEW(1, 1);

bool acted_on[3];       /* by decision: by a lane, or by workers */

/* Does lane 0 count for this master? The deaths of lanes are known to both. */
#define COUNTS_0(master) (lane[0].alive && !((master) == SECOND && away))

inline act(on_what) {
    acted_on[on_what] = (on_what != NOTHING);
    assert(!(acted_on[X] && acted_on[Y]))
}

/* A lane has taken a view: can anybody act on it now? */
inline see_who_acts() {
    if
#ifdef BUG_ONE_LANE_ACTS
    :: lane[0].alive -> act(lane[0].decision)
#else
    :: lane[0].alive && lane[1].alive && lane[0].view == lane[1].view -> act(lane[0].decision)
#endif
    /* the second master has promoted lane 1, which has no backup now */
    :: lane[1].alive && !COUNTS_0(SECOND) && lane[1].view >= VIEW(2, 0) -> act(lane[1].decision)
    :: else
    fi
}

#ifdef BUG_NO_TERM
#define OBEYS(master) true
#else
#define OBEYS(master) ((master) + 1 >= lane[me].term)
#endif

inline take_proposal(proposer) {
    TALK(proposer, me).propose = false;
    if
    :: OBEYS(proposer) ->
        lane[me].term = (proposer + 1 > lane[me].term -> proposer + 1 : lane[me].term);
        lane[me].frozen = true;
        TALK(proposer, me).proposed = true
    :: else -> first_refused = true
    fi
}

inline take_view(maker) {
    if
    :: OBEYS(maker) && number[maker] > lane[me].view ->
        lane[me].view = number[maker];
        lane[me].decision = TALK(maker, me).commit - 1;
        lane[me].frozen = false;
        see_who_acts();
        TALK(maker, me).committed = true
    :: OBEYS(maker) && number[maker] <= lane[me].view -> TALK(maker, me).committed = true
    :: else -> first_refused = true
    fi;
    TALK(maker, me).commit = 0
}

/* Greeting the second master, a lane takes its term and refuses the first from then on. */
inline greet_second() {
    report[me].asked = false;
    lane[me].term = 2;
    report[me].view = lane[me].view;
    report[me].decision = lane[me].decision;
    report[me].frozen = lane[me].frozen;
    report[me].heard = true
}

proctype serve(byte me) {
end:
    do
    :: atomic { lane[me].alive && report[me].asked -> greet_second() }
    :: atomic { lane[me].alive && TALK(FIRST, me).propose -> take_proposal(FIRST) }
    :: atomic { lane[me].alive && TALK(SECOND, me).propose -> take_proposal(SECOND) }
    :: atomic { lane[me].alive && TALK(FIRST, me).commit != 0 -> take_view(FIRST) }
    :: atomic { lane[me].alive && TALK(SECOND, me).commit != 0 -> take_view(SECOND) }
    od
}

#define ALL_HAVE(master, answer) \
    ((!COUNTS_0(master) || TALK(master, 0).answer) && (!lane[1].alive || TALK(master, 1).answer) && \
     (!lane[2].alive || TALK(master, 2).answer))

inline propose_to_lanes(who) {
    TALK(who, 0).propose = COUNTS_0(who);
    TALK(who, 1).propose = lane[1].alive;
    TALK(who, 2).propose = lane[2].alive
}

/* One after the other, so that a death may come in between; those who are to be owners first. */
inline commit_to_lanes(who, what) {
    atomic { TALK(who, 1).commit = (lane[1].alive -> what + 1 : 0) }
    atomic { TALK(who, 0).commit = (COUNTS_0(who) -> what + 1 : 0) }
    atomic { TALK(who, 2).commit = (lane[2].alive -> what + 1 : 0) }
}

/* Workers take a view if it is newer than theirs. */
inline tell_workers(who, what) {
    if
    :: number[who] > workers_view -> workers_view = number[who]; act(what)
    :: else
    fi
}

proctype first_master() {
    {
        atomic { propose_to_lanes(FIRST) };
        if
        :: atomic { ALL_HAVE(FIRST, proposed) -> number[FIRST] = VIEW(1, 2) }
        :: first_refused -> goto leaves
        fi;
#ifdef BUG_WORKERS_FIRST
        atomic { tell_workers(FIRST, X) };
#endif
        commit_to_lanes(FIRST, X);
        if
        :: atomic { ALL_HAVE(FIRST, committed) -> tell_workers(FIRST, X); finished[FIRST] = true }
        :: first_refused -> goto leaves
        fi
    } unless { !first_lives };
leaves:
    skip
}

#ifdef BUG_FIRST_REPLY
#define HEARD_ENOUGH (report[0].heard || report[1].heard || report[2].heard)
#else
#define HEARD_ENOUGH \
    ((!COUNTS_0(SECOND) || report[0].heard) && (!lane[1].alive || report[1].heard) && \
     (!lane[2].alive || report[2].heard))
#endif

/* The highest view among the lanes that count is the truth. */
inline read_report(whose, counts) {
    if
    :: counts && report[whose].heard ->
        calm = calm && !report[whose].frozen && (highest == 0 || report[whose].view == highest);
        if
        :: report[whose].view > highest ->
            highest = report[whose].view; decision = report[whose].decision
        :: else
        fi
    :: else
    fi
}

proctype second_master() {
    byte highest, decision;
    bool calm; /* all lanes have one view, and none is frozen: nothing was under way */

end_never_needed:
    second_started;
    atomic { report[0].asked = true; report[1].asked = true; report[2].asked = true };
    atomic { HEARD_ENOUGH ->
        calm = true;
        read_report(0, COUNTS_0(SECOND));
        read_report(1, lane[1].alive);
        read_report(2, lane[2].alive);
#ifdef BUG_FORGETS
        decision = NOTHING;
#endif
#ifdef BUG_SAME_NUMBER
        number[SECOND] = highest + 1;
#else
        number[SECOND] = VIEW(2, 1);
#endif
        if
        :: decision == NOTHING -> decision = Y /* a change of its own */
        :: true                                /* or none */
        fi;
        if
#ifdef BUG_STAYS_FROZEN
        :: decision == NOTHING -> finished[SECOND] = true
#else
        :: decision == NOTHING && calm -> finished[SECOND] = true
#endif
        :: else -> propose_to_lanes(SECOND)
        fi
    };
#ifdef REACH_NOTHING_TO_DO
    assert(!finished[SECOND]);
#endif
    if
    :: finished[SECOND]
    :: else ->
        atomic { ALL_HAVE(SECOND, proposed) };
        commit_to_lanes(SECOND, decision);
        atomic { ALL_HAVE(SECOND, committed) -> tell_workers(SECOND, decision); finished[SECOND] = true }
    fi;
#ifdef REACH_FINISHES_FOR_THE_FIRST
    assert(!(!finished[FIRST] && acted_on[X] && lane[2].decision == X));
#endif
#ifdef REACH_DECIDES_ANEW /* while the first one lives, and was sure of its change */
    assert(!(acted_on[Y] && first_lives && number[FIRST] != 0));
#endif
#ifdef REACH_OLD_VIEW_LIVES /* X stands in a lane that nobody hears any more, and Y is in force */
    assert(!(acted_on[Y] && away && lane[0].decision == X));
#endif
    atomic { highest = 0; decision = 0; calm = false }
}

proctype chaos() {
    do
    :: atomic { !second_started -> second_started = true } /* while the first may live */
    :: atomic { first_lives -> first_lives = false; second_started = true }
    :: atomic { !fault_happened -> fault_happened = true;
        if
        :: lane[0].alive = false
        :: lane[1].alive = false
        :: lane[2].alive = false
        :: !report[0].heard -> away = true
        fi }
    :: break
    od
}

#define AGREE(one, other) \
    (lane[one].view == lane[other].view && lane[one].decision == lane[other].decision)

/* Looks when nothing moves any more. */
proctype judge() {
    atomic {
        timeout ->
        assert(finished[SECOND] || (finished[FIRST] && !second_started));
        assert(!COUNTS_0(SECOND) || !lane[0].frozen);
        assert(!lane[1].alive || !lane[1].frozen);
        assert(!lane[2].alive || !lane[2].frozen);
        assert(!COUNTS_0(SECOND) || !lane[1].alive || AGREE(0, 1));
        assert(!COUNTS_0(SECOND) || !lane[2].alive || AGREE(0, 2));
        assert(!lane[1].alive || !lane[2].alive || AGREE(1, 2));
        assert(!acted_on[X] || (lane[2].alive -> lane[2].decision : lane[1].decision) == X);
        assert(!acted_on[Y] || (lane[2].alive -> lane[2].decision : lane[1].decision) == Y)
    }
}

init {
    atomic {
        run serve(0); run serve(1); run serve(2);
        run first_master(); run second_master(); run chaos(); run judge()
    }
}
