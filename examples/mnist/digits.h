/*
 * digits.h - draws digits, for those who have no MNIST files at hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MNIST_DIGITS_H
#define MNIST_DIGITS_H

#include "dataset.h"

/* Fills all images and labels. The same seed and stream give the same digits, on any machine with
 * the same C library. */
void digits_draw(struct images *images, uint64_t seed, uint64_t stream);

#endif
