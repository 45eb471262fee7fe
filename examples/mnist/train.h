/*
 * train.h - trains the network together with the other workers of the job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MNIST_TRAIN_H
#define MNIST_TRAIN_H

#include <psd/psd.h>

#include "dataset.h"
#include "failure.h"
#include "options.h"

/*
 * Trains until the last step, or until SIGTERM asks it to leave, which it does between two steps.
 * Worker 0 also saves, if asked to, and measures on the test images; where nobody has measured,
 * *accuracy_p is negative. Takes the context: closes it at the end, abandons it on failure.
 */
bool train(psd_context *context, const struct options *options, const struct dataset *dataset,
           double *accuracy_p, struct failure *failure);

#endif
