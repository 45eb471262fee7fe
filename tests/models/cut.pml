/*
 * cut.pml - two members cannot hear each other, while the master hears both.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * One chunk of a bulk-synchronous update table, WORKERS workers of ROUNDS steps, three servers as in
 * replicate.pml: server 0 begins as the owner, 1 is its backup, 2 a spare. CUTS times somebody stops
 * hearing somebody else, in one direction only: for ever, or until just after it was reported. FAULTS
 * times a server dies.
 *
 * Whoever hears nothing from the other end tells the master. The master decides:
 *   owner and backup    a view drops the backup; the owner goes on alone, and a spare joins it;
 *   worker and server   if at least half of the workers report the server, and an eligible backup can
 *                       take its chunks, the server is deposed; else the worker counts as dead: it is
 *                       left out (on_worker_death=continue), or the job ends by name (-DON_DEATH_FAIL).
 *
 * A frame to somebody who does not hear waits for ever. A shorter silence is no more than a late
 * frame, and frames are as late as they like anyway. As in replicate.pml a value is the number of the
 * closing that made it, and what is cumulative is a variable that its reader looks at at any time.
 *
 * Shown: whatever a worker is told is in the copy of the owner that counts; no two owners tell
 * different values; a copy is lost by deaths only, never by a cut; every run ends: all steps are done
 * by all workers that were not left out, or the job has ended by name.
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef CUTS
#define CUTS 1
#endif
#ifndef FAULTS
#define FAULTS 0
#endif
#define SERVERS 3
#define NOBODY 3
#define AS_IT_IS 4                     /* in a view: the backup stays, whoever it is */
#define EVERYBODY ((1 << WORKERS) - 1) /* a bit for each rank */
#define BIT(whose) (1 << (whose))

mtype = { CHANGE, SNAPSHOT };
mtype:pair = { ALONE, JOINING, PAIRED };

typedef Server {
    bool alive = true;
    byte deaf_to_workers;     /* bits: whom it does not hear */
    byte deaf_to_servers;
    byte view = 1;
    bool owns;
    byte owner_since;
    mtype:pair pair = ALONE;
    byte backup = NOBODY;
    byte paired_in;           /* the view that named this backup */
    bool has_copy;
    byte version;
    byte committed;
    byte acked;
    byte given;
    byte members;
    byte left_at[WORKERS];    /* a rank that left has part in the steps below */
    byte value[ROUNDS];
    byte answered[WORKERS];
    byte took_view;           /* to the master */
    byte eligible;            /* to the master: the view that named the backup which has everything */
};
Server server[SERVERS];

/* A server is backed up by a later one only: the pairs are 0-1, 0-2 and 1-2. */
#define PAIR(owned_by, kept_by) ((owned_by) + (kept_by) - 1)
chan to_backup[3] = [ROUNDS + 1] of { mtype, byte, byte, byte }; /* kind, n, value, view */
byte has_acked[3];
bool has_snapshot[3];
chan new_view[SERVERS] = [CUTS + FAULTS + 1] of { byte, byte, byte }; /* view, backup, members */

typedef Worker {
    byte deaf_to;             /* bits: the servers that it does not hear */
};
Worker worker[WORKERS];

typedef Push {
    byte to = NOBODY;
    byte step;
    byte view;
};
Push push[WORKERS];

/* Reports to the master; they are not taken back. */
byte unheard[SERVERS];        /* bits: the workers that cannot speak with this server */
bool pair_silent[3];          /* by pair */
byte suspects;                /* bits: servers that have died */

/* From the master. */
byte workers_view = 1;
byte workers_owner = 0;
byte left_out;                /* bits: the ranks that are to leave */
byte done;                    /* bits: the ranks that have said goodbye */
bool named_end;               /* the job has ended, and said why */

/* What only the check knows. */
byte closings;
byte true_owner;
byte told[ROUNDS];
byte said_left_at[WORKERS];   /* what the owner of that moment made of a rank's leaving */
byte cuts;
byte faults;
byte scan;
bool deposed_by_workers;
bool backup_dropped;

/* The steps of a lane, as in replicate.pml. Its own are `me`, `nth`, `number`, `of_view`, `candidate`,
 * `now_members` and `kind`. */

inline apply(fresh) {
    assert(server[me].version < ROUNDS);
    server[me].value[server[me].version] = fresh;
    server[me].version++
}

inline tell(hearer, which) {
    assert(server[true_owner].version > which &&
           server[true_owner].value[which] == server[me].value[which]);
    assert(told[which] == 0 || told[which] == server[me].value[which]);
    told[which] = server[me].value[which];
    if
    :: server[me].answered[hearer] <= which -> server[me].answered[hearer] = which + 1
    :: else
    fi
}

/* What was told before this server became the owner is in its copy. */
inline check_heir() {
    scan = 0;
    do
    :: scan < ROUNDS ->
        assert(told[scan] == 0 || (server[me].version > scan && server[me].value[scan] == told[scan]));
        scan++
    :: else -> break
    od;
    scan = 0
}

inline commit_and_tell() {
    nth = server[me].committed;
    if
    :: server[me].pair != PAIRED -> server[me].committed = server[me].version
    :: server[me].pair == PAIRED && server[me].acked > server[me].committed ->
        server[me].committed = server[me].acked
    :: else
    fi;
    do
    :: nth < server[me].committed ->
        scan = 0;
        do
        :: scan < WORKERS && (server[me].members & BIT(scan)) -> tell(scan, nth); scan++
        :: scan < WORKERS && !(server[me].members & BIT(scan)) -> scan++
        :: else -> break
        od;
        scan = 0;
        nth++
    :: else -> break
    od;
    nth = 0
}

#define HAS_PART(whose) \
    ((server[me].members & BIT(whose)) || server[me].left_at[whose] > server[me].version)
#define HAS_GIVEN(whose) (!HAS_PART(whose) || (server[me].given & BIT(whose)))
#if WORKERS > 2
#define IS_COMPLETE (HAS_GIVEN(0) && HAS_GIVEN(1) && HAS_GIVEN(2))
#else
#define IS_COMPLETE (HAS_GIVEN(0) && HAS_GIVEN(1))
#endif

inline close_if_complete() {
    if
    :: server[me].given != 0 && IS_COMPLETE ->
        server[me].given = 0;
        closings++;
        apply(closings);
        if
        :: server[me].pair != ALONE ->
            to_backup[PAIR(me, server[me].backup)]!CHANGE, server[me].version - 1, closings,
                server[me].view
        :: else
        fi
    :: else
    fi;
    commit_and_tell()
}

inline take_push(sender) {
    if
    :: server[me].owns && push[sender].view >= server[me].owner_since &&
            (server[me].members & BIT(sender)) ->
        if
        :: push[sender].step < server[me].committed -> tell(sender, push[sender].step)
        :: push[sender].step == server[me].version ->
            server[me].given = server[me].given | BIT(sender);
            close_if_complete()
        :: else -> assert(push[sender].step < server[me].version) /* parked until it is safe */
        fi
    :: else
    fi;
    push[sender].to = NOBODY
}

#ifdef BUG_NO_FENCE
#define ACCEPTED true
#else /* nothing of an owner of an older view counts here any more */
#define ACCEPTED (of_view >= server[me].view && !server[me].owns)
#endif

inline take_change(from) {
    to_backup[PAIR(from, me)]?kind, nth, number, of_view;
    if
    :: kind == CHANGE && ACCEPTED && server[me].has_copy ->
        if
        :: nth == server[me].version -> apply(number)
        :: else
        fi;
        has_acked[PAIR(from, me)] = server[me].version;
        server[me].view = of_view
    :: kind == SNAPSHOT && ACCEPTED ->
        assert(!server[me].has_copy);
        number = 0;
        do
        :: number < nth -> apply(server[from].value[number]); number++
        :: else -> break
        od;
        server[me].has_copy = true;
        has_acked[PAIR(from, me)] = server[me].version;
        has_snapshot[PAIR(from, me)] = true;
        server[me].view = of_view
    :: else
    fi;
    kind = 0; nth = 0; number = 0; of_view = 0
}

#define BACKUP_HAS has_acked[PAIR(me, server[me].backup)]
#define BACKUP_HAS_NEWS \
    (server[me].owns && server[me].pair != ALONE && \
     !(server[me].deaf_to_servers & BIT(server[me].backup)) && \
     has_snapshot[PAIR(me, server[me].backup)] && \
     (BACKUP_HAS > server[me].acked || server[me].pair == JOINING || \
      (server[me].eligible < server[me].paired_in && server[me].acked >= server[me].committed)))

inline hear_backup() {
    server[me].acked = BACKUP_HAS;
    server[me].pair = PAIRED;
    if
    :: server[me].acked >= server[me].committed -> server[me].eligible = server[me].paired_in
    :: else
    fi;
    commit_and_tell()
}

/*
 * A rank leaves. It has part in the open round if its gradient is here. A promoted backup has the
 * gradients of no open round, and those of a rank that left will not come again: so for the new owner
 * such a rank has left at the first round that is open here, whatever an earlier view said.
 */
inline let_go(leaver) {
    if
    :: server[me].members & ~now_members & BIT(leaver) ->
        server[me].left_at[leaver] = server[me].version + ((server[me].given & BIT(leaver)) != 0);
        said_left_at[leaver] = server[me].left_at[leaver]
    :: else
    fi
}

inline forget_the_left(leaver) {
#ifdef BUG_STALE_LEAVE
    server[me].left_at[leaver] = said_left_at[leaver]
#else
    server[me].left_at[leaver] = 0 /* below every open round */
#endif
}

inline take_view() {
    new_view[me]?of_view, candidate, now_members;
    assert(of_view > server[me].view && server[me].has_copy);
    server[me].view = of_view;
    if
    :: !server[me].owns ->
        server[me].owns = true;
        server[me].owner_since = of_view;
        server[me].committed = server[me].version;
        forget_the_left(0); forget_the_left(1);
#if WORKERS > 2
        forget_the_left(2);
#endif
        true_owner = me;
        check_heir()
    :: else ->
        let_go(0); let_go(1);
#if WORKERS > 2
        let_go(2);
#endif
    fi;
    server[me].members = now_members;
    if
    :: candidate == AS_IT_IS
    :: candidate == NOBODY -> server[me].pair = ALONE; server[me].backup = NOBODY
    :: candidate < SERVERS ->
        server[me].pair = JOINING;
        server[me].backup = candidate;
        server[me].paired_in = of_view;
        server[me].acked = 0;
        to_backup[PAIR(me, candidate)]!SNAPSHOT, server[me].version, 0, of_view
    fi;
    close_if_complete();
    server[me].took_view = of_view;
    of_view = 0; candidate = 0; now_members = 0
}

#define HEARS_WORKER(who) \
    (server[me].alive && push[who].to == me && !(server[me].deaf_to_workers & BIT(who)))
#define HEARS_SERVER(who) \
    (server[me].alive && nempty(to_backup[PAIR(who, me)]) && !(server[me].deaf_to_servers & BIT(who)))

/* Silence is reported once. */
#define MISSES_WORKER(who) \
    (server[me].alive && server[me].owns && (server[me].deaf_to_workers & BIT(who)) && \
     !(unheard[me] & BIT(who)))
#ifdef BUG_ONE_END_REPORTS
#define MISSES_OWNER(who) false
#else
#define MISSES_OWNER(who) \
    (server[me].alive && (server[me].deaf_to_servers & BIT(who)) && !pair_silent[PAIR(who, me)])
#endif
#define MISSES_BACKUP \
    (server[me].alive && server[me].owns && server[me].pair != ALONE && \
     (server[me].deaf_to_servers & BIT(server[me].backup)) && !pair_silent[PAIR(me, server[me].backup)])

proctype lane(byte me) {
    byte nth, number, of_view, candidate, now_members;
    mtype kind;
end:
    do
    :: d_step { HEARS_WORKER(0) -> take_push(0) }
    :: d_step { HEARS_WORKER(1) -> take_push(1) }
#if WORKERS > 2
    :: d_step { HEARS_WORKER(2) -> take_push(2) }
#endif
    :: d_step { me == 1 && HEARS_SERVER(0) -> take_change(0) }
    :: d_step { me == 2 && HEARS_SERVER(0) -> take_change(0) }
    :: d_step { me == 2 && HEARS_SERVER(1) -> take_change(1) }
    :: d_step { server[me].alive && BACKUP_HAS_NEWS -> hear_backup() }
    :: d_step { server[me].alive && nempty(new_view[me]) -> take_view() }
#ifndef BUG_WORKER_UNREPORTED
    :: d_step { MISSES_WORKER(0) -> unheard[me] = unheard[me] | BIT(0) }
    :: d_step { MISSES_WORKER(1) -> unheard[me] = unheard[me] | BIT(1) }
#if WORKERS > 2
    :: d_step { MISSES_WORKER(2) -> unheard[me] = unheard[me] | BIT(2) }
#endif
#endif
#ifndef BUG_PAIR_UNREPORTED
    :: d_step { MISSES_BACKUP -> pair_silent[PAIR(me, server[me].backup)] = true }
    :: d_step { me == 1 && MISSES_OWNER(0) -> pair_silent[PAIR(0, 1)] = true }
    :: d_step { me == 2 && MISSES_OWNER(0) -> pair_silent[PAIR(0, 2)] = true }
    :: d_step { me == 2 && MISSES_OWNER(1) -> pair_silent[PAIR(1, 2)] = true }
#endif
#ifdef BUG_ALONE_ON_SILENCE
    :: d_step { MISSES_BACKUP && server[me].pair == PAIRED ->
        server[me].pair = ALONE; server[me].backup = NOBODY; commit_and_tell() }
#endif
#ifdef BUG_BACKUP_HELPS_ITSELF
    :: d_step { me == 1 && MISSES_OWNER(0) && !server[me].owns ->
        server[me].owns = true; server[me].view++; server[me].owner_since = server[me].view;
        server[me].members = EVERYBODY; server[me].committed = server[me].version; true_owner = me;
        workers_view = server[me].view; workers_owner = me }
#endif
    od
}

#define ANSWERED_BY(whom) (server[whom].answered[me] > now && !(worker[me].deaf_to & BIT(whom)))
#define GOES_ON (now < ROUNDS && !named_end && !(left_out & BIT(me)))

proctype work(byte me) {
    byte now, known_view = 1, owner = 0;
    bool sent;

    do
    :: !GOES_ON -> break
    :: d_step { GOES_ON && !sent ->
        push[me].to = (server[owner].alive -> owner : NOBODY);
        push[me].step = now; push[me].view = known_view; sent = true }
    :: d_step { GOES_ON && (ANSWERED_BY(0) || ANSWERED_BY(1) || ANSWERED_BY(2)) ->
        now++; sent = false; push[me].to = NOBODY }
    :: d_step { GOES_ON && workers_view > known_view ->
        known_view = workers_view;
        if
        :: workers_owner != owner -> owner = workers_owner; sent = false; push[me].to = NOBODY
        :: else
        fi }
#ifndef BUG_WORKER_UNREPORTED
    :: d_step { GOES_ON && (worker[me].deaf_to & BIT(owner)) && !(unheard[owner] & BIT(me)) ->
        unheard[owner] = unheard[owner] | BIT(me) }
#endif
    od;
#ifdef REACH_DEPOSED_BY_WORKERS
    assert(!(deposed_by_workers && now == ROUNDS && server[1].answered[me] == ROUNDS));
#endif
#ifdef REACH_BACKUP_DROPPED /* the spare was fit to be promoted afterwards */
    assert(!(backup_dropped && now == ROUNDS && server[0].eligible > 1));
#endif
#ifdef REACH_LEFT_OUT /* the others go on */
    assert(!(left_out != 0 && now == ROUNDS && !(left_out & BIT(me))));
#endif
#ifdef REACH_NAMED_END
    assert(!named_end);
#endif
    atomic { done = done | BIT(me); push[me].to = NOBODY;
        now = 0; known_view = 0; owner = 0; sent = false }
}

/* The steps of the master. */

inline order_view(its_backup) {
    view++;
    new_view[owner]!view, its_backup, members;
    waits = true
}

/* The owner goes on or begins without a backup, and the spare joins it, if there is one. */
inline order_new_pair() {
    if
    :: spare != NOBODY && spare > owner -> candidate = spare; spare = NOBODY
    :: else -> candidate = NOBODY
    fi;
    backup = NOBODY;
    order_view(candidate);
    candidate_view = view
}

inline replace_owner() {
    if
    :: backup != NOBODY -> owner = backup; order_new_pair()
#ifdef BUG_DROPPED_YET_PROMOTED
    :: backup == NOBODY && owner == 0 && backup_dropped && !(gone & BIT(1)) ->
        owner = 1; order_new_pair()
#endif
#ifdef BUG_DEPOSED_WITHOUT_HEIR
    :: backup == NOBODY && candidate != NOBODY && server[candidate].has_copy ->
        owner = candidate; order_new_pair()
    :: backup == NOBODY && (candidate == NOBODY || !server[candidate].has_copy) ->
#else
    :: else ->
#endif
        assert(faults > 0); /* a cut takes no copy away */
        named_end = true
    fi
}

inline lose(who) {
    gone = gone | BIT(who);
    spare = (who == spare -> NOBODY : spare);
    if
    :: who == owner -> replace_owner()
    :: who != owner && (who == backup || who == candidate) -> order_new_pair()
    :: else
    fi
}

#define HAS_BACKUP (backup != NOBODY || candidate != NOBODY)
#define BACKUP_OR_CANDIDATE (candidate != NOBODY -> candidate : backup)
#define WORKING (members & ~done)
#define COMPLAINTS (unheard[owner] & WORKING)
#define COUNT(bits) (((bits) & 1) + (((bits) >> 1) & 1) + (((bits) >> 2) & 1))
#ifdef BUG_DEPOSED_WITHOUT_HEIR
#define CAN_BE_TAKEN_OVER true
#else
#define CAN_BE_TAKEN_OVER (backup != NOBODY)
#endif

inline leave_out(who) {
    members = members & ~BIT(who);
    if
#ifdef ON_DEATH_FAIL
    :: named_end = true
#else
    :: (members & ~done) == 0 -> named_end = true
    :: else -> order_view(AS_IT_IS)
#endif
    fi
}

inline heed_complaints() {
    if
    :: 2 * COUNT(COMPLAINTS) >= COUNT(WORKING) && CAN_BE_TAKEN_OVER ->
        deposed_by_workers = true;
        gone = gone | BIT(owner);
        replace_owner()
    :: else ->
        if
        :: COMPLAINTS & BIT(0) -> leave_out(0)
        :: !(COMPLAINTS & BIT(0)) && (COMPLAINTS & BIT(1)) -> leave_out(1)
        :: !(COMPLAINTS & 3) -> leave_out(2)
        fi
    fi
}

proctype master() {
    byte view = 1, owner = 0, backup = 1, candidate = NOBODY, candidate_view, spare = 2, gone;
    byte members = EVERYBODY;
    bool waits; /* for the owner to take the view: workers hear of it after that */
end:
    do
    :: d_step { waits && server[owner].took_view == view ->
        waits = false; workers_view = view; workers_owner = owner; left_out = EVERYBODY & ~members }
    :: d_step { candidate != NOBODY && server[owner].eligible == candidate_view ->
        backup = candidate; candidate = NOBODY }
    :: d_step { !named_end && (suspects & ~gone & 1) -> lose(0) }
    :: d_step { !named_end && (suspects & ~gone & 2) -> lose(1) }
    :: d_step { !named_end && (suspects & ~gone & 4) -> lose(2) }
    :: d_step { !named_end && COMPLAINTS != 0 && !(suspects & BIT(owner)) -> heed_complaints() }
    :: d_step { !named_end && HAS_BACKUP && pair_silent[PAIR(owner, BACKUP_OR_CANDIDATE)] &&
            !(suspects & BIT(owner)) ->
        backup_dropped = true; order_new_pair() }
    od
}

/* Somebody stops hearing: for ever, or until just after it was reported. Rank 2 stands for a worker
 * that nothing happens to, and server 2 owns the chunk only after two promotions. */
inline cut_worker(rank, from) {
    if
    :: workers_owner == from && !(done & BIT(rank)) -> unheard[from] = unheard[from] | BIT(rank)
    :: worker[rank].deaf_to = worker[rank].deaf_to | BIT(from)
    :: server[from].deaf_to_workers = server[from].deaf_to_workers | BIT(rank)
    fi
}

inline cut_servers(one, other) {
    if
    :: server[one].deaf_to_servers = server[one].deaf_to_servers | BIT(other)
    :: server[other].deaf_to_servers = server[other].deaf_to_servers | BIT(one)
    :: pair_silent[PAIR(one, other)] = true
    fi
}

proctype chaos() {
    do
    :: atomic { cuts < CUTS -> cuts++;
        if
#ifndef WORKER_CUTS_ONLY
        :: cut_servers(0, 1)
        :: cut_servers(0, 2)
        :: cut_servers(1, 2)
#endif
        :: cut_worker(0, 0)
        :: cut_worker(0, 1)
        :: cut_worker(1, 0)
        :: cut_worker(1, 1)
        fi }
#ifdef DEATHS_AFTER_LEAVING /* where only these are of interest: there is less to search */
    :: atomic { faults < FAULTS && left_out != 0 -> faults++;
#else
    :: atomic { faults < FAULTS -> faults++;
#endif
        if
        :: server[0].alive = false; suspects = suspects | 1
        :: server[1].alive = false; suspects = suspects | 2
        :: server[2].alive = false; suspects = suspects | 4
        fi }
    :: break
    od
}

init {
    atomic {
        server[0].owns = true; server[0].owner_since = 1; server[0].has_copy = true;
        server[0].backup = 1; server[0].pair = PAIRED; server[0].paired_in = 1; server[0].eligible = 1;
        server[0].took_view = 1; server[1].has_copy = true; has_snapshot[PAIR(0, 1)] = true;
        server[0].members = EVERYBODY;
        run lane(0); run lane(1); run lane(2);
        run work(0); run work(1);
#if WORKERS > 2
        run work(2);
#endif
        run master(); run chaos()
    }
}
