/*
 * urgent.h - how long a small tensor takes while a large one is in flight.
 */
#ifndef BENCH_URGENT_H
#define BENCH_URGENT_H

#include "subject.h"

/* Follows CREW_URGENT; worker->subject and worker->memory are those of the large tensor. */
psd_status urgent_run(struct worker *worker, const struct crew_order *order,
                      struct crew_times *times, struct psd_error *err);

#endif
