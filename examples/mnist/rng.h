/*
 * rng.h - random numbers that are the same on every machine: splitmix64.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MNIST_RNG_H
#define MNIST_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline uint64_t
rng_next(struct rng *rng)
{
    uint64_t mixed = (rng->state += 0x9e3779b97f4a7c15u);

    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

/* One of 2^64 unrelated sequences per seed. */
static inline struct rng
rng_stream(uint64_t seed, uint64_t stream)
{
    struct rng rng = {seed};

    rng.state = rng_next(&rng) ^ stream;
    rng.state = rng_next(&rng);
    return rng;
}

/* 0 .. bound - 1. The bias, below bound / 2^32, does not matter here. */
static inline uint32_t
rng_below(struct rng *rng, uint32_t bound)
{
    return (uint32_t)(((rng_next(rng) >> 32) * bound) >> 32);
}

static inline float
rng_between(struct rng *rng, float low, float high)
{
    return low + (high - low) * ((float)(rng_next(rng) >> 40) * 0x1p-24f);
}

#endif
