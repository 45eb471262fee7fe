/*
 * emulate.h - trains in one process what W workers and a server would: for tests.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MNIST_EMULATE_H
#define MNIST_EMULATE_H

#include "dataset.h"
#include "options.h"

/* Trains bulk-synchronously, by plain gradient descent on the mean of the workers' gradients, and
 * returns the accuracy on the test images; a negative one on failure. */
double emulate(const struct options *options, const struct dataset *dataset, uint32_t workers,
               struct failure *failure);

#endif
