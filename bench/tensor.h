/*
 * tensor.h - gradients that everybody knows, and the values they must lead to, bit for bit.
 *
 * A tensor is made of lines of 16 elements, one cache line of f32. All elements of a line are
 * equal; lines repeat after a number of them that shares only a factor of 4 with the lines of a
 * chunk, so that a misplaced chunk shows. A worker that writes its gradient anew in every round
 * gives each round another phase, so that a gradient read too early or too late shows, too.
 *
 * Elements are small multiples of 1/64 and the learning rate is a power of two: the sum over
 * workers is exact in any order and type, and the update has one rounding, fused or not. So
 * subjects of all kinds must agree in every bit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_TENSOR_H
#define BENCH_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#define TENSOR_RATE     0x1p-10
#define TENSOR_MEMORY   0.75 /* momentum, and adam's first beta */
#define TENSOR_MEMORY_2 0.96875
#define TENSOR_EPSILON  0x1p-20

enum {
    TENSOR_LINE = 16,    /* elements that are equal */
    TENSOR_LINES = 1004, /* lines of a period */
    TENSOR_PHASES = 8,   /* kinds of rounds */
};

/* Zeroed memory, every page of it present; NULL: none. Free it with tensor_free(). */
void *tensor_alloc(size_t bytes);
void tensor_free(void *tensor, size_t bytes);

/*
 * Writes `count` elements of a worker's gradient, beginning with element `first` of the tensor, a
 * multiple of TENSOR_LINE; gradient points to that element. As fast as memory takes them.
 */
void tensor_write(float *gradient, size_t first, size_t count, uint32_t rank, uint32_t phase);

/* The same in half precision, as fast as it happens to be. */
void tensor_write_half(uint16_t *gradient, size_t count, uint32_t rank, uint32_t phase);

/* Reads all elements, as fast as memory gives them: the sum of their bits modulo 2^32. */
uint32_t tensor_read(const float *values, size_t count);

/* Fills values with what no run leads to: values of an earlier run cannot pass for new ones. */
void tensor_spoil(void *values, size_t bytes);

/* What a round does with the gradients. */
enum tensor_rule {
    TENSOR_DESCENT,  /* value -= rate * sum; values begin as 0 */
    TENSOR_SUM,      /* value = sum */
    TENSOR_MOMENTUM, /* psd.h says what these two do; with our own words in their order: same bits */
    TENSOR_ADAM,
};

/* One period of the values. Thread: owned by the thread that checks. */
struct tensor_model {
    enum tensor_rule rule;
    uint32_t workers;
    uint64_t rounds; /* so far */
    size_t count;    /* elements of the tensor */
    size_t lines;    /* of a period that the tensor has */
    float value[TENSOR_LINES];
    float mean[TENSOR_LINES];     /* MOMENTUM, ADAM ... */
    float variance[TENSOR_LINES]; /* ... and ADAM */
};

void tensor_model_init(struct tensor_model *model, enum tensor_rule rule, uint32_t workers,
                       size_t count);

/* One round of gradients of this phase. */
void tensor_model_round(struct tensor_model *model, uint32_t phase);

/* What tensor_read() gives for all of the right values. */
uint32_t tensor_model_read(const struct tensor_model *model);

/* PSD_ERR_CORRUPT names the first element whose bits differ from the model's. */
psd_status tensor_check(const struct tensor_model *model, const float *values,
                        struct psd_error *err);

/* The same for values in half precision, each the rounded value of the model. */
psd_status tensor_check_half(const struct tensor_model *model, const uint16_t *values,
                             struct psd_error *err);

#endif
