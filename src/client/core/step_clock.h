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

#include "wire/message.h"

struct step_parts {
    uint64_t encode_ns;
    uint64_t send_ns;
    uint64_t wait_ns;
    uint64_t receive_ns;
};

/* The step that runs. */
struct step_record {
    uint64_t step;
    uint64_t pushed_ns;      /* its first push */
    uint64_t end_ns;         /* when nothing was under way; 0: not yet */
    struct step_parts parts; /* since ever, up to then */
    uint32_t server;         /* the last that had answered all; UINT32_MAX: none has */
    uint64_t server_ns;      /* when it had, ... */
    uint64_t other_ns;       /* ... and another one; 0: there is none */
};

/* What has happened in this turn. */
enum {
    STEP_DRAINED = 1,  /* nothing is under way */
    STEP_ANSWERED = 2, /* a server has answered all ... */
    STEP_BOTH = 4,     /* ... as has another one */
};

/*
 * Of many steps not all are told: those whose number is a multiple of 2^sparse. So all workers of a
 * job tell of the same ones, at whatever moments they tell.
 *
 * Thread: as the client's; `on` may be read by any thread.
 */
struct step_clock {
    _Atomic bool on;                /* somebody watches */
    uint64_t step;                  /* of the last push */
    uint64_t count;                 /* steps that have ended, ever */
    uint64_t untold;                /* of them, those that were left out */
    bool running;                   /* there is one, ... */
    bool telling;                   /* ... which will be told, ... */
    bool keeping;                   /* ... or after which one will be told */
    bool is_large;                  /* it moves tensors that are worth a look at the clock */
    unsigned events;                /* of this turn */
    bool sleeping;                  /* the program still does */
    uint64_t asleep_ns;             /* it waits, and nobody has counted it since; 0: it does not */
    uint64_t woke_ns;               /* something came; 0: nobody looked when */
    struct step_parts parts;        /* since ever */
    struct step_record now;         /* the one that runs */
    struct step_parts before_parts; /* at the end of the one before, ... */
    uint64_t before_ns;             /* ... which was then; 0: not known */
    uint32_t sparse;
    uint64_t quiet_until; /* no step before this one is kept */
    uint32_t done_count;  /* to be told */
    struct psi_step_times done[PSI_STEPS_MAX];
};

/* Are the times of this step told, as far as its number says? */
static inline bool
psi_step_clock_tells(const struct step_clock *clock, uint64_t step)
{
    return (step & ((UINT64_C(1) << clock->sparse) - 1)) == 0;
}

/* A push begins that is the first of its step. */
void psi_step_clock_begin(struct step_clock *clock, uint64_t step, uint64_t now_ns);

/* A push begins. Of many small steps nearly all are quiet: they are counted, and that is all. */
static inline void
psi_step_clock_push(struct step_clock *clock, uint64_t step, uint64_t now_ns)
{
    clock->step = step;
    if (clock->on && (!clock->running || step > clock->now.step)) {
        if (step < clock->quiet_until && !clock->keeping) {
            clock->now.step = step;
            clock->untold++;
            clock->count++;
        } else {
            psi_step_clock_begin(clock, step, now_ns);
        }
    }
    clock->now.end_ns = 0; /* it goes on */
}

/* The program goes to sleep, and wakes up; woke_ns 0: the end of the turn is near enough. */
static inline void
psi_step_clock_sleep(struct step_clock *clock, uint64_t now_ns)
{
    clock->asleep_ns = clock->on ? now_ns : 0;
    clock->sleeping = true;
}

static inline void
psi_step_clock_wake(struct step_clock *clock, uint64_t woke_ns)
{
    clock->woke_ns = woke_ns;
    clock->sleeping = false;
}

/* A server has answered everything, in this turn. */
void psi_step_clock_answered(struct step_clock *clock, uint32_t server);

/* All operations have ended, in this turn. */
static inline void
psi_step_clock_drained(struct step_clock *clock)
{
    if (clock->keeping) {
        clock->events |= STEP_DRAINED;
    }
}

/* The end of a turn in which something happened. */
void psi_step_clock_note(struct step_clock *clock, uint64_t now_ns);

/* The end of a turn: what the program has slept and received. Its step may have ended meanwhile, in
 * a turn of another thread: for the program it ends now. */
static inline void
psi_step_clock_turn(struct step_clock *clock, uint64_t now_ns)
{
    const uint64_t asleep_ns = clock->asleep_ns;

    if (asleep_ns != 0) {
        const uint64_t woke_ns = clock->sleeping || clock->woke_ns == 0 ? now_ns : clock->woke_ns;

        clock->parts.wait_ns += woke_ns - asleep_ns;
        clock->parts.receive_ns += now_ns - woke_ns;
        clock->asleep_ns = clock->sleeping ? now_ns : 0;
        clock->events |= clock->now.end_ns == asleep_ns ? STEP_DRAINED : 0;
    }
    if (clock->events != 0) {
        psi_step_clock_note(clock, now_ns);
    }
}

/* The times of the steps that were not told yet, PSI_STEPS_MAX at most. Returns how many. */
uint32_t psi_step_clock_read(const struct step_clock *clock, struct psi_step_times *times_p);

/* They were told. */
void psi_step_clock_told(struct step_clock *clock);

/* Nobody watches any more. What has ended may still be told. */
void psi_step_clock_stop(struct step_clock *clock);

#endif
