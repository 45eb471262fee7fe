/*
 * sim.h - virtual time: a heap of events, seeded randomness, a trace, and one verdict.
 *
 * Everything that happens in a simulated job is an event of this heap, and every choice is drawn
 * from the seed: the same seed gives the same trace, bit for bit.
 *
 * Thread: all of the simulator is owned by one thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_US UINT64_C(1000)
#define SIM_MS UINT64_C(1000000)
#define SIM_S  UINT64_C(1000000000)

/* A stream of random numbers (splitmix64). */
struct rng {
    uint64_t state;
};

uint64_t rng_next(struct rng *rng);
uint64_t rng_below(struct rng *rng, uint64_t bound);                /* 0 .. bound - 1 */
uint64_t rng_between(struct rng *rng, uint64_t low, uint64_t high); /* low .. high */
bool rng_chance(struct rng *rng, unsigned percent);
struct rng rng_split(struct rng *rng); /* an independent stream */

/* A hash of up to four numbers: the same function for the workers' gradients everywhere. */
uint64_t sim_mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

typedef void (*sim_event_fn)(void *object, uint64_t argument);

struct sim_event {
    uint64_t at_ns;
    uint64_t order; /* of creation: ties */
    sim_event_fn fire;
    void *object;
    uint64_t argument;
};

/* What is counted over all seeds. */
#define SIM_COUNTER_MAP(X)                                                                         \
    X(events)                                                                                      \
    X(frames)                                                                                      \
    X(sums)                                                                                        \
    X(ops)                                                                                         \
    X(steps)                                                                                       \
    X(saves)                                                                                       \
    X(resumed)                                                                                     \
    X(checkpoints)                                                                                 \
    X(referred)                                                                                    \
    X(rounds)                                                                                      \
    X(cuts)                                                                                        \
    X(neighbour_cuts)                                                                              \
    X(half_open)                                                                                   \
    X(clogs)                                                                                       \
    X(pauses)                                                                                      \
    X(lost_connects)                                                                               \
    X(worker_kills)                                                                                \
    X(server_kills)                                                                                \
    X(exiles)                                                                                      \
    X(freezes)                                                                                     \
    X(blocks)                                                                                      \
    X(rifts)                                                                                       \
    X(one_way)                                                                                     \
    X(promotions)                                                                                  \
    X(shared_kills)                                                                                \
    X(copies_equal)                                                                                \
    X(server_lives)                                                                                \
    X(servers_came)                                                                                \
    X(servers_left)                                                                                \
    X(places_moved)                                                                                \
    X(target_kills)                                                                                \
    X(master_kills)                                                                                \
    X(master_lives)                                                                                \
    X(master_moves)                                                                                \
    X(replacements)                                                                                \
    X(joins)                                                                                       \
    X(asked_joins)                                                                                 \
    X(refused_joins)                                                                               \
    X(early_leaves)                                                                                \
    X(fenced)                                                                                      \
    X(torn_frames)                                                                                 \
    X(loans)                                                                                       \
    X(loans_kept)                                                                                  \
    X(readings)                                                                                    \
    X(unknown_ops)                                                                                 \
    X(dropped_pushes)                                                                              \
    X(jobs_finished)                                                                               \
    X(jobs_failed)

struct sim_counters {
#define SIM_COUNTER_FIELD(name) uint64_t name;
    SIM_COUNTER_MAP(SIM_COUNTER_FIELD)
#undef SIM_COUNTER_FIELD
};

struct sim {
    uint64_t seed;
    uint64_t now_ns;
    struct rng rng; /* of network and faults */
    struct sim_event *heap;
    size_t count;
    size_t capacity;
    uint64_t order;
    uint64_t hash; /* over everything that happened */
    bool trace;    /* print it, too */
    bool failed;
    char failure[512];
    struct sim_counters counters;
};

void sim_init(struct sim *sim, uint64_t seed, bool trace);
void sim_fini(struct sim *sim);

void sim_at(struct sim *sim, uint64_t at_ns, sim_event_fn fire, void *object, uint64_t argument);

/* Runs the next event. False: there is none. */
bool sim_step(struct sim *sim);

/* The first broken promise ends the run. */
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line of the trace: always part of the hash, printed on request. */
void sim_trace(struct sim *sim, const char *who, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sim_hash(struct sim *sim, uint64_t value);

#endif
