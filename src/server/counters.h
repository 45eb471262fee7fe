/*
 * counters.h - what a lane counts. A new number is a line of the map, and psi_count() where it
 * happens.
 *
 * Thread: written by the lane's thread, read by any (base/counter.h).
 */
#ifndef SERVER_COUNTERS_H
#define SERVER_COUNTERS_H

#include "base/counter.h"

/* Name, unit, meaning. */
#define LANE_COUNTER_MAP(X)                                                                        \
    X(frames_in, "frames", "came from workers")                                                    \
    X(gradients_in, "gradients", "came from workers, sums of a host count once")                   \
    X(gradient_bytes_in, "bytes", "of these gradients")                                            \
    X(values_out, "values", "were sent to workers")                                                \
    X(value_bytes_out, "bytes", "of these values")                                                 \
    X(rounds_closed, "rounds", "of chunks closed, or asynchronous pushes were applied")            \
    X(wants_out, "requests", "for a gradient that held others up")                                 \
    X(refused_in, "connections", "were refused, or ended before a HELLO")

struct lane_counters {
#define LANE_COUNTER_MEMBER(name, unit, text) struct psi_counter name;
    _Alignas(PSI_COUNTER_LINE) LANE_COUNTER_MAP(LANE_COUNTER_MEMBER)
#undef LANE_COUNTER_MEMBER
};

#endif
