/*
 * tables.h - the network's tensors as tables on the servers.
 *
 * The servers own the values and apply the update rule; a worker's tensors are where gradients
 * leave from and new values arrive.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MNIST_TABLES_H
#define MNIST_TABLES_H

#include <psd/psd.h>

#include "network.h"
#include "options.h"

/* Thread: owned by the training thread. */
struct tables {
    struct network *network; /* borrowed; its tensors until the context ends */
    psd_table *tables[LAYERS_MAX][TENSORS];
    psd_op *ops[LAYERS_MAX][TENSORS]; /* new values on their way; NULL: they are here */
};

/* True for PSD_OK; else false, with the library's words. */
bool check(psd_status status, struct failure *failure);

/* Opens one table per tensor. They end with the context. */
bool tables_open(struct tables *tables, psd_context *context, struct network *network,
                 const struct options *options, struct failure *failure);

/* The step to begin with: 0, or where a saved run or a dead worker left off. */
uint64_t tables_step(const struct tables *tables);

/* Asks for all values as of this step. */
bool tables_pull(struct tables *tables, uint64_t step, struct failure *failure);

/* Sends a layer's gradients of this step and asks for its values as of the next. */
bool tables_push_layer(struct tables *tables, uint32_t layer, uint64_t step,
                       struct failure *failure);

/* Waits until the values of a layer, or of all, have arrived. */
bool tables_wait_layer(struct tables *tables, uint32_t layer, struct failure *failure);
bool tables_wait(struct tables *tables, struct failure *failure);

#endif
