/*
 * train.h - a worker that gives the gradients of a whole model, tensor by tensor.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_TRAIN_H
#define BENCH_TRAIN_H

#include "measured.h"

/* Opens the tables of the model that has so many bytes: measured->train. Free it with free(). */
psd_status train_create(struct worker *worker, struct measured *measured, struct psd_error *err);

/* One step; owner: a struct worker. With TEAM_BACKWARD each gradient leaves when it is there. */
psd_status train_exchange(void *owner, struct psd_error *err);

#endif
