/*
 * sparse_ceiling.c - the ceiling of sparse tables: a plain gather, and a plain gather and scatter.
 *
 * A batch goes through three loops: send for the entries, read them and send for the rows, use the
 * rows. The arithmetic is written for eight numbers at a time where the CPU has AVX2; the bits are the
 * same without.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sparse_ceiling.h"

#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

#if defined(__x86_64__)
#include <immintrin.h>
#define HAS_AVX2 __builtin_cpu_supports("avx2")
#define AVX2     __attribute__((target("avx2")))
#else
#define HAS_AVX2 false
#define AVX2
#endif

static size_t
mapped_bytes(size_t bytes)
{
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

static void *
map(size_t bytes)
{
    void *base =
        mmap(NULL, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(base, mapped_bytes(bytes), MADV_HUGEPAGE);
    memset(base, 0, mapped_bytes(bytes));
    return base;
}

static size_t
home(const struct plain_rows *plain, uint64_t id)
{
    const uint64_t mixed = id * UINT64_C(0x9e3779b97f4a7c15);

    return (mixed ^ mixed >> 32) & (plain->entries - 1);
}

bool
plain_rows_init(struct plain_rows *plain, size_t count)
{
    *plain = (struct plain_rows){.count = count, .entries = 1};
    while (plain->entries < 2 * count) {
        plain->entries *= 2;
    }
    plain->rows = map(count * sizeof(struct plain_row));
    plain->index = map(plain->entries * sizeof(struct plain_entry));
    if (plain->rows == NULL || plain->index == NULL) {
        return false;
    }
    for (uint64_t id = 0; id < count; id++) {
        size_t at = home(plain, id);

        while (plain->index[at].place != 0) {
            at = (at + 1) & (plain->entries - 1);
        }
        plain->index[at] = (struct plain_entry){.id = id, .place = id + 1};
    }
    return true;
}

void
plain_rows_fini(struct plain_rows *plain)
{
    if (plain->rows != NULL) {
        munmap(plain->rows, mapped_bytes(plain->count * sizeof(struct plain_row)));
    }
    if (plain->index != NULL) {
        munmap(plain->index, mapped_bytes(plain->entries * sizeof(struct plain_entry)));
    }
    *plain = (struct plain_rows){0};
}

static void
find(const struct plain_rows *plain, const uint64_t *ids, size_t count, bool all,
     struct plain_row **rows)
{
    for (size_t i = 0; i < count; i++) {
        __builtin_prefetch(&plain->index[home(plain, ids[i])]);
    }
    for (size_t i = 0; i < count; i++) {
        size_t at = home(plain, ids[i]);

        while (plain->index[at].id != ids[i]) {
            at = (at + 1) & (plain->entries - 1);
        }
        rows[i] = &plain->rows[plain->index[at].place - 1];
        __builtin_prefetch(rows[i]->values);
        if (all) {
            __builtin_prefetch(rows[i]->squares);
        }
    }
}

void
plain_rows_gather(const struct plain_rows *plain, const uint64_t *ids, size_t count, float *values)
{
    struct plain_row *rows[PLAIN_BATCH_MAX];

    find(plain, ids, count, false, rows);
    for (size_t i = 0; i < count; i++) {
        memcpy(values + i * SPARSE_WIDTH, rows[i]->values, sizeof(rows[i]->values));
    }
}

#if defined(__x86_64__)

AVX2 static void
push_wide(struct plain_row *const *rows, size_t count, const float *gradients, float rate,
          float epsilon)
{
    const __m256 rates = _mm256_set1_ps(rate);
    const __m256 epsilons = _mm256_set1_ps(epsilon);

    for (size_t i = 0; i < count; i++) {
        struct plain_row *row = rows[i];

        for (int j = 0; j < SPARSE_WIDTH; j += 8) {
            const __m256 g = _mm256_loadu_ps(gradients + i * SPARSE_WIDTH + j);
            const __m256 n = _mm256_add_ps(_mm256_load_ps(row->squares + j), _mm256_mul_ps(g, g));
            const __m256 step =
                _mm256_div_ps(_mm256_mul_ps(rates, g), _mm256_add_ps(_mm256_sqrt_ps(n), epsilons));

            _mm256_store_ps(row->squares + j, n);
            _mm256_store_ps(row->values + j, _mm256_sub_ps(_mm256_load_ps(row->values + j), step));
        }
    }
}

#endif

static void
push_narrow(struct plain_row *const *rows, size_t count, const float *gradients, float rate,
            float epsilon)
{
    for (size_t i = 0; i < count; i++) {
        struct plain_row *row = rows[i];

        for (int j = 0; j < SPARSE_WIDTH; j++) {
            const float g = gradients[i * SPARSE_WIDTH + (size_t)j];

            row->squares[j] += g * g;
            row->values[j] -= rate * g / (__builtin_sqrtf(row->squares[j]) + epsilon);
        }
    }
}

void
plain_rows_push(struct plain_rows *plain, const uint64_t *ids, size_t count, const float *gradients,
                float rate, float epsilon)
{
    struct plain_row *rows[PLAIN_BATCH_MAX];

    find(plain, ids, count, true, rows);
#if defined(__x86_64__)
    if (HAS_AVX2) {
        push_wide(rows, count, gradients, rate, epsilon);
        return;
    }
#endif
    push_narrow(rows, count, gradients, rate, epsilon);
}
