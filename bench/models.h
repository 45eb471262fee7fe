/*
 * models.h - the tensors of models that people train, in the order in which backward makes their
 * gradients.
 *
 * A tensor that is measured stands for a model if it has just as many bytes. Its elements are those
 * of the model's gradients, one after the other as backward makes them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_MODELS_H
#define BENCH_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MODELS_PARTS_MAX = 192,
    MODELS_BUCKET_BYTES = 25 << 20,      /* of DistributedDataParallel ... */
    MODELS_FIRST_BUCKET_BYTES = 1 << 20, /* ... and its first */
};

#define MODELS_RESNET50_BYTES UINT64_C(102228128) /* 161 tensors */
#define MODELS_GPT2_BYTES     UINT64_C(497759232) /* 148 tensors */
#define MODELS_NARROW_BYTES   UINT64_C(659456)    /* 161 tensors of 4 KiB */
#define MODELS_TINY_BYTES     UINT64_C(345104)    /* 14 tensors: for tests */

/* One gradient, or several that travel together. */
struct model_part {
    size_t first; /* element of the whole */
    size_t count;
    double ready; /* when it is there: a share of backward's time */
};

/* Has a model so many bytes? Then its name, else NULL. */
const char *model_name(uint64_t bytes);

/* The parts of that model: its tensors, or those of them that travel in one bucket. Returns how many
 * there are; 0: no model has so many bytes. */
size_t model_tensors(uint64_t bytes, struct model_part parts_p[MODELS_PARTS_MAX]);
size_t model_buckets(uint64_t bytes, struct model_part parts_p[MODELS_PARTS_MAX]);

/* How long a backward takes that is emulated: PSD_BENCH_BACKWARD_MS, which psd_bench sets. */
uint64_t model_backward_ns(void);

/* Sleeps until that share of a backward that began then is over. */
void model_await(uint64_t began_ns, double ready);

#endif
