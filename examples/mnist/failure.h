/*
 * failure.h - why something could not be done, in words for the user.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MNIST_FAILURE_H
#define MNIST_FAILURE_H

#include <stdbool.h>

struct failure {
    char text[600];
};

/* Writes the text and returns false, so that `return failed(...)` reads well. */
bool failed(struct failure *failure, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
