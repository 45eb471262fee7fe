/*
 * rows.c - the rows of a sparse table that a worker asks for and pushes, and what they must hold.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "rounds.h"
#include "shard/bucket.h"
#include "timer.h"

/* ---- Ids ---- */

static uint64_t
draw(uint64_t *random)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    return psi_bucket_mix(*random);
}

/* By the inverse of the distribution, taken as if it were continuous; scattered over all ids. */
uint64_t
rows_zipf(uint64_t *random, uint64_t ids)
{
    const double chance = (double)(draw(random) >> 11) * 0x1p-53;
    const double power = 1 - ROWS_ZIPF;
    const double place = pow(chance * (pow((double)ids, power) - 1) + 1, 1 / power);

    return psi_bucket_mix((uint64_t)place) % ids;
}

/* Uniform ids are unique in their batch: one from each stretch. */
static void
draw_batch(const struct team_order *order, uint64_t *random, uint64_t *ids)
{
    const uint64_t stretch = order->ids / order->batch;

    for (uint64_t i = 0; i < order->batch; i++) {
        ids[i] = (order->flags & TEAM_ZIPF) != 0 ? rows_zipf(random, order->ids)
                                                 : i * stretch + draw(random) % stretch;
    }
}

static uint64_t
seed_of(uint32_t rank)
{
    return (uint64_t)(rank + 1) << 40;
}

float
rows_number(uint64_t id, uint32_t column)
{
    return (float)((psi_bucket_mix(id * 4096 + column) & 0xfff) + 1) * 0x1p-12f;
}

static void
write_gradients(struct rows *rows, const uint64_t *ids, uint64_t count)
{
    const uint32_t width = (uint32_t)rows->order.width;

    for (uint64_t i = 0; i < count; i++) {
        for (uint32_t column = 0; column < width; column++) {
            rows->gradients[i * width + column] = rows_number(ids[i], column);
        }
    }
}

/* ---- The model ---- */

static void
count_shares(struct rows *rows, uint64_t *ids)
{
    for (uint32_t rank = 0; rank < rows->workers; rank++) {
        uint64_t random = seed_of(rows->workers > 1 ? rank : rows->rank);

        for (uint32_t batch = 0; batch < ROWS_BATCHES; batch++) {
            draw_batch(&rows->order, &random, ids);
            for (uint64_t i = 0; i < rows->order.batch; i++) {
                for (uint32_t sample = 0; sample < ROWS_SAMPLES; sample++) {
                    if (ids[i] == rows->sample_ids[sample]) {
                        rows->shares[rank][batch][sample]++;
                    }
                }
            }
        }
    }
}

static void
push_sample(struct rows *rows, uint32_t sample, float times)
{
    const uint32_t width = (uint32_t)rows->order.width;
    float *values = rows->sample_values + (size_t)sample * width;
    float *squares = rows->sample_squares + (size_t)sample * width;

    for (uint32_t column = 0; column < width; column++) {
        const float g = times * rows_number(rows->sample_ids[sample], column);

        squares[column] += g * g;
        values[column] -=
            (float)ROWS_RATE * g / (__builtin_sqrtf(squares[column]) + (float)ROWS_EPSILON);
    }
}

void
rows_pushed(struct rows *rows, uint64_t round)
{
    const uint64_t batch = round % ROWS_BATCHES;

    rows->pushes++;
    for (uint32_t sample = 0; sample < ROWS_SAMPLES; sample++) {
        uint32_t times = 0;

        for (uint32_t rank = 0; rank < rows->workers; rank++) {
            times += rows->shares[rank][batch][sample];
        }
        if (times > 0) {
            push_sample(rows, sample, (float)times);
        }
    }
}

void
rows_filled(struct rows *rows)
{
    for (uint32_t sample = 0; sample < ROWS_SAMPLES; sample++) {
        push_sample(rows, sample, 1);
    }
}

psd_status
rows_check_samples(const struct rows *rows, const float *values, struct psd_error *err)
{
    const size_t width = rows->order.width;

    for (uint32_t sample = 0; sample < ROWS_SAMPLES; sample++) {
        if (memcmp(values + sample * width, rows->sample_values + sample * width,
                   width * sizeof(float)) != 0) {
            return psi_fail(err, PSD_ERR_CORRUPT,
                            "row %llu has other values than the model after %llu pushes: it begins "
                            "with %.9g, not %.9g",
                            (unsigned long long)rows->sample_ids[sample],
                            (unsigned long long)rows->pushes, (double)values[sample * width],
                            (double)rows->sample_values[sample * width]);
        }
    }
    return PSD_OK;
}

psd_status
rows_check_new(struct rows *rows, uint64_t round, struct psd_error *err)
{
    const uint64_t *ids = rows_ids(rows, round);

    for (uint64_t i = 0; i < rows->order.batch * rows->order.width; i++) {
        const float g = rows->gradients[i];
        const float value =
            0 - (float)ROWS_RATE * g / (__builtin_sqrtf(g * g) + (float)ROWS_EPSILON);

        if (memcmp(&rows->values[i], &value, sizeof(value)) != 0) {
            return psi_fail(err, PSD_ERR_CORRUPT, "new row %llu has %.9g, not %.9g",
                            (unsigned long long)ids[i / rows->order.width], (double)rows->values[i],
                            (double)value);
        }
    }
    return PSD_OK;
}

psd_status
rows_check_stored(struct rows *rows, uint64_t round, struct psd_error *err)
{
    const uint64_t *ids = rows_ids(rows, round);

    for (uint64_t i = 0; i < rows->order.batch; i++) {
        for (uint32_t column = 0; column < rows->order.width; column++) {
            const float value = rows->values[i * rows->order.width + column];

            if (value != rows_number(ids[i], column)) {
                return psi_fail(err, PSD_ERR_CORRUPT, "row %llu, column %u: %.9g, not %.9g",
                                (unsigned long long)ids[i], column, (double)value,
                                (double)rows_number(ids[i], column));
            }
        }
    }
    return PSD_OK;
}

/* ---- Life ---- */

/* The first ids of each batch. One that comes twice is followed twice. */
static psd_status
make_model(struct rows *rows, struct psd_error *err)
{
    const size_t numbers = (size_t)ROWS_SAMPLES * rows->order.width;
    uint64_t *ids = malloc(rows->order.batch * sizeof(*ids));

    rows->sample_values = calloc(numbers, sizeof(float));
    rows->sample_squares = calloc(numbers, sizeof(float));
    rows->shares = calloc(rows->workers, sizeof(*rows->shares));
    if (ids == NULL || rows->sample_values == NULL || rows->sample_squares == NULL ||
        rows->shares == NULL) {
        free(ids);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for the model of some rows");
    }
    for (uint32_t i = 0; i < ROWS_SAMPLES; i++) {
        rows->sample_ids[i] =
            rows->ids[i / ROWS_SAMPLES_EACH * rows->order.batch + i % ROWS_SAMPLES_EACH];
    }
    count_shares(rows, ids);
    free(ids);
    return PSD_OK;
}

psd_status
rows_init(struct rows *rows, const struct team_order *order, uint32_t rank, uint32_t workers,
          struct psd_error *err)
{
    const bool new = (order->flags & TEAM_NEW) != 0;
    const uint64_t kept = new ? 1 : ROWS_BATCHES;
    uint64_t random = seed_of(rank);

    psi_assert(order->batch >= ROWS_SAMPLES_EACH && order->ids >= order->batch);
    *rows = (struct rows){.order = *order, .rank = rank, .workers = workers};
    rows->ids = malloc(ROWS_BATCHES * order->batch * sizeof(*rows->ids));
    rows->new_ids = malloc(order->batch * sizeof(*rows->new_ids));
    rows->gradients = malloc(kept * order->batch * order->width * sizeof(float));
    rows->values = malloc(order->batch * order->width * sizeof(float));
    if (rows->ids == NULL || rows->new_ids == NULL || rows->gradients == NULL ||
        rows->values == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for batches of %llu rows",
                        (unsigned long long)order->batch);
    }
    for (uint32_t batch = 0; batch < ROWS_BATCHES; batch++) {
        draw_batch(order, &random, rows->ids + batch * order->batch);
    }
    write_gradients(rows, rows->ids, kept * order->batch);
    return make_model(rows, err);
}

void
rows_fini(struct rows *rows)
{
    free(rows->ids);
    free(rows->new_ids);
    free(rows->gradients);
    free(rows->values);
    free(rows->sample_values);
    free(rows->sample_squares);
    free(rows->shares);
}

bool
rows_are_those(const struct rows *rows, const struct team_order *order)
{
    const uint64_t kinds = TEAM_ZIPF | TEAM_NEW | TEAM_EVICT;

    return rows->order.ids == order->ids && rows->order.width == order->width &&
           rows->order.batch == order->batch &&
           (rows->order.flags & kinds) == (order->flags & kinds);
}

const uint64_t *
rows_ids(struct rows *rows, uint64_t round)
{
    const uint64_t batch = rows->order.batch;

    if ((rows->order.flags & TEAM_NEW) == 0) {
        return rows->ids + round % ROWS_BATCHES * batch;
    }
    for (uint64_t i = 0; i < batch; i++) {
        rows->new_ids[i] = (round * rows->workers + rows->rank) * batch + i;
    }
    return rows->new_ids;
}

const float *
rows_gradients(const struct rows *rows, uint64_t round)
{
    const bool new = (rows->order.flags & TEAM_NEW) != 0;

    return rows->gradients +
           (new ? 0 : round % ROWS_BATCHES) * rows->order.batch * rows->order.width;
}

psd_status
rows_run(const struct team_order *order, rows_round_fn round, void *owner, struct team_times *times,
         struct psd_error *err)
{
    uint64_t *times_ns = malloc(order->rounds * sizeof(*times_ns));
    const uint64_t cpu_ns = timer_cpu_ns();
    const uint64_t begun_ns = timer_now_ns();
    uint64_t last_ns = begun_ns;
    psd_status status = PSD_OK;

    if (times_ns == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for the times of %llu rounds",
                        (unsigned long long)order->rounds);
    }
    for (uint64_t i = 0; i < order->rounds && status == PSD_OK; i++) {
        uint64_t now_ns;

        status = round(owner, i, err);
        now_ns = timer_now_ns();
        times_ns[i] = now_ns - last_ns;
        last_ns = now_ns;
    }
    if (status == PSD_OK) {
        times->cpu_ns = timer_cpu_ns() - cpu_ns;
        times->elapsed_ns = last_ns - begun_ns;
        rounds_summarise(times_ns, order->rounds, times);
    }
    free(times_ns);
    return status;
}
