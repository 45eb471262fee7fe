/*
 * team.h - the workers of one subject, and the orders they follow.
 *
 * The runner holds one socket to each worker, whether it is a worker of a Poseidon job, of a
 * ceiling or of a peer. It sends all of them the same order and waits until each has answered.
 * Between orders workers sleep in recv(): others are being measured then.
 *
 * Orders and answers travel as the structs are, one packet each; peer_torch.py knows them too.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_TEAM_H
#define BENCH_TEAM_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <psd/status.h>

enum { TEAM_MAX = 256, TEAM_HELPERS_MAX = 1024 };

/* What a worker shall do. */
enum team_verb {
    TEAM_RUN = 1,    /* `rounds` push_pulls, timed and then checked */
    TEAM_URGENT = 2, /* one push_pull of 4 KiB while one of `bytes` is in flight, timed */
    TEAM_MEET = 3,   /* a barrier */
    TEAM_ROWS = 4,   /* `rounds` batches of rows (rows.h), timed and checked; 0: they are made */
};

/* How. Subjects ignore what does not concern them. */
enum team_flag {
    TEAM_TOUCH = 1u << 0,    /* the worker writes its gradient and reads the result, in the time */
    TEAM_IN_PLACE = 1u << 1, /* gradients and values in memory that a server shares */
    TEAM_STREAM = 1u << 2,   /* written, pushed and read chunk by chunk, while in cache */
    TEAM_SUM = 1u << 3,      /* servers add and return the sum; else they apply it, too */
    TEAM_SCAN = 1u << 4,     /* gradients are searched for NaNs, as by default */
    TEAM_HALF = 1u << 5,     /* half precision: two bytes for every four of `bytes` */
    TEAM_MOMENTUM = 1u << 7, /* the rule: momentum ... */
    TEAM_ADAM = 1u << 8,     /* ... or adam, instead of plain descent */
    TEAM_PRIORITY = 1u << 6, /* TEAM_URGENT: with a higher priority than the large one */
    TEAM_TENSORS = 1u << 9,  /* the tensors of the model of `bytes` (models.h), each by itself */
    TEAM_BACKWARD =
        1u << 10, /* ... each when backward has made it; timed is what that adds to backward */
    TEAM_LOOKUP = 1u << 11, /* TEAM_ROWS: rows are looked up ... */
    TEAM_PUSH = 1u << 12,   /* ... their gradients are pushed; or both in one message */
    TEAM_ZIPF = 1u << 13,   /* few ids come often; else all alike */
    TEAM_NEW = 1u << 14,    /* each id comes once: rows are created */
    TEAM_EVICT = 1u << 15,  /* ... and as many old ones go */
};

struct team_order {
    uint64_t verb;
    uint64_t flags;
    uint64_t bytes; /* of the tensor in f32; a multiple of 4 */
    uint64_t rounds;
    uint64_t ids;   /* TEAM_ROWS: rows of the table, */
    uint64_t width; /* numbers of each, */
    uint64_t batch; /* ids of a round and worker */
};

/* What following an order took. */
struct team_times {
    uint64_t elapsed_ns; /* of all rounds; the slowest worker's */
    uint64_t median_ns;  /* of single rounds, the slowest worker's; the call alone without TOUCH */
    uint64_t p90_ns;
    uint64_t p99_ns;
    uint64_t worst_ns;
    uint64_t cpu_ns;      /* that workers and helpers used during the rounds */
    uint64_t idle_ns;     /* before the order: others were measured ... */
    uint64_t idle_cpu_ns; /* ... and this was taken from them, which should be next to nothing */
    uint64_t shared;      /* workers that have the values in memory that a server shares */
};

struct team_answer {
    struct team_times times;
    struct psd_error error;
};

static_assert(sizeof(struct team_order) == 7 * 8, "peer_torch.py knows it");
static_assert(sizeof(struct team_answer) == 9 * 8 + 512, "peer_torch.py knows it");

/* Thread: owned by the runner. */
struct team {
    uint32_t count;
    int fds[TEAM_MAX]; /* SOCK_SEQPACKET */
    uint32_t helper_count;
    pid_t helpers[TEAM_HELPERS_MAX]; /* servers and others whose CPU time counts, too */
    uint32_t restless_count;
    pid_t restless[TEAM_MAX + 1]; /* processes that must be stopped, or they would not sleep */
    uint64_t idle_since_ns;       /* when the last order was done ... */
    uint64_t helpers_cpu_ns;      /* ... and what the helpers had used by then */
};

/* Gives the order to all and waits for all. */
psd_status team_command(struct team *team, const struct team_order *order,
                        struct team_times *times_p, struct psd_error *err);

/* Stops the restless until the next order. team_command() does so when it is done. */
void team_rest(const struct team *team);

/* Closes the sockets: the workers end. */
void team_dismiss(struct team *team);

/* What a worker does with an order. times: zeroed before the call. */
typedef psd_status (*team_handler)(void *owner, const struct team_order *order,
                                   struct team_times *times, struct psd_error *err);

/* A worker's life: follows orders until it is dismissed (PSD_OK) or one fails, which it tells. */
psd_status team_follow(int fd, team_handler handle, void *owner, struct psd_error *err);

#endif
