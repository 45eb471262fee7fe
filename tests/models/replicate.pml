/*
 * replicate.pml - update tables: what an owner tells is safe with its backup, and views say who owns.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * One chunk, two workers of ROUNDS steps, three servers of one lane. Server 0 begins as the owner, 1
 * is its backup, 2 a spare that becomes a backup when one is missing. Up to FAULTS times a server
 * dies or is taken for dead. One that is taken for dead lives on in its old view and still talks: the
 * deposed owner.
 *
 * How frames travel. Changes and snapshots go through a queue for each pair of servers, views through
 * one for each server; what a dead server has sent still arrives. All else is cumulative (answers,
 * acknowledgements, reports to the master, the workers' view), so it is a variable that its reader
 * looks at whenever it likes: that covers frames that are late, repeated or overtaken.
 *
 * A value is the number of the closing that made it. So two closings of one round are two values, even
 * if their bits would agree. Bulk-synchronous tables need less; asynchronous ones need just this.
 *
 * Shown: whatever a worker is told is in the copy of the owner that counts; nothing counts twice; all
 * are told the same; every run ends with all steps done, or with the loss of both copies said aloud.
 */
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#define WORKERS 2
#define EVERYBODY 3 /* a bit for each worker */
#define SERVERS 3
#define NOBODY 3

#ifdef ASYNCHRONOUS /* every push is a change of its own, and its value names worker and step */
#define CHANGES (WORKERS * ROUNDS)
#define VALUE_OF(worker, at_step) ((worker) * ROUNDS + (at_step) + 1)
#define GIVER_OF(number) (((number) - 1) / ROUNDS)
#define STEP_OF(number) (((number) - 1) % ROUNDS)
#else
#define CHANGES ROUNDS
#endif

mtype = { CHANGE, SNAPSHOT };
mtype:pair = { ALONE, JOINING, PAIRED };

typedef Server {
    bool alive = true;
    byte view = 1;            /* the newest it knows */
    bool owns;                /* takes pushes */
    byte owner_since;         /* the view that made it the owner: older frames are refused */
    mtype:pair pair = ALONE;  /* how it stands with its backup */
    byte backup = NOBODY;
    bool has_copy;            /* a candidate has none before its snapshot */
    byte version;             /* changes applied */
    byte committed;           /* of these, how many may be told */
    byte acked;               /* of these, how many the backup is known to have */
    byte given;               /* the open round: whose gradients are here */
    byte value[CHANGES];      /* value[n] is what change n made */
    byte next_step[WORKERS];  /* asynchronous: the marks, by which a repeated push is known */
    byte answered[WORKERS];   /* steps for which it has told a worker the outcome */
    byte took_view = 0;       /* to the master: the newest view in force here */
    byte eligible = 0;        /* to the master: the view whose backup has all that was told */
};
Server server[SERVERS];

/* A server is backed up by a later one only: the pairs are 0-1, 0-2 and 1-2. */
#define PAIR(owned_by, kept_by) ((owned_by) + (kept_by) - 1)
chan to_backup[3] = [CHANGES + 1] of { mtype, byte, byte, byte }; /* kind, n, value, view */
byte has_acked[3];        /* by pair: how many changes the backup has */
bool has_snapshot[3];     /* by pair: the backup has a copy */
chan new_view[SERVERS] = [FAULTS + 1] of { byte, byte }; /* view, who is to become the backup */

typedef Push {
    byte to = NOBODY;
    byte step;
    byte view;
};
Push push[WORKERS]; /* the one frame that a worker has under way */

byte workers_view = 1;
byte workers_owner = 0;
byte suspects;      /* a bit for each server that the master shall take for dead */
bool lost;          /* no copy is left: the job ends by name, or goes back to a checkpoint */

/* What only the check knows. */
byte closings;      /* numbers handed out to values */
byte true_owner;    /* the owner that counts, from the moment at which it knows */
byte told[CHANGES]; /* the value that was told first; 0: nobody has been told */
byte faults;
byte scan;          /* an index, 0 between steps */

/* The steps of a lane. `me`, `step`, `nth`, `number`, `of_view`, `candidate` and `kind` are its own. */

inline apply(fresh) {
    assert(server[me].version < CHANGES);
    scan = 0;
    do
    :: scan < server[me].version -> assert(server[me].value[scan] != fresh); scan++
    :: else -> break
    od;
    scan = 0;
    server[me].value[server[me].version] = fresh;
    server[me].version++
}

/* A worker is told the outcome of one of its steps, which is change `which` of the chunk. */
inline tell(hearer, its_step, which) {
    assert(server[true_owner].version > which &&
           server[true_owner].value[which] == server[me].value[which]);
    assert(told[which] == 0 || told[which] == server[me].value[which]);
    told[which] = server[me].value[which];
    if
    :: server[me].answered[hearer] <= its_step -> server[me].answered[hearer] = its_step + 1
    :: else
    fi
}

/* What was told before this server became the owner is in its copy. */
inline check_heir() {
    scan = 0;
    do
    :: scan < CHANGES ->
        assert(told[scan] == 0 || (server[me].version > scan && server[me].value[scan] == told[scan]));
        scan++
    :: else -> break
    od;
    scan = 0
}

/* Commits what is safe by now, and tells those who wait for it. */
inline commit_and_tell() {
    nth = server[me].committed;
    if
#ifdef BUG_ACK_FIRST
    :: server[me].committed = server[me].version
#else
    :: server[me].pair != PAIRED -> server[me].committed = server[me].version
    :: server[me].pair == PAIRED && server[me].acked > server[me].committed ->
        server[me].committed = server[me].acked
    :: else
#endif
    fi;
    do
    :: nth < server[me].committed ->
#ifdef ASYNCHRONOUS
        tell(GIVER_OF(server[me].value[nth]), STEP_OF(server[me].value[nth]), nth);
#else
        tell(0, nth, nth);
        tell(1, nth, nth);
#endif
        nth++
    :: else -> break
    od;
    nth = 0
}

/* A change is complete at the owner: it is applied here, and goes to the backup. */
inline close_change(made) {
    apply(made);
    if
    :: server[me].pair != ALONE ->
        to_backup[PAIR(me, server[me].backup)]!CHANGE, server[me].version - 1, made, server[me].view
    :: else
    fi;
    commit_and_tell()
}

#ifdef ASYNCHRONOUS
inline count_push(giver) {
    if
    :: step < server[me].next_step[giver] -> /* repeated: told again, if it may be told */
        nth = 0;
        do
        :: server[me].value[nth] != VALUE_OF(giver, step) -> nth++
        :: else -> break
        od;
        if
        :: nth < server[me].committed -> tell(giver, step, nth)
        :: else
        fi;
        nth = 0
    :: else ->
        assert(step == server[me].next_step[giver]);
        server[me].next_step[giver] = step + 1;
        close_change(VALUE_OF(giver, step))
    fi
}
#else
inline count_push(giver) {
    if
    :: step < server[me].committed -> tell(giver, step, step)
    :: step >= server[me].committed && step < server[me].version /* parked until it is safe */
    :: step >= server[me].version ->
        assert(step == server[me].version);
        server[me].given = server[me].given | (1 << giver);
        if
        :: server[me].given == EVERYBODY ->
            server[me].given = 0;
            closings++;
            close_change(closings)
        :: else
        fi
    fi
}
#endif

inline take_push(sender) {
    step = push[sender].step;
    if
    :: server[me].owns && push[sender].view >= server[me].owner_since -> count_push(sender)
    :: else /* refused: the worker will hear of the view that it lacks */
    fi;
    push[sender].to = NOBODY; step = 0
}

#ifdef ASYNCHRONOUS
#define MARK(giver_and_step) \
    server[me].next_step[GIVER_OF(giver_and_step)] = STEP_OF(giver_and_step) + 1
#else
#define MARK(giver_and_step) skip
#endif

#ifdef BUG_NO_MARKS
#define MARK_CHANGE(giver_and_step) skip
#else
#define MARK_CHANGE(giver_and_step) MARK(giver_and_step)
#endif

#ifdef BUG_NO_FENCE
#define ACCEPTED true
#else /* an owner of an older view is deposed: nothing of it counts here any more */
#define ACCEPTED (of_view >= server[me].view && !server[me].owns)
#endif

inline take_change(from) {
    to_backup[PAIR(from, me)]?kind, nth, number, of_view;
    if
    :: kind == CHANGE && ACCEPTED && server[me].has_copy ->
        if
        :: nth == server[me].version -> apply(number); MARK_CHANGE(number)
        :: else /* the snapshot had it */
        fi;
        has_acked[PAIR(from, me)] = server[me].version
    :: kind == SNAPSHOT && ACCEPTED ->
        assert(!server[me].has_copy);
        /* Its length travels; the values below it never change, so they are read at their sender's. */
        number = 0;
        do
        :: number < nth ->
            apply(server[from].value[number]);
            MARK(server[from].value[number]);
            number++
        :: else -> break
        od;
        server[me].has_copy = true;
        has_acked[PAIR(from, me)] = server[me].version;
        has_snapshot[PAIR(from, me)] = true
    :: else
    fi;
    if /* a backup acknowledges only in a view that it has itself: the owner forwards it */
    :: ACCEPTED && of_view > server[me].view -> server[me].view = of_view
    :: else
    fi;
    kind = 0; nth = 0; number = 0; of_view = 0
}

#define BACKUP_HAS has_acked[PAIR(me, server[me].backup)]

/* There is something to hear from the backup, or to report about it. */
#define BACKUP_HAS_NEWS \
    (server[me].owns && server[me].pair != ALONE && has_snapshot[PAIR(me, server[me].backup)] && \
     (BACKUP_HAS > server[me].acked || server[me].pair == JOINING || \
      (server[me].eligible < server[me].view && server[me].acked >= server[me].committed)))

/* From the first acknowledgement on, answers wait for the backup. It is fit to be promoted only when
 * it has caught up with what was told without it. */
inline hear_backup() {
    server[me].acked = BACKUP_HAS;
    server[me].pair = PAIRED;
    if
#ifdef BUG_EARLY_ELIGIBLE
    :: server[me].eligible < server[me].view ->
#else
    :: server[me].eligible < server[me].view && server[me].acked >= server[me].committed ->
#endif
        server[me].eligible = server[me].view
    :: else
    fi;
    commit_and_tell()
}

/* Views are sent to the server that they make, or leave, the owner. Promotion moves no data. */
inline take_view() {
    new_view[me]?of_view, candidate;
    assert(of_view > server[me].view && server[me].has_copy);
    server[me].view = of_view;
    if
    :: !server[me].owns ->
        server[me].owns = true;
        server[me].owner_since = of_view;
        server[me].committed = server[me].version;
        true_owner = me;
        check_heir()
    :: else
    fi;
    server[me].acked = 0;
    server[me].backup = candidate;
    if
    :: candidate == NOBODY -> server[me].pair = ALONE
    :: else ->
        server[me].pair = JOINING;
        to_backup[PAIR(me, candidate)]!SNAPSHOT, server[me].version, 0, of_view
    fi;
    commit_and_tell();
    server[me].took_view = of_view;
    of_view = 0; candidate = 0
}

proctype lane(byte me) {
    byte step, nth, number, of_view, candidate;
    mtype kind;
end:
    do
    :: d_step { server[me].alive && push[0].to == me -> take_push(0) }
    :: d_step { server[me].alive && push[1].to == me -> take_push(1) }
    :: d_step { server[me].alive && me == 1 && nempty(to_backup[PAIR(0, 1)]) -> take_change(0) }
    :: d_step { server[me].alive && me == 2 && nempty(to_backup[PAIR(0, 2)]) -> take_change(0) }
    :: d_step { server[me].alive && me == 2 && nempty(to_backup[PAIR(1, 2)]) -> take_change(1) }
    :: d_step { server[me].alive && BACKUP_HAS_NEWS -> hear_backup() }
    :: d_step { server[me].alive && nempty(new_view[me]) -> take_view() }
#ifdef BUG_SOLO_ALONE
    /* The connection to the backup breaks, and the owner does not wait for a view. */
    :: d_step { server[me].alive && server[me].pair == PAIRED && (suspects & (1 << me)) ->
        server[me].pair = ALONE; server[me].backup = NOBODY; commit_and_tell() }
#endif
    od
}

/* The push of the step that is under way, to whom this worker takes for the owner. */
inline send_push() {
    push[me].to = (server[owner].alive -> owner : NOBODY);
    push[me].step = now;
    push[me].view = known_view
}

#define ANSWERED \
    (server[0].answered[me] > now || server[1].answered[me] > now || server[2].answered[me] > now)

proctype worker(byte me) {
    byte now, known_view = 1, owner = 0;
    bool sent, may_repeat = (me == 0);

    do
    :: now == ROUNDS || lost -> break
    :: d_step { now < ROUNDS && !sent && !lost ->
        send_push(); sent = true }
    /* A connection was cut: what is unanswered is sent again. Once in a run, by one worker. */
    :: d_step { sent && may_repeat && push[me].to == NOBODY && server[owner].alive && !lost ->
        send_push(); may_repeat = false }
    /* Whoever answers, a deposed owner too, has told the truth. */
    :: d_step { now < ROUNDS && ANSWERED -> now++; sent = false; push[me].to = NOBODY }
    :: d_step { workers_view > known_view ->
        known_view = workers_view;
        if
        :: workers_owner != owner -> owner = workers_owner; sent = false; push[me].to = NOBODY
        :: else
        fi }
    od;
#ifdef REACH_TWO_PROMOTIONS
    assert(!(true_owner == 2 && server[1].owns && now == ROUNDS && !lost));
#endif
#ifdef REACH_DEPOSED_ANSWERS /* the last answer came from one that was no longer the owner */
    assert(!(now == ROUNDS && true_owner == 1 && server[0].alive && server[1].answered[me] < ROUNDS));
#endif
#ifdef REACH_LOST
    assert(!lost);
#endif
    atomic { push[me].to = NOBODY; now = 0; known_view = 0; owner = 0; sent = false; may_repeat = false }
}

#ifdef BUG_PROMOTE_ANY /* whoever has a copy is promoted, whether it has everything or not */
#define FIT_FOR_OWNER(who) (server[who].has_copy && !(gone & (1 << (who))))
#define SUCCESSOR \
    (backup != NOBODY -> backup : (FIT_FOR_OWNER(1) -> 1 : (FIT_FOR_OWNER(2) -> 2 : NOBODY)))
#else
#define SUCCESSOR backup
#endif

/* The owner keeps or gets the chunk, and the spare becomes its backup, if it can. */
inline order_view() {
    if
    :: spare != NOBODY && spare > owner -> candidate = spare; spare = NOBODY
    :: else -> candidate = NOBODY
    fi;
    backup = NOBODY;
    view++;
    new_view[owner]!view, candidate;
    waits = true
}

inline lose(who) {
    gone = gone | (1 << who);
    spare = (who == spare -> NOBODY : spare);
    if
    :: who == owner ->
        owner = SUCCESSOR;
        if
        :: owner == NOBODY -> lost = true; owner = who
        :: else -> order_view()
        fi
    :: who != owner && (who == backup || who == candidate) -> order_view()
    :: else
    fi
}

proctype master() {
    byte view = 1, owner = 0, backup = 1, candidate = NOBODY, spare = 2, gone;
    bool waits; /* for the owner to take the view: workers hear of it after that */
end:
    do
    :: d_step { waits && server[owner].took_view == view ->
        waits = false; workers_view = view; workers_owner = owner }
    :: d_step { candidate != NOBODY && server[owner].eligible == view ->
        backup = candidate; candidate = NOBODY }
    :: d_step { !lost && (suspects & ~gone & 1) -> lose(0) }
    :: d_step { !lost && (suspects & ~gone & 2) -> lose(1) }
    :: d_step { !lost && (suspects & ~gone & 4) -> lose(2) }
    od
}

/* A server dies, which is noticed some time; or it is only taken for dead. */
inline fault(who) {
    faults++;
    if
    :: server[who].alive = false
    :: !(suspects & (1 << who))
    fi;
    suspects = suspects | (1 << who)
}

proctype chaos() {
    do
    :: atomic { faults < FAULTS && server[0].alive -> fault(0) }
    :: atomic { faults < FAULTS && server[1].alive -> fault(1) }
    :: atomic { faults < FAULTS && server[2].alive -> fault(2) }
    :: break
    od
}

init {
    atomic {
        server[0].owns = true; server[0].owner_since = 1; server[0].has_copy = true;
        server[0].backup = 1; server[0].pair = PAIRED; server[1].has_copy = true;
        server[0].took_view = 1; server[0].eligible = 1; has_snapshot[PAIR(0, 1)] = true;
        run lane(0); run lane(1); run lane(2);
        run worker(0); run worker(1);
        run master(); run chaos()
    }
}
