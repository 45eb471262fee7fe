/*
 * idx.h - reads images and labels in the format of the MNIST files.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MNIST_IDX_H
#define MNIST_IDX_H

#include "dataset.h"

/*
 * Reads DIRECTORY/PART-images-idx3-ubyte and DIRECTORY/PART-labels-idx1-ubyte, or the same names
 * with .gz. Nothing in the files is trusted: on any doubt the failure names the file and what is
 * wrong with it, and *images is left alone.
 */
bool idx_read(struct images *images, const char *directory, const char *part,
              struct failure *failure);

#endif
