/*
 * options.h - what the command line of `mnist` says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MNIST_OPTIONS_H
#define MNIST_OPTIONS_H

#include <stdint.h>

#include "failure.h"
#include "network.h"

enum mode { MODE_BSP, MODE_SSP, MODE_ASYNC };

#define NOBODY UINT32_MAX

/* Strings are borrowed from argv. Thread: immutable once filled. */
struct options {
    bool help;
    bool version;
    bool distributed; /* changes nothing: this program never trains alone */
    enum model model;
    enum mode mode;
    uint32_t staleness; /* MODE_SSP, else 0 */
    uint32_t slow;      /* the rank of the worker that computes twice, or NOBODY */
    uint32_t epochs;
    uint64_t steps; /* 0: as many as the epochs have */
    uint32_t batch;
    double rate;
    double momentum; /* 0: plain gradient descent */
    uint64_t seed;
    const char *data;           /* NULL: drawn digits */
    const char *save;           /* NULL: do not */
    const char *load;           /* NULL: start anew */
    const char *master_address; /* NULL: from the environment */
    const char *rank;           /* NULL: from the environment */
};

bool options_parse(struct options *options, int argc, char **argv, struct failure *failure);

extern const char options_help[];

#endif
