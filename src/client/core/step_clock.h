/*
 * step_clock.h - where the time of a worker's steps goes.
 *
 * A step lasts from the end of the one before to its own: when the last operation has ended that
 * was under way before the first push of a later step. Within it the program computes, or is in a
 * call of ours that sends, or waits: asleep, or busy with what comes. Waiting is what a thread does
 * that has called psd_wait() or the like; what happens while nobody waits is hidden behind
 * computing, and costs the step nothing.
 *
 * It runs while somebody watches, with every operation, so it costs little: the clock is read where
 * it is read anyway, at the beginning and the end of a turn (an event within a turn is noted, and
 * gets its time at the end of it), and nothing is kept of a step that will not be told, unless the
 * next one will, which begins with its end.
 *
 * The turn that ends a step may be another thread's, while the program still sleeps: what it has
 * slept by then is the step's, and so is the rest, until it wakes.
 *
 * It knows one program: where several threads push and wait at a time, their times overlap, and are
 * cut to what fits into the step.
 */
#ifndef PSI_CLIENT_CORE_STEP_CLOCK_H
#define PSI_CLIENT_CORE_STEP_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/counter.h"
#include "wire/message.h"

struct step_parts {
    uint64_t encode_ns;
    uint64_t send_ns;
    uint64_t wait_ns;
    uint64_t receive_ns;
};

/* A step that is kept; what is told of it is worked out when it is told. */
struct step_record {
    uint64_t step;
    uint64_t begin_ns;             /* the end of the one before; 0: not known */
    struct step_parts begin_parts; /* since ever, up to then */
    uint64_t end_ns;               /* when nothing was under way; 0: not yet */
    struct step_parts end_parts;   /* since ever, up to then */
    uint64_t pushed_ns;            /* its first push */
    uint64_t server_ns;            /* when the last server had answered all, ... */
    uint64_t other_ns;             /* ... and another one; 0: there is none */
    uint32_t server;               /* which the last was; UINT32_MAX: none has */
};

/* What has happened in this turn. */
enum {
    STEP_DRAINED = 1,  /* nothing is under way */
    STEP_ANSWERED = 2, /* a server has answered all ... */
    STEP_BOTH = 4,     /* ... as has another one */
};

/* What makes a push or a turn worth more than an addition. */
enum {
    STEP_KEPT = 1,   /* the step that runs, or the one after it, is told: its end is kept */
    STEP_TOLD = 2,   /* it is told itself */
    STEP_LARGE = 4,  /* steps move tensors that are worth a look at the clock */
    STEP_ASLEEP = 8, /* the program is: the turn is another thread's */
};

/*
 * Of many steps not all are told: those whose number is a multiple of 2^sparse. So all workers of a
 * job tell of the same ones, at whatever moments they tell. The others go by at the price of two
 * comparisons, whether somebody watches or not: what they are compared with says which they are.
 *
 * Thread: as the client's; `on` may be read by any thread.
 */
struct step_clock {
    _Atomic bool on;    /* somebody watches */
    uint8_t heed;       /* STEP_KEPT and so on */
    bool running;       /* there is a step */
    unsigned events;    /* of this turn, while it is kept */
    uint64_t step;      /* of the last push */
    uint64_t heed_from; /* pushes of this step, or later, are looked at */
    uint64_t next;      /* before that: a push of this one, or later, is its first */
    uint64_t asleep_ns; /* the program waits, and nobody has counted it since; 0: it does not */
    uint64_t count;     /* steps that have ended, ever */
    struct step_parts parts; /* since ever */
    uint64_t untold;         /* of the steps that have ended, those that were left out */
    uint64_t untold_bits;    /* steps that have one of them are not told */
    uint64_t woke_ns;        /* something came; not after asleep_ns: nobody looked when */
    uint32_t sparse;
    uint32_t done_count;     /* to be told, ... */
    struct step_record *now; /* ... and behind them the one that runs: kept[done_count] */
    struct step_record kept[PSI_STEPS_MAX + 1];
};

/* Nobody watches yet. */
void psi_step_clock_init(struct step_clock *clock);

/* Somebody does, for the first time or still. */
void psi_step_clock_start(struct step_clock *clock);

/* Nobody watches any more. What has ended may still be told. */
void psi_step_clock_stop(struct step_clock *clock);

/* Are the times of this step told, as far as its number says? Nobody watches: only step 0 may be. */
static inline bool
psi_step_clock_tells(const struct step_clock *clock, uint64_t step)
{
    return PSI_COUNTS && (step & clock->untold_bits) == 0;
}

/* A push that may be worth more than counting. */
void psi_step_clock_heed(struct step_clock *clock, uint64_t step, uint64_t now_ns);

/* A push begins. Of many small steps nearly all are quiet: they are counted, and that is all. */
static inline void
psi_step_clock_push(struct step_clock *clock, uint64_t step, uint64_t now_ns)
{
    clock->step = step;
    if (!PSI_COUNTS) {
        return;
    }
    if (__builtin_expect(step >= clock->heed_from, 0)) {
        psi_step_clock_heed(clock, step, now_ns);
    } else if (step >= clock->next) {
        clock->next = step + 1;
        clock->untold++;
        clock->count++;
    }
}

/* It moves a tensor that is worth a look at the clock. */
static inline void
psi_step_clock_large(struct step_clock *clock)
{
    clock->heed |= STEP_LARGE;
}

/* The program goes to sleep. */
static inline void
psi_step_clock_sleep(struct step_clock *clock, uint64_t now_ns)
{
    if (PSI_COUNTS) {
        clock->asleep_ns = now_ns;
    }
}

/* Something came. Is that worth a look at the clock, for psi_step_clock_woke()? Else the end of the turn
 * is near enough. */
static inline bool
psi_step_clock_is_large(const struct step_clock *clock)
{
    return PSI_COUNTS && (clock->heed & STEP_LARGE) != 0;
}

/* The turn that comes, or has been, is not the program's: that still sleeps. */
static inline void
psi_step_clock_sleeps(struct step_clock *clock, bool still)
{
    clock->heed = (uint8_t)(still ? clock->heed | STEP_ASLEEP : clock->heed & ~STEP_ASLEEP);
}

static inline void
psi_step_clock_woke(struct step_clock *clock, uint64_t now_ns)
{
    clock->woke_ns = now_ns;
}

/* Is it worth knowing which server has answered? */
static inline bool
psi_step_clock_listens(const struct step_clock *clock)
{
    return PSI_COUNTS && (clock->heed & STEP_TOLD) != 0;
}

/* A server has answered everything, in this turn. */
static inline void
psi_step_clock_answered(struct step_clock *clock, uint32_t server)
{
    struct step_record *record = clock->now;

    if (!psi_step_clock_listens(clock)) {
        return;
    }
    if (record->server != server) {
        if ((clock->events & STEP_ANSWERED) != 0) {
            clock->events |= STEP_BOTH;
        }
        record->other_ns = record->server_ns;
        record->server = server;
    }
    clock->events |= STEP_ANSWERED;
}

/* Is it worth knowing that all operations have ended? */
static inline bool
psi_step_clock_keeps(const struct step_clock *clock)
{
    return PSI_COUNTS && (clock->heed & STEP_KEPT) != 0;
}

/* They have, in this turn. */
static inline void
psi_step_clock_drained(struct step_clock *clock)
{
    if (psi_step_clock_keeps(clock)) {
        clock->events |= STEP_DRAINED;
    }
}

/* The end of a turn that may be worth more than counting. */
void psi_step_clock_look(struct step_clock *clock, uint64_t now_ns);

/* The end of a turn: what the program has slept and received. */
static inline void
psi_step_clock_turn(struct step_clock *clock, uint64_t now_ns)
{
    if (!PSI_COUNTS) {
        return;
    }
    if (__builtin_expect(clock->heed != 0, 0)) {
        psi_step_clock_look(clock, now_ns);
    } else if (__builtin_expect(clock->asleep_ns != 0, 1)) {
        clock->parts.wait_ns += now_ns - clock->asleep_ns;
        clock->asleep_ns = 0;
    }
}

/* The times of the steps that were not told yet, PSI_STEPS_MAX at most. Returns how many. */
uint32_t psi_step_clock_read(const struct step_clock *clock, struct psi_step_times *times_p);

/* They were told. */
void psi_step_clock_told(struct step_clock *clock);

#endif
