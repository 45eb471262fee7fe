/*
 * crew.h - the workers of one measurement, and the orders they follow.
 *
 * The runner holds one socket to each worker, whether it is a worker of a Poseidon job or of the
 * raw-socket ceiling. It sends all of them the same order and waits until each has answered; the
 * slowest gives the time.
 */
#ifndef BENCH_CREW_H
#define BENCH_CREW_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

enum { CREW_MAX = 64 };

enum crew_verb {
    CREW_PREPARE, /* memory and tables for `bytes` */
    CREW_RUN,     /* `rounds` push_pulls of them, timed and then checked */
};

struct crew_order {
    enum crew_verb verb;
    bool unchecked; /* without a look for NaNs */
    uint64_t bytes; /* of the tensor; a multiple of 4 */
    uint64_t rounds;
};

/* What following an order took. */
struct crew_times {
    uint64_t elapsed_ns; /* of the run; the slowest worker's */
    uint64_t idle_ns;    /* before the order, of all workers together: others were measured ... */
    uint64_t
        idle_cpu_ns; /* ... and this CPU time, which should be next to none, was taken from them */
};

/* Thread: owned by the runner. */
struct crew {
    uint32_t count;
    int fds[CREW_MAX]; /* SOCK_SEQPACKET */
};

/* Gives the order to all and waits for all. */
psd_status crew_command(const struct crew *crew, const struct crew_order *order,
                        struct crew_times *times_p, struct psd_error *err);

/* Closes the sockets: the workers end. */
void crew_dismiss(struct crew *crew);

/* What a worker does with an order. elapsed_ns_p: set to 0 before the call. */
typedef psd_status (*crew_handler)(void *owner, const struct crew_order *order,
                                   uint64_t *elapsed_ns_p, struct psd_error *err);

/* A worker's life: follows orders until it is dismissed (PSD_OK) or one fails, which it tells. */
psd_status crew_follow(int fd, crew_handler handle, void *owner, struct psd_error *err);

#endif
