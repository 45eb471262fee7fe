/*
 * tensor.h - a gradient that everybody knows, and the values it must lead to, bit for bit.
 *
 * Every worker pushes the same gradient in every round, made of a pattern that repeats after a
 * prime number of elements, so that a misplaced chunk shows. The elements are small multiples of
 * 1/64: their sum over workers is exact in any order. The values start at 0 and follow plain
 * gradient descent, whose roundings the model repeats.
 */
#ifndef BENCH_TENSOR_H
#define BENCH_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#define TENSOR_RATE 0.001

enum { TENSOR_PERIOD = 251 };

/* One period of the tensor. Thread: owned by the thread that checks. */
struct tensor_model {
    float sum[TENSOR_PERIOD];   /* of all workers' gradients */
    float value[TENSOR_PERIOD]; /* after the rounds so far */
    uint64_t rounds;
};

/* Zeroed memory, every page of it present; NULL: none. Free it with tensor_free(). */
float *tensor_alloc(size_t bytes);
void tensor_free(float *tensor, size_t bytes);

/* The gradient of one worker. */
void tensor_gradient(uint32_t rank, float *gradient, size_t count);

/* Fills values with what no run leads to: values of an earlier run cannot pass for new ones. */
void tensor_spoil(float *values, size_t bytes);

void tensor_model_init(struct tensor_model *model, uint32_t workers);
void tensor_model_advance(struct tensor_model *model, uint64_t rounds);

/* PSD_ERR_CORRUPT names the first element whose bits differ from the model's. */
psd_status tensor_check(const struct tensor_model *model, const float *values, size_t count,
                        struct psd_error *err);

#endif
