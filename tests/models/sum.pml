/*
 * sum.pml - sum tables: another server takes a chunk over although nothing was replicated.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * One chunk, WORKERS workers of ROUNDS steps, three servers that own the chunk one after the other.
 * FAULTS times a server dies or is taken for dead (then it lives on in its old view and still talks).
 * LEAVERS times the last rank dies and is left out. A worker's buffer holds its gradient and later, in
 * the same place, the result. So once a worker has a result, it cannot repeat the gradient.
 *
 * The gradients of an open round are repeated. The result of a closed one must be shown by a worker
 * that has it, until everybody has it. There are two ways for that, and they mix:
 *   hold (default)  a result is given to the program only when all members have it (RELEASE);
 *   -DKEEP          the program gets it at once, and the library can still show it until it has the
 *                   next one: in the dead server's segment or in a host's memory;
 *   -DMIXED         rank 0 keeps, all others hold.
 *
 * A result is the number of the closing that made it: two closings of one step that programs see are
 * an error, even if their bits would agree. When a worker has died in between they would not.
 *
 * Shown: what is summed are whole gradients; all programs see one result for each step; every run
 * ends, and all live workers have done all their steps unless no server is left.
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef LEAVERS
#define LEAVERS 0
#endif
#define SERVERS 3
#define NOBODY 3
#define EVERYBODY ((1 << WORKERS) - 1) /* a bit for each rank */
#define LAST_RANK (WORKERS - 1)
#define BIT(rank) (1 << (rank))

#ifdef MIXED
#define KEEPS(rank) ((rank) == 0)
#define SAYS_GOT(rank) true /* who keeps says it for the sake of those who hold */
#else
#ifdef KEEP
#define KEEPS(rank) true
#define SAYS_GOT(rank) false /* nobody waits for it */
#else
#define KEEPS(rank) false
#define SAYS_GOT(rank) true
#endif
#endif

/*
 * PUSH   the gradient of a step;
 * GOT    its result is here: said after the value has come, and to a new owner, for the result that
 *        this worker holds or keeps. The number of the result travels with it (in the protocol the
 *        owner asks one of those who have it: GIVE);
 * BASE   to a new owner: nothing is under way, all steps below this one are through.
 */
mtype = { PUSH, GOT, BASE };

/* COMPUTES: the program runs. PUSHED: its gradient is given, the result awaited. HOLDS: the result is
 * here, and the program does not have it yet. */
mtype:phase = { COMPUTES, PUSHED, HOLDS };

typedef Round {
    byte given;  /* whose gradients are here */
    byte got;    /* who is known to have the result */
    byte result; /* 0: none */
};

typedef Server {
    bool alive = true;
    bool owns;
    byte owner_since;
    byte members;
    Round round[ROUNDS];
    byte answered[WORKERS]; /* results sent: of the steps below */
    byte released[WORKERS]; /* releases sent: of the steps below */
    byte took_view;         /* to the master */
};
Server server[SERVERS];

typedef Order { /* a view on its way to the server that it makes, or leaves, the owner */
    bool pending;
    byte view;
    byte members;
};
Order order[SERVERS];

typedef Worker {
    bool alive = true;
    mtype:phase phase = COMPUTES;
    bool torn; /* a part of the result lies over a part of the gradient */
};
Worker worker[WORKERS];

typedef Post { /* the one frame that a worker has under way */
    byte to = NOBODY;
    mtype kind;
    byte step;
    byte result;
    byte view;
};
Post post[WORKERS];

byte workers_view = 1;
byte workers_owner = 0;
byte suspects;      /* a bit for each server that the master shall take for dead */
bool leaver;        /* the master shall leave the last rank out */
bool over;          /* no server is left */
byte ended;         /* workers that have done all their steps */

/* What only the check knows. */
byte closings;      /* numbers handed out to results */
byte seen[ROUNDS];  /* the result that the first program saw; 0: none yet */
byte faults;
byte leavers;
byte rank;          /* an index, 0 between steps */

/* The steps of a lane. `me` and `step` are its own. */

inline close_if_complete(at_step) {
    if
    :: server[me].round[at_step].result == 0 && server[me].round[at_step].given != 0 &&
            (server[me].round[at_step].given & server[me].members) == server[me].members ->
        closings++;
        server[me].round[at_step].result = closings
    :: else
    fi
}

/* The result goes to whoever gave a gradient and does not have it. */
inline answer(a_step) {
    rank = 0;
    do
    :: rank < WORKERS ->
        if
        :: (server[me].round[a_step].given & BIT(rank)) && !(server[me].round[a_step].got & BIT(rank)) &&
                server[me].answered[rank] <= a_step ->
            server[me].answered[rank] = a_step + 1
        :: else
        fi;
        rank++
    :: else -> break
    od;
    rank = 0
}

#ifdef BUG_RELEASE_BY_SOME
#define RELEASES(a_round) (a_round.got != 0)
#else
#define RELEASES(a_round) (a_round.got != 0 && (a_round.got & server[me].members) == server[me].members)
#endif

inline release(r_step) {
    rank = 0;
    do
    :: rank < WORKERS ->
        if
        :: server[me].released[rank] <= r_step -> server[me].released[rank] = r_step + 1
        :: else
        fi;
        rank++
    :: else -> break
    od;
    rank = 0
}

/* Something has come for this step: does that close it, answer it, release it? */
inline look_at(l_step) {
    close_if_complete(l_step);
    if
    :: server[me].round[l_step].result != 0 -> answer(l_step)
    :: else
    fi;
#ifndef KEEP
    if
    :: RELEASES(server[me].round[l_step]) -> release(l_step)
    :: else
    fi
#endif
}

#ifdef BUG_KEEPER_PROVES
#define PROVES(whose) true
#else /* it went on before everybody had the result */
#define PROVES(whose) (!KEEPS(whose))
#endif

/* A worker that was released from all steps below `step` says so by going on: everybody has them. */
inline conclude(speaker) {
    if
    :: step > 0 && PROVES(speaker) ->
        server[me].round[step - 1].got = EVERYBODY;
        look_at((step - 1))
    :: else
    fi
}

inline take_push(giver) {
    assert(worker[giver].phase == PUSHED && !worker[giver].torn);
    server[me].round[step].given = server[me].round[step].given | BIT(giver);
#ifndef BUG_NO_BASE
    conclude(giver);
#endif
    look_at(step)
}

inline take_got(shower) {
    server[me].round[step].got = server[me].round[step].got | BIT(shower);
#ifdef BUG_RESULT_AS_GRADIENT
    server[me].round[step].given = server[me].round[step].given | BIT(shower);
#else
    assert(server[me].round[step].result == 0 || server[me].round[step].result == post[shower].result);
    server[me].round[step].result = post[shower].result;
#endif
    look_at(step)
}

#ifdef BUG_HEARS_THE_DEAD
#define IS_HEARD(sender) (server[me].owns && post[sender].view >= server[me].owner_since)
#else /* a rank that has left is refused, by its incarnation */
#define IS_HEARD(sender) \
    (server[me].owns && post[sender].view >= server[me].owner_since && (server[me].members & BIT(sender)))
#endif

inline take_post(from) {
    step = post[from].step;
    if
    :: IS_HEARD(from) && post[from].kind == PUSH -> take_push(from)
    :: IS_HEARD(from) && post[from].kind == GOT -> take_got(from)
    :: IS_HEARD(from) && post[from].kind == BASE -> conclude(from)
    :: else
    fi;
    post[from].to = NOBODY; step = 0
}

/* A new owner begins with nothing. With fewer members, rounds may be complete. */
inline take_view() {
    order[me].pending = false;
    server[me].members = order[me].members;
    if
    :: !server[me].owns -> server[me].owns = true; server[me].owner_since = order[me].view
    :: else
    fi;
    step = 0;
    do
    :: step < ROUNDS -> look_at(step); step++
    :: else -> break
    od;
    step = 0;
    server[me].took_view = order[me].view
}

proctype lane(byte me) {
    byte step;
end:
    do
    :: d_step { server[me].alive && post[0].to == me -> take_post(0) }
    :: d_step { server[me].alive && post[1].to == me -> take_post(1) }
#if WORKERS > 2
    :: d_step { server[me].alive && post[2].to == me -> take_post(2) }
#endif
    :: d_step { server[me].alive && order[me].pending -> take_view() }
    od
}

/* The steps of a worker. `now` is the step that it is at, `result` what it holds or keeps. */

inline send(what, of_step) {
    post[me].kind = what;
    post[me].step = of_step;
    post[me].result = (what == GOT -> result : 0);
    post[me].view = known_view;
    post[me].to = (server[owner].alive -> owner : NOBODY)
}

/* The program gets the result and goes on. */
inline hand_out() {
    assert(seen[now] == 0 || seen[now] == result);
    seen[now] = result;
    worker[me].phase = COMPUTES;
    now++
}

inline take_result(from_whom) {
    result = server[from_whom].round[now].result;
    worker[me].torn = false;
    post[me].to = NOBODY; /* a repeated push that is still under way ends with the request */
    if
    :: KEEPS(me) ->
        hand_out();
        if
        :: SAYS_GOT(me) -> send(GOT, now - 1)
        :: else
        fi
    :: else -> worker[me].phase = HOLDS; send(GOT, now)
    fi
}

/* On a view with a new owner: nothing of the old one counts any more. The new one hears first what
 * this worker can show or is through with (ADOPT), then pushes are repeated. For a worker that holds
 * nothing the repeated push says both. */
inline adopt() {
    owner = workers_owner;
    post[me].to = NOBODY;
    if
    :: KEEPS(me) -> to_show = true; to_push = (worker[me].phase == PUSHED)
    :: !KEEPS(me) && worker[me].phase == HOLDS -> send(GOT, now)
    :: !KEEPS(me) && worker[me].phase == PUSHED -> send(PUSH, now)
    :: !KEEPS(me) && worker[me].phase == COMPUTES ->
#ifdef BUG_NO_BASE
        skip
#else
        send(BASE, now)
#endif
    fi
}

/* What a worker that keeps shows to a new owner: the last result that it handed out. */
inline show_kept() {
    to_show = false;
#ifndef BUG_NO_SHOW
    if
    :: now > 0 -> send(GOT, now - 1)
    :: else
    fi
#endif
}

#define GOES_ON (now < ROUNDS && worker[me].alive)
#define IS_IDLE (!to_show && post[me].to == NOBODY)
#define IS_ANSWERED_BY(whom) (server[whom].answered[me] > now)
#ifdef BUG_NO_HOLD
#define MAY_HAND_OUT (post[me].to == NOBODY)
#else
#define MAY_HAND_OUT (server[owner].released[me] > now)
#endif

proctype work(byte me) {
    byte now, known_view = 1, owner = 0, result;
    bool to_show; /* a worker that keeps has to show the new owner its last result, */
    bool to_push; /* and after that its gradient */

    do
    :: now == ROUNDS || over || !worker[me].alive -> break
    :: d_step { GOES_ON && IS_IDLE && worker[me].phase == COMPUTES ->
        worker[me].phase = PUSHED; send(PUSH, now) }
    :: d_step { GOES_ON && to_show && post[me].to == NOBODY -> show_kept() }
    :: d_step { GOES_ON && IS_IDLE && to_push && worker[me].phase == PUSHED ->
        to_push = false; send(PUSH, now) }
#ifdef BUG_IN_PLACE
    :: d_step { GOES_ON && worker[me].phase == PUSHED && IS_ANSWERED_BY(owner) ->
        worker[me].torn = true }
#endif
    :: d_step { GOES_ON && worker[me].phase == PUSHED && IS_ANSWERED_BY(owner) -> take_result(owner) }
#ifdef BUG_LATE_ANSWER
    :: d_step { GOES_ON && worker[me].phase == PUSHED && IS_ANSWERED_BY(0) -> take_result(0) }
    :: d_step { GOES_ON && worker[me].phase == PUSHED && IS_ANSWERED_BY(1) -> take_result(1) }
#endif
    :: d_step { GOES_ON && worker[me].phase == HOLDS && MAY_HAND_OUT ->
        hand_out(); result = 0; post[me].to = NOBODY }
    :: d_step { GOES_ON && workers_view > known_view ->
        known_view = workers_view;
        if
        :: workers_owner != owner -> adopt()
        :: else
        fi }
    od;
#ifdef REACH_SHOWN_TWICE /* the third owner ends a job in which it was shown a result it never made */
    assert(!(owner == 2 && now == ROUNDS && server[2].round[0].result != 0 &&
             server[2].round[0].got != 0 && server[2].round[0].given != 0));
#endif
#ifdef REACH_LEAVER /* the others end on a new owner, after a rank has died */
    assert(!(owner != 0 && now == ROUNDS && leavers == 1 && seen[ROUNDS - 1] != 0));
#endif
#ifdef REACH_OVER
    assert(!over);
#endif
    atomic { ended++; to_show = false; to_push = false }
    /* Until all have ended, a new owner may need to hear it, or to be shown the last result. */
    do
    :: atomic { ended == WORKERS || over || !worker[me].alive -> break }
    :: d_step { worker[me].alive && workers_view > known_view && workers_owner != owner ->
        known_view = workers_view;
        owner = workers_owner;
        if
        :: KEEPS(me) -> send(GOT, ROUNDS - 1)
        :: else -> send(BASE, ROUNDS)
        fi }
    :: d_step { workers_view > known_view && workers_owner == owner -> known_view = workers_view }
    od;
    atomic { now = 0; known_view = 0; owner = 0; result = 0 }
}

inline order_view() {
    view++;
    order[owner].pending = true;
    order[owner].view = view;
    order[owner].members = members;
    waits = true
}

/* The next server takes over; whichever of them that is, it has nothing. */
inline lose(who) {
    gone = gone | (1 << who);
    if
    :: who == owner ->
        do
        :: owner < SERVERS && (gone & (1 << owner)) -> owner++
        :: else -> break
        od;
        if
        :: owner == SERVERS -> over = true; owner = 0
        :: else -> order_view()
        fi
    :: else
    fi
}

proctype master() {
    byte view = 1, owner = 0, members = EVERYBODY, gone;
    bool waits; /* for the owner to take the view: workers hear of it after that */
end:
    do
    :: d_step { waits && server[owner].took_view == view ->
        waits = false; workers_view = view; workers_owner = owner }
    :: d_step { !over && (suspects & ~gone & 1) -> lose(0) }
    :: d_step { !over && (suspects & ~gone & 2) -> lose(1) }
    :: d_step { !over && (suspects & ~gone & 4) -> lose(2) }
    :: d_step { !over && leaver -> leaver = false; members = members & ~BIT(LAST_RANK); order_view() }
    od
}

inline fault(who) {
    faults++;
    if
    :: server[who].alive = false
    :: !(suspects & (1 << who)) /* it is only taken for dead */
    fi;
    suspects = suspects | (1 << who)
}

proctype chaos() {
    do
    :: atomic { faults < FAULTS && server[0].alive -> fault(0) }
    :: atomic { faults < FAULTS && server[1].alive -> fault(1) }
    :: atomic { faults < FAULTS && server[2].alive -> fault(2) }
    :: atomic { leavers < LEAVERS -> leavers++; worker[LAST_RANK].alive = false; leaver = true }
    :: break
    od
}

init {
    atomic {
        server[0].owns = true; server[0].owner_since = 1; server[0].members = EVERYBODY;
        server[0].took_view = 1;
        run lane(0); run lane(1); run lane(2);
        run work(0); run work(1);
#if WORKERS > 2
        run work(2);
#endif
        run master(); run chaos()
    }
}
