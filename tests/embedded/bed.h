/*
 * bed.h - a whole job in one test process: master, lanes and workers, each on threads of its own,
 * over real loopback tcp.
 *
 * The daemons' cores are the ones of ps_master and ps_server, each with its own loop; workers use
 * nothing but the public API. A test starts a bed, runs its workers, and ends the bed:
 *
 *     struct bed *bed = bed_start(&(struct bed_config){.workers = 2});
 *     bed_run(bed, train, NULL);
 *     bed_finish(bed);
 *
 * A worker's function runs on its own thread, where cmocka's assertions are not allowed: it uses
 * CHECK(), which notes the first failure and leaves the function. The worker is then abandoned, so
 * that the others do not wait for it, and bed_run() fails the test.
 *
 * PSD_TEST_LOG=1 in the environment shows the daemons' log.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef EMBEDDED_BED_H
#define EMBEDDED_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <psd/psd.h>

#include "clock/clock.h"
#include "store/level.h"

/* Sanitizers make the arithmetic ten times slower: tests then do less of the same. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BED_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BED_SANITIZED 1
#endif
#endif
#ifndef BED_SANITIZED
#define BED_SANITIZED 0
#endif

enum { BED_WORKERS_MAX = 16, BED_SERVERS_MAX = 4, BED_LANES_MAX = 8 };

/* How the members of a bed prove who they are. */
enum bed_security {
    BED_SECRET,  /* by the job's secret; plain bytes follow, this is loopback */
    BED_SEALED,  /* the same, and TLS records follow */
    BED_INSECURE /* not at all */
};

/* What is left 0 has a default that suits a test. */
struct bed_config {
    enum bed_security security; /* BED_SECRET */
    uint32_t workers;           /* 1 */
    uint32_t max_workers;       /* 0: none may join */
    uint32_t servers;           /* 1 */
    uint32_t lanes;             /* 1, of every server */
    uint32_t servers_absent;    /* so many of the servers never come */
    enum psi_death_policy policy;
    uint32_t heartbeat_ms;           /* 100 */
    uint32_t dead_heartbeats;        /* 150: nobody is declared dead on a busy machine */
    uint32_t lost_grace_ms;          /* 100 */
    uint32_t start_timeout_ms;       /* 60,000 */
    uint32_t replacement_timeout_ms; /* 30,000 */
    uint64_t memory_max;             /* 1 GiB per server */
    uint64_t pool_bytes;             /* 48 MiB per server */
    uint32_t op_timeout_ms;          /* 20,000; of the workers */
    bool scalar;                     /* kernels without SIMD; else the best */
    bool flat;                       /* no worker sends for the others */
    bool elsewhere;                  /* servers share no memory, as if on another host */
};

struct bed;

/*
 * A worker of a bed.
 *
 * Thread: owned by its thread; the test reads it after bed_run().
 */
struct worker {
    struct bed *bed;
    uint32_t rank;
    psd_context *context; /* joined; set it to NULL after ending it yourself */
    void *user;
    char failure[768];
};

typedef void (*worker_fn)(struct worker *worker);

struct bed *bed_start(const struct bed_config *config);

/* Ends a job whose workers are all gone: master and lanes must leave by themselves, with exit code
 * 0. Frees the bed. */
void bed_finish(struct bed *bed);

/* The same for a job that failed: the exit code is the master's. */
void bed_finish_failed(struct bed *bed, int exit_code);

/* Ends whatever is left, at once. Frees the bed. */
void bed_stop(struct bed *bed);

const char *bed_address(const struct bed *bed);

/* As kill -9 would: connections closed by the kernel, not a word said. Returns when it is dead. */
void bed_kill_server(struct bed *bed, uint32_t server);
void bed_kill_master(struct bed *bed);

/* As SIGTERM: the server says goodbye. */
void bed_terminate_server(struct bed *bed, uint32_t server);

/* Opens a context of a rank, with the bed's deadlines. */
psd_status bed_open(struct bed *bed, const char *rank, psd_context **context_p);

/* Runs a function as every worker of the job, each joined before and closed after, and fails the
 * test with the first failure. bed_start_workers() .. bed_join_workers() do it in two steps. */
void bed_run(struct bed *bed, worker_fn run, void *user);
void bed_start_workers(struct bed *bed, worker_fn run, void *user);
void bed_join_workers(struct bed *bed);

/* Opens and runs one more worker on the calling thread (a replacement). True: no failure. */
bool bed_run_one(struct bed *bed, uint32_t rank, worker_fn run, void *user, struct worker *worker);

/* Meets all other workers of the bed, in this process: no message is sent. After a failure nobody
 * waits, here and for turns. */
void bed_meet(struct bed *bed);

/* Lets workers go one after the other: returns when the turn is `turn`; bed_next_turn() passes it
 * on. The first turn is 0. */
void bed_wait_turn(struct bed *bed, uint64_t turn);
void bed_next_turn(struct bed *bed);

uint64_t bed_now_ms(void);

/* Do processes of this host share memory at all? Not with PSD_TRANSPORT=tcp. */
bool bed_lends(void);

/* Waits, with a deadline, until the worker pushes the table through one of its host, itself
 * perhaps. False: it does not. */
bool bed_await_route(const struct worker *worker, const psd_table *table);
bool bed_is_routed(const struct worker *worker, const psd_table *table); /* by now? */

/* Cuts the worker's connection to a lane (by place), as a network would: what is under way is lost.
 * The worker connects again by itself. Any thread may call it while the worker has its context. */
void bed_cut(const struct worker *worker, uint32_t place);

/* ------------------------------------------------------------------------------ shorthand --- */

void worker_fail(struct worker *worker, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define CHECK(worker, condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            worker_fail(worker, __FILE__, __LINE__, "%s", #condition);                             \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* Also shows what came instead, and the library's message. */
#define CHECK_STATUS(worker, call, expected)                                                       \
    do {                                                                                           \
        const psd_status came_ = (call);                                                           \
        if (came_ != (expected)) {                                                                 \
            worker_fail(worker, __FILE__, __LINE__, "%s: %s, expected %s: %s", #call,              \
                        psd_status_name(came_), psd_status_name(expected),                         \
                        psd_last_error()->text);                                                   \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#define CHECK_OK(worker, call) CHECK_STATUS(worker, call, PSD_OK)

/* The message of the calling thread's last error contains `part`. */
#define CHECK_SAYS(worker, text, part)                                                             \
    do {                                                                                           \
        if (strstr(text, part) == NULL) {                                                          \
            worker_fail(worker, __FILE__, __LINE__, "\"%s\" is not in \"%s\"", part, text);        \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* The same on the test's own thread. */
#define assert_status(call, expected)                                                              \
    do {                                                                                           \
        const psd_status came_ = (call);                                                           \
        if (came_ != (expected)) {                                                                 \
            fail_msg("%s: %s, expected %s: %s", #call, psd_status_name(came_),                     \
                     psd_status_name(expected), psd_last_error()->text);                           \
        }                                                                                          \
    } while (0)

#define assert_ok(call) assert_status(call, PSD_OK)

#define assert_says(text, part)                                                                    \
    do {                                                                                           \
        if (strstr(text, part) == NULL) {                                                          \
            fail_msg("\"%s\" is not in \"%s\"", part, text);                                       \
        }                                                                                          \
    } while (0)

/* A one-dimensional table; the rest as named: TABLE("w", PSD_F32, 10, .staleness = 1). */
#define TABLE(table_name, table_dtype, elements, ...)                                              \
    (&(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),                        \
                              .name = table_name,                                                  \
                              .dtype = table_dtype,                                                \
                              .dims = 1,                                                           \
                              .shape = {elements},                                                 \
                              __VA_ARGS__})

/* TABLE("w", PSD_F32, 10, .rule = RULE(.rule = PSD_RULE_ADD)) */
#define RULE(...)                                                                                  \
    (&(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args), __VA_ARGS__})

/* TRANSFER(step, .gradient = g, .values = v) */
#define TRANSFER(at_step, ...)                                                                     \
    (&(struct psd_transfer){                                                                       \
        .struct_size = sizeof(struct psd_transfer), .step = at_step, __VA_ARGS__})

/* Starts, waits, releases. The error, if any, is in psd_last_error(). */
psd_status push(psd_table *table, uint64_t step, const void *gradient);
psd_status pull(psd_table *table, uint64_t step, void *values);
psd_status push_pull(psd_table *table, uint64_t step, const void *gradient, void *values);

/* A well-mixed number of its arguments alone. */
uint64_t mix(uint64_t a, uint64_t b, uint64_t c);

/*
 * Gradients that show every difference in the order of additions: magnitudes from 2^-12 to 2^12,
 * both signs, zeros of both signs, all bits of the fraction in use. A function of its arguments.
 */
void awkward(psd_dtype dtype, uint32_t rank, uint64_t step, uint64_t first, uint64_t count,
             void *to);

/* First of all in main(): gives the process, and those it forks, a secret that psd_open() finds,
 * and ends it if its tests hang. */
void bed_begin(void);

#endif
