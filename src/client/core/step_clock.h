/*
 * step_clock.h - where the time of a worker's steps goes.
 *
 * A step begins when the one before ends. It ends when all operations have ended that were under way
 * before the first push of a later step. During a step the program computes, is in a call of ours
 * that sends, or waits. A thread waits when it is in psd_wait() or the like: it sleeps, or it is
 * busy with what comes in. Whatever happens while nobody waits is hidden behind computing, and
 * costs the step nothing.
 *
 * The clock runs with every operation while somebody watches, so it must cost little. It reads the
 * time only where that is read anyway, at the beginning and the end of a turn. An event within a
 * turn gets the time of the turn's end. Of a step that will not be reported, nothing is kept but its
 * end, and that only if the next step, which begins there, will be reported.
 *
 * Another thread's turn may end a step while the program still sleeps. The time that the program has
 * slept by then belongs to the step, and so does the rest of its sleep.
 *
 * The clock assumes one thread that pushes and waits. If several threads do, their times overlap,
 * and are cut to fit into the step.
 *
 * SPDX-License-Identifier: Apache-2.0
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

/* A step that is kept. What we report of it is computed when we report. */
struct step_record {
    uint64_t step;
    uint64_t begin_ns;             /* the end of the one before; 0: not known */
    struct step_parts begin_parts; /* totals up to begin_ns */
    uint64_t end_ns;               /* when nothing was under way any more; 0: not yet */
    struct step_parts end_parts;   /* totals up to end_ns */
    uint64_t pushed_ns;            /* its first push */
    uint64_t server_ns;            /* when the last server had answered everything */
    uint64_t other_ns;             /* when the last but one had; 0: there is none */
    uint32_t server;               /* the last server; UINT32_MAX: none has answered */
};

/* What has happened in this turn. */
enum {
    STEP_DRAINED = 1,  /* nothing is under way */
    STEP_ANSWERED = 2, /* a server has answered everything */
    STEP_BOTH = 4,     /* so has another server */
};

/* Reasons to do more than count a push or a turn. */
enum {
    STEP_KEPT = 1,   /* the running step, or the one after it, is reported: its end is kept */
    STEP_TOLD = 2,   /* the running step is reported itself */
    STEP_LARGE = 4,  /* steps move tensors that are large enough to be timed */
    STEP_ASLEEP = 8, /* the program sleeps: this turn is another thread's */
};

/*
 * If there are many steps, only those whose number is a multiple of 2^sparse are reported. So all
 * workers of a job report the same steps, whenever they do. All other steps cost two comparisons,
 * with heed_from and next, whether somebody watches or not.
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
    uint64_t asleep_ns; /* the program waits since then, not counted yet; 0: it does not wait */
    uint64_t count;     /* steps that have ended, in total */
    struct step_parts parts; /* totals */
    uint64_t untold;         /* steps that have ended and are not reported */
    uint64_t untold_bits;    /* a step whose number has one of these bits is not reported */
    uint64_t woke_ns;        /* when something came; if not after asleep_ns, nobody looked */
    uint32_t sparse;
    uint32_t done_count;     /* steps that have ended and wait to be reported */
    struct step_record *now; /* the running one: kept[done_count] */
    struct step_record kept[PSI_STEPS_MAX + 1];
};

/* Nobody watches yet. */
void psi_step_clock_init(struct step_clock *clock);

/* Somebody watches, for the first time or still. */
void psi_step_clock_start(struct step_clock *clock);

/* Nobody watches any more. Steps that have ended may still be reported. */
void psi_step_clock_stop(struct step_clock *clock);

/* Are the times of a step with this number reported? While nobody watches, only step 0 may be. */
static inline bool
psi_step_clock_tells(const struct step_clock *clock, uint64_t step)
{
    return PSI_COUNTS && (step & clock->untold_bits) == 0;
}

/* A push for which counting may not be enough. */
void psi_step_clock_heed(struct step_clock *clock, uint64_t step, uint64_t now_ns);

/* A push begins. Among many small steps, nearly all are only counted. */
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

/* The push moves a tensor that is large enough to be timed. */
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

/* Something came. Should the caller read the time for psi_step_clock_woke()? If not, the end of the
 * turn is exact enough. */
static inline bool
psi_step_clock_is_large(const struct step_clock *clock)
{
    return PSI_COUNTS && (clock->heed & STEP_LARGE) != 0;
}

/* still: this turn is another thread's, and the program still sleeps. */
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

/* All operations have ended, in this turn. */
static inline void
psi_step_clock_drained(struct step_clock *clock)
{
    if (psi_step_clock_keeps(clock)) {
        clock->events |= STEP_DRAINED;
    }
}

/* The end of a turn for which counting may not be enough. */
void psi_step_clock_look(struct step_clock *clock, uint64_t now_ns);

/* The end of a turn: adds the time that the program slept. */
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

/* The times of steps that were not reported yet, PSI_STEPS_MAX at most. Returns how many. */
uint32_t psi_step_clock_read(const struct step_clock *clock, struct psi_step_times *times_p);

/* These steps were reported. */
void psi_step_clock_told(struct step_clock *clock);

#endif
