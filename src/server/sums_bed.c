/*
 * sums_bed.c - a lane with one table of sums.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/sums_bed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 4 };

/* Chunks but the last are whole ones. */
static uint64_t elements;

static void
open_sums(struct lane_bed *bed, uint32_t chunks)
{
    elements = (chunks - 1) * (uint64_t)PSD_CHUNK_ELEMENTS + SMALL;
    open_table(bed, SUMS_TABLE,
               &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                        .name = "g",
                                        .dtype = PSD_F32,
                                        .dims = 1,
                                        .shape = {elements},
                                        .use = PSD_USE_SUM,
                                        .reduce = PSD_REDUCE_SUM});
}

struct lane_bed *
sums_start(uint32_t workers, uint32_t chunks)
{
    struct lane_bed *bed = lane_bed_start_surviving(workers);

    open_sums(bed, chunks);
    return bed;
}

struct lane_bed *
sums_start_again(uint32_t workers, uint32_t chunks)
{
    struct lane_bed *bed = lane_bed_start_again(workers);

    open_sums(bed, chunks);
    server_back(bed);
    return bed;
}

struct lane_bed *
sums_start_again_joined(uint32_t workers, uint32_t joiner, uint64_t step)
{
    struct lane_bed *bed = lane_bed_start_again(workers);

    open_sums(bed, 1);
    say(bed, bed->master,
        (struct psi_frame){.type = PSI_FRAME_TABLE_RESUME,
                           .table = SUMS_TABLE,
                           .rank = (uint16_t)joiner,
                           .step = step},
        NULL, 0);
    server_back(bed);
    return bed;
}

struct lane_bed *
sums_start_again_without(uint32_t workers, uint32_t leaver)
{
    struct lane_bed *bed = lane_bed_start_again(workers);

    open_sums(bed, 1);
    bed->member[leaver].member = false;
    server_back(bed);
    return bed;
}

static void
say_numbers(struct lane_bed *bed, uint32_t rank, const struct psi_frame *frame, float value)
{
    const uint64_t count = psi_chunk_elements(elements, frame->chunk);
    float *numbers = calloc(count, sizeof(*numbers));

    assert_non_null(numbers);
    for (uint64_t i = 0; i < count; i++) {
        numbers[i] = value;
    }
    say(bed, bed->worker[rank], *frame, numbers, count * sizeof(*numbers));
    free(numbers);
}

void
sums_push(struct lane_bed *bed, uint32_t rank, struct sums_push push)
{
    const struct psi_frame frame = {
        .type = push.type == 0 ? PSI_FRAME_PUSH_PULL : push.type,
        .flags = push.flags,
        .dtype = PSD_F32,
        .seq = push.request,
        .step = push.step,
        .table = SUMS_TABLE,
        .chunk = push.chunk,
        .request = push.request,
    };

    say_numbers(bed, rank, &frame, push.value);
}

void
sums_show(struct lane_bed *bed, uint32_t rank, uint32_t chunk, uint64_t step, float value)
{
    sums_push(bed, rank,
              (struct sums_push){.type = PSI_FRAME_PUSH,
                                 .flags = PSI_FLAG_RESULT,
                                 .chunk = chunk,
                                 .step = step,
                                 .value = value});
}

float
sums_value(struct lane_bed *bed, uint32_t rank)
{
    const struct world_heard *heard = hear(bed->worker[rank], PSI_FRAME_VALUE);
    float first = NAN;

    if (heard != NULL) {
        memcpy(&first, heard->body, sizeof(first));
    }
    return first;
}

uint16_t
sums_value_flags(struct lane_bed *bed, uint32_t rank)
{
    const struct world_heard *heard = hear(bed->worker[rank], PSI_FRAME_VALUE);

    return heard != NULL ? heard->frame.flags : UINT16_MAX;
}

void
sums_got(struct lane_bed *bed, uint32_t rank, uint32_t chunk, uint64_t step)
{
    struct psi_result result = {.table = SUMS_TABLE, .chunk = chunk, .step = step};
    const struct psi_results results = {.count = 1, .result = &result};
    uint8_t bytes[64];
    struct psi_pack pack;

    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_results_encode(&pack, &results);
    say(bed, bed->worker[rank], (struct psi_frame){.type = PSI_FRAME_GOT}, bytes, pack.used);
}

void
sums_adopt(struct lane_bed *bed, uint32_t rank, uint32_t chunks, uint64_t base, enum psi_has has)
{
    struct psi_adopt_run run = {.count = chunks, .base = base, .has = has};
    const struct psi_adopt adopt = {.runs = 1, .run = &run};
    uint8_t bytes[64];
    struct psi_pack pack;

    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_adopt_encode(&pack, &adopt);
    say(bed, bed->worker[rank], (struct psi_frame){.type = PSI_FRAME_ADOPT, .table = SUMS_TABLE},
        bytes, pack.used);
}

/* Does the next frame of that type to the worker have this result, and so many in all? */
static bool
hears_of(struct lane_bed *bed, uint32_t rank, uint8_t type, const struct psi_result *wanted,
         uint32_t count)
{
    const struct world_heard *heard = hear(bed->worker[rank], type);
    struct psi_result result[PSI_RESULTS_MAX];
    struct psi_results results = {.result = result};
    bool found = false;

    if (heard == NULL) {
        return false;
    }
    assert_int_equal(psi_results_decode(heard->body, heard->frame.payload_bytes, &results, NULL),
                     PSD_OK);
    assert_int_equal(results.count, count);
    for (uint32_t i = 0; i < results.count; i++) {
        assert_int_equal(result[i].table, wanted->table);
        found = found || (result[i].chunk == wanted->chunk && result[i].step == wanted->step);
    }
    return found;
}

bool
sums_released(struct lane_bed *bed, uint32_t rank, uint32_t chunk, uint64_t step, uint32_t count)
{
    return hears_of(bed, rank, PSI_FRAME_RELEASE, &(struct psi_result){SUMS_TABLE, chunk, step},
                    count);
}

bool
sums_asked(struct lane_bed *bed, uint32_t rank, uint32_t chunk, uint64_t step, uint32_t count)
{
    return hears_of(bed, rank, PSI_FRAME_GOT, &(struct psi_result){SUMS_TABLE, chunk, step}, count);
}

void
sums_bye(struct lane_bed *bed, uint32_t rank)
{
    say(bed, bed->worker[rank], (struct psi_frame){.type = PSI_FRAME_BYE}, NULL, 0);
}

bool
sums_may_go(struct lane_bed *bed, uint32_t rank)
{
    return hear(bed->worker[rank], PSI_FRAME_BYE) != NULL;
}

uint64_t
sums_given(struct lane_bed *bed, uint32_t rank)
{
    const struct world_heard *heard = hear(bed->worker[rank], PSI_FRAME_GIVE);

    return heard != NULL ? heard->frame.step : UINT64_MAX;
}

const char *
sums_why(struct lane_bed *bed, uint32_t rank, uint32_t chunk, uint64_t step)
{
    static struct psi_verdict verdict;

    say(bed, bed->worker[rank],
        (struct psi_frame){
            .type = PSI_FRAME_WHY, .table = SUMS_TABLE, .chunk = chunk, .step = step},
        NULL, 0);
    verdict = hear_verdict(bed->worker[rank], PSI_FRAME_BECAUSE);
    return verdict.text;
}
