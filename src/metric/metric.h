/*
 * metric.h - everything that the processes of a job count, in one map.
 *
 * A new number is a line of the map, and psi_metric_add() or psi_metric_set() where it happens: it
 * travels, and is shown, by itself (docs/extending.md, "A metric"). docs/metrics.md is made from
 * the map by tools/metrics_md.py.
 *
 * Thread: a set is written by one thread at a time, read by any (base/counter.h).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_METRIC_METRIC_H
#define PSI_METRIC_METRIC_H

#include <stddef.h>

#include "base/counter.h"

enum psi_metric_kind {
    PSI_METRIC_COUNTER, /* grows; its rate is what says something */
    PSI_METRIC_GAUGE,   /* as it is now */
};

/* Who counts it. */
enum psi_metric_who {
    PSI_METRIC_WORKER = 1,
    PSI_METRIC_LANE = 2,
    PSI_METRIC_MASTER = 4,
};

/*
 * Number, name, kind, unit, who, meaning. Numbers travel: they are never given twice, and new ones
 * go to the end. Times are of numbers worth timing: of tensors, or rows that one update changes, of
 * PSI_METRIC_TIMED elements and more, for below that reading the clock costs as much as what it
 * measures.
 */
#define PSI_METRIC_MAP(X)                                                                          \
    X(0, FRAMES_IN, frames_in, COUNTER, "frames", WORKER | LANE | MASTER, "frames that came")      \
    X(1, GRADIENTS_IN, gradients_in, COUNTER, "frames", LANE,                                      \
      "gradients that came from workers; the sum of a host counts once")                           \
    X(2, GRADIENT_BYTES_IN, gradient_bytes_in, COUNTER, "bytes", LANE, "bytes of these gradients") \
    X(3, VALUES_OUT, values_out, COUNTER, "frames", LANE, "values that were sent to workers")      \
    X(4, VALUE_BYTES_OUT, value_bytes_out, COUNTER, "bytes", LANE, "bytes of these values")        \
    X(5, ROUNDS_OPENED, rounds_opened, COUNTER, "rounds", LANE,                                    \
      "rounds of chunks to which a first gradient came")                                           \
    X(6, ROUNDS_CLOSED, rounds_closed, COUNTER, "rounds", LANE,                                    \
      "rounds of chunks that closed, and asynchronous pushes that were applied")                   \
    X(7, ROUND_WAIT, round_wait, COUNTER, "nanoseconds", LANE,                                     \
      "time between the first and the last gradient of rounds, all together")                      \
    X(8, ADD_TIME, add_time, COUNTER, "nanoseconds", WORKER | LANE,                                \
      "time spent adding gradients and applying rules, of large chunks; of a worker: for its "     \
      "host")                                                                                      \
    X(9, SLEEP_TIME, sleep_time, COUNTER, "nanoseconds", WORKER | LANE,                            \
      "time in which it did not run; of a worker: in which its program waited")                    \
    X(10, WANTS_OUT, wants_out, COUNTER, "frames", LANE,                                           \
      "requests for a gradient that held others up")                                               \
    X(11, GRADIENTS_DROPPED, gradients_dropped, COUNTER, "frames", LANE,                           \
      "gradients that were let go for others, and asked for again")                                \
    X(12, REFUSED, refused, COUNTER, "connections", LANE | MASTER,                                 \
      "connections that were refused, or ended before a HELLO")                                    \
    X(13, GRADIENTS_OUT, gradients_out, COUNTER, "frames", WORKER,                                 \
      "gradients that were sent; of a worker that sends for its host, sums")                       \
    X(14, GRADIENT_BYTES_OUT, gradient_bytes_out, COUNTER, "bytes", WORKER,                        \
      "bytes of these gradients")                                                                  \
    X(15, VALUES_IN, values_in, COUNTER, "frames", WORKER, "values that came")                     \
    X(16, VALUE_BYTES_IN, value_bytes_in, COUNTER, "bytes", WORKER, "bytes of these values")       \
    X(17, RESENT, resent, COUNTER, "frames", WORKER,                                               \
      "requests that were sent again after a cut, or because a server asked")                      \
    X(18, ENCODE_TIME, encode_time, COUNTER, "nanoseconds", WORKER,                                \
      "time spent looking for NaN in large gradients before they leave")                           \
    X(19, SEND_TIME, send_time, COUNTER, "nanoseconds", WORKER,                                    \
      "time that calls spent handing large tensors to the transport")                              \
    X(20, RECEIVE_TIME, receive_time, COUNTER, "nanoseconds", WORKER,                              \
      "time that waiting calls spent with what came")                                              \
    X(21, STEPS, steps, COUNTER, "steps", WORKER, "steps that were pushed and have ended")         \
    X(22, OPERATIONS, operations, GAUGE, "operations", WORKER, "operations that have not ended")   \
    X(23, WINDOW_USED, window_used, GAUGE, "bytes", WORKER,                                        \
      "gradients that servers have not answered, against the windows of all lanes")                \
    X(24, POOL_USED, pool_used, GAUGE, "bytes", LANE, "gradients of open rounds")                  \
    X(25, TABLE_MEMORY, table_memory, GAUGE, "bytes", LANE,                                        \
      "tables: values, optimizer state, what is kept of them")                                     \
    X(26, CPU_TIME, cpu_time, COUNTER, "nanoseconds", WORKER | LANE | MASTER,                      \
      "processor time; of a lane that of its thread, else of the process")                         \
    X(27, MEMORY, memory, GAUGE, "bytes", WORKER, "memory of the process that is not shared")      \
    X(28, MEMBERS, members, GAUGE, "processes", MASTER, "workers and lanes that are in the job")   \
    X(29, VIEWS, views, COUNTER, "views", MASTER, "changes of who is in the job")                  \
    X(30, OBSERVERS, observers, GAUGE, "connections", MASTER, "observers that are told metrics")   \
    X(31, UNTOLD, untold, COUNTER, "frames", MASTER,                                               \
      "metrics that an observer did not get because it had not taken the last ones")               \
    X(32, STEPS_UNTOLD, steps_untold, COUNTER, "steps", WORKER,                                    \
      "steps whose times were not told: more than fit between two tellings")                       \
    X(33, SEAL_TIME, seal_time, COUNTER, "nanoseconds", WORKER | LANE | MASTER,                    \
      "time spent encrypting, decrypting and moving encrypted bytes")                              \
    X(34, POINTS_UNTOLD, points_untold, COUNTER, "numbers", WORKER,                                \
      "reported numbers that were lost: too many at a time")                                       \
    X(35, STEPS_EXPECTED, steps_expected, GAUGE, "steps", WORKER,                                  \
      "the step at which the program says that it will end; 0: it does not say")                   \
    X(36, COPY_QUEUE, copy_queue, GAUGE, "bytes", LANE, "changes that its copy may not have yet")  \
    X(37, COPY_WHOLE, copy_whole, GAUGE, "lanes", LANE,                                            \
      "1: its copy has all that was told, and may take its place")                                 \
    X(38, COPY_LEFT, copy_left, GAUGE, "chunks", LANE, "chunks that its copy does not have yet")   \
    X(39, GLOBAL_STEP, global_step, GAUGE, "steps", LANE,                                          \
      "the global step of the job, on the lane that keeps it; 0: nobody uses it")                  \
    X(40, SPANS_UNTOLD, spans_untold, COUNTER, "spans", WORKER | LANE,                             \
      "pushes, rounds and marks that were not told: more than fit between two tellings")           \
    X(41, COPYING_TIME, copying_time, COUNTER, "nanoseconds", WORKER | LANE | MASTER,              \
      "time spent copying large tensors in memory; those that processes share are not copied")     \
    X(42, FRAMES_OUT, frames_out, COUNTER, "frames", WORKER | LANE | MASTER,                       \
      "frames that were sent, or wait to be")                                                      \
    X(43, SEND_QUEUE, send_queue, GAUGE, "bytes", WORKER | LANE | MASTER,                          \
      "bytes that wait to be sent, on all connections")                                            \
    X(44, RESULTS_KEPT, results_kept, GAUGE, "bytes", WORKER,                                      \
      "results that are kept in memory of their own, for a server that may be lost")               \
    X(45, RESIDENT, resident, GAUGE, "bytes", WORKER | LANE | MASTER,                              \
      "resident memory of the process, shared memory too; of a server, its first lane tells it")   \
    X(46, READERS, readers, GAUGE, "readers", MASTER,                                              \
      "readers that are connected: they look at values, and are no workers")                       \
    X(47, READS, reads, COUNTER, "frames", LANE, "values and rows that were sent to readers")      \
    X(48, READ_BYTES, read_bytes, COUNTER, "bytes", LANE, "bytes of these")                        \
    X(49, ROWS_HOT, rows_hot, GAUGE, "rows", LANE, "rows of sparse tables that are in memory")     \
    X(50, ROWS_COLD, rows_cold, GAUGE, "rows", LANE,                                               \
      "rows of sparse tables that are on the disk only (full is spill)")                           \
    X(51, COLD_BYTES, cold_bytes, GAUGE, "bytes", LANE, "bytes that these take on the disk")       \
    X(52, COLD_READS, cold_reads, COUNTER, "rows", LANE, "rows that were read from the disk")      \
    X(53, COLD_WRITES, cold_writes, COUNTER, "rows", LANE, "rows that left memory for the disk")   \
    X(54, COLD_TIME, cold_time, COUNTER, "nanoseconds", LANE, "time spent on both")

enum psi_metric {
#define PSI_METRIC_ENUM(number, id, name, kind, unit, who, text) PSI_METRIC_##id = number,
    PSI_METRIC_MAP(PSI_METRIC_ENUM)
#undef PSI_METRIC_ENUM
        PSI_METRICS,
};

/* A tensor of so many elements is worth two looks at the clock. */
enum { PSI_METRIC_TIMED = 4096 };

struct psi_metric_info {
    const char *name;
    const char *unit;
    const char *text;
    enum psi_metric_kind kind;
    unsigned who;
};

extern const struct psi_metric_info psi_metric_info[PSI_METRICS];

/* The counters of one thread, on cache lines of their own. */
struct psi_metrics {
    _Alignas(PSI_COUNTER_LINE) struct psi_counter of[PSI_METRICS];
};

/* All 0; NULL: no memory. free() it. */
struct psi_metrics *psi_metrics_create(void);

static inline void
psi_metric_add(struct psi_metrics *metrics, enum psi_metric metric, uint64_t more)
{
    psi_count(&metrics->of[metric], more);
}

static inline void
psi_metric_set(struct psi_metrics *metrics, enum psi_metric metric, uint64_t value)
{
    atomic_store_explicit(&metrics->of[metric].value, value, memory_order_relaxed);
}

static inline uint64_t
psi_metric_get(const struct psi_metrics *metrics, enum psi_metric metric)
{
    return psi_counted(&metrics->of[metric]);
}

#endif
