/*
 * reading.c - one reading: what each lane still has to tell, the requests, and where answers go.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/read/reader_state.h"
#include "rpc/post.h"
#include "shard/bucket.h"
#include "shard/shard.h"
#include "wire/bytes.h"
#include "wire/rows.h"

static size_t
element_bytes(const struct psi_read_table *table)
{
    return psi_dtype_bytes(table->spec.dtype);
}

static size_t
row_bytes(const struct psi_read_table *table)
{
    return table->spec.width * element_bytes(table);
}

/* ---- what is wanted of whom ---------------------------------------------------------------- */

/* Sorts the ids, and notes where each begins among them. */
static psd_status
sort_ids(struct reading *reading, struct psd_error *err)
{
    const struct psi_read_args *args = &reading->args;
    uint32_t unit = 0;

    if (!psi_sparse_ids_sort(&reading->ids, args->ids, args->count,
                             args->table->spec.bucket_bits)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory to look up %u ids", args->count);
    }
    reading->begin = malloc((reading->ids.unique + 1u) * sizeof(*reading->begin));
    if (reading->begin == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory to look up %u ids", args->count);
    }
    for (uint32_t i = 0; i < args->count; i = psi_sparse_ids_end(&reading->ids, i)) {
        reading->begin[unit++] = i;
    }
    reading->begin[unit] = args->count;
    return PSD_OK;
}

static uint32_t
place_of_unit(const struct reading *reading, uint32_t unit)
{
    const struct psi_read_table *table = reading->args.table;
    const uint32_t bits = table->spec.bucket_bits;
    const uint64_t mixed = reading->ids.list[reading->begin[unit]].mixed;

    return psi_bucket_place((uint32_t)(mixed >> (64 - bits)), bits, table->places);
}

/* The rows of a place are one run. */
static void
share_rows(struct psi_reader *reader)
{
    const struct reading *reading = &reader->reading;

    for (uint32_t unit = 0; unit < reading->ids.unique; unit++) {
        struct read_lane *lane = &reader->lane[place_of_unit(reading, unit)];

        lane->next = lane->end == 0 ? unit : lane->next;
        lane->end = unit + 1u;
    }
}

/* The next chunk of the table that is at this place, from that one on. */
static uint64_t
next_chunk(const struct psi_read_table *table, uint32_t place, uint64_t chunk)
{
    while (chunk < table->chunks && table->place_of[chunk] != place) {
        chunk++;
    }
    return chunk;
}

static void
share_chunks(struct psi_reader *reader)
{
    const struct psi_read_table *table = reader->reading.args.table;

    for (uint32_t place = 0; place < reader->lanes; place++) {
        reader->lane[place].next = next_chunk(table, place, 0);
        reader->lane[place].end = table->chunks;
    }
}

psd_status
psi_reader_begin(struct psi_reader *reader, const struct psi_read_args *args, struct psd_error *err)
{
    struct reading *reading = &reader->reading;
    psd_status status = psi_reader_state(reader, err);

    psi_assert(!reading->is_open);
    if (status != PSD_OK) {
        return status;
    }
    *reading = (struct reading){.args = *args, .oldest = UINT64_MAX, .moment_ns = UINT64_MAX};
    for (uint32_t place = 0; place < reader->lanes; place++) {
        reader->lane[place].next = 0;
        reader->lane[place].end = 0;
    }
    if (psi_spec_is_sparse(&args->table->spec)) {
        status = sort_ids(reading, err);
        if (status != PSD_OK) {
            psi_reader_end(reader);
            return status;
        }
        share_rows(reader);
    } else {
        share_chunks(reader);
    }
    reading->is_open = true;
    for (uint32_t place = 0; place < reader->lanes; place++) {
        reading->lanes_left += reader->lane[place].next < reader->lane[place].end;
    }
    reading->ended_ns = psi_now_ns(reader->env);
    return PSD_OK;
}

void
psi_reader_end(struct psi_reader *reader)
{
    struct reading *reading = &reader->reading;

    for (uint32_t place = 0; place < reader->lanes; place++) {
        if (reader->lane[place].request != 0) {
            read_lane_hang_up(&reader->lane[place]);
        }
    }
    psi_sparse_ids_fini(&reading->ids);
    free(reading->begin);
    *reading = (struct reading){0};
}

void
reading_fail(struct psi_reader *reader, const struct psd_error *why)
{
    if (reader->reading.is_open && reader->reading.error.status == PSD_OK) {
        reader->reading.error = *why;
    }
}

psd_status
psi_reader_progress(const struct psi_reader *reader, struct psi_read_answer *answer_p,
                    struct psd_error *err)
{
    const struct reading *reading = &reader->reading;

    if (reading->lanes_left == 0) {
        const bool is_empty = reading->oldest == UINT64_MAX;

        *answer_p = (struct psi_read_answer){
            .oldest = is_empty ? 0 : reading->oldest,
            .newest = reading->newest,
            .age_ns = is_empty ? 0 : reading->ended_ns - reading->moment_ns,
        };
        return PSD_OK;
    }
    if (reader->over.status != PSD_OK || reading->error.status != PSD_OK) {
        *err = reader->over.status != PSD_OK ? reader->over : reading->error;
        return err->status;
    }
    return PSD_PENDING;
}

/* ---- requests and answers ------------------------------------------------------------------ */

static psd_status
ask_for_rows(struct read_lane *lane, struct psi_frame *frame)
{
    const struct reading *reading = &lane->reader->reading;
    const size_t bytes = psi_rows_bytes(0, 0, lane->asked);
    uint8_t *payload = malloc(bytes);
    struct psi_rows_room room;
    psd_status status;

    if (payload == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    room = psi_rows_encode(payload, 0, &(struct psi_rows){.asked = lane->asked});
    for (uint32_t i = 0; i < lane->asked; i++) {
        const uint32_t at = reading->ids.list[reading->begin[lane->next + i]].at;

        psi_store_u64(room.asked_ids + (size_t)i * sizeof(uint64_t), reading->args.ids[at]);
    }
    frame->type = PSI_FRAME_SPARSE_PULL;
    frame->dtype = (uint8_t)reading->args.table->spec.dtype;
    status = psi_post_body(lane->peer.conn, frame, payload, bytes);
    free(payload);
    return status;
}

/* Its chunk; of a sparse table the lane's share of it. */
static uint32_t
chunk_of(const struct read_lane *lane)
{
    return psi_spec_is_sparse(&lane->reader->reading.args.table->spec) ? lane->place
                                                                       : (uint32_t)lane->next;
}

void
reading_ask(struct read_lane *lane)
{
    struct psi_reader *reader = lane->reader;
    const struct psi_read_table *table = reader->reading.args.table;
    const bool is_sparse = psi_spec_is_sparse(&table->spec);
    struct psi_frame frame = {.type = PSI_FRAME_PULL,
                              .view = reader->view.id,
                              .table = table->id,
                              .chunk = chunk_of(lane)};
    uint64_t most = 1;
    struct psd_error why;

    if (is_sparse) {
        most = psi_rows_read_max(row_bytes(table), table->spec.rows.full == PSI_FULL_SPILL);
    }
    reader->requests += reader->requests == UINT32_MAX ? 2 : 1; /* 0 is none */
    lane->asked = (uint32_t)(lane->end - lane->next < most ? lane->end - lane->next : most);
    lane->asked_ns = psi_now_ns(reader->env);
    lane->request = reader->requests;
    frame.request = lane->request;
    if ((is_sparse ? ask_for_rows(lane, &frame) : psi_post(lane->peer.conn, &frame)) ==
        PSD_ERR_NO_MEMORY) {
        psi_fail(&why, PSD_ERR_NO_MEMORY, "no memory for a request");
        reading_fail(reader, &why); /* any other failure comes back as a cut */
    }
}

size_t
reading_answer_bytes(const struct read_lane *lane)
{
    const struct psi_read_table *table = lane->reader->reading.args.table;

    return psi_spec_is_sparse(&table->spec)
               ? psi_rows_value_bytes(row_bytes(table), lane->asked)
               : psi_chunk_elements(table->spec.count, lane->next) * element_bytes(table);
}

/* Every id that was given gets its row. */
static void
spread_rows(const struct read_lane *lane, const uint8_t *rows, uint64_t step)
{
    const struct reading *reading = &lane->reader->reading;
    const size_t each = row_bytes(reading->args.table);
    uint8_t *values = reading->args.values;

    for (uint32_t i = 0; i < lane->asked; i++) {
        const uint64_t unit = lane->next + i;

        for (uint32_t k = reading->begin[unit]; k < reading->begin[unit + 1]; k++) {
            const uint32_t at = reading->ids.list[k].at;

            memcpy(values + at * each, rows + i * each, each);
            if (reading->args.steps != NULL) {
                reading->args.steps[at] = step;
            }
        }
    }
}

/* When it was certainly true what the lane says: when it was asked, less what it says itself. */
static void
note_moment(struct reading *reading, const struct read_lane *lane, const struct psi_frame *frame)
{
    const uint64_t moment_ns = frame->seq < lane->asked_ns ? lane->asked_ns - frame->seq : 0;

    reading->moment_ns = moment_ns < reading->moment_ns ? moment_ns : reading->moment_ns;
    reading->oldest = frame->step < reading->oldest ? frame->step : reading->oldest;
    reading->newest = frame->step > reading->newest ? frame->step : reading->newest;
}

psd_status
reading_answered(struct read_lane *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_reader *reader = lane->reader;
    struct reading *reading = &reader->reading;
    const struct psi_frame *frame = &lane->peer.inbox.frame;
    const struct psi_read_table *table = reading->args.table;
    const bool is_sparse = reading->is_open && psi_spec_is_sparse(&table->spec);
    const uint8_t *rows;
    psd_status status = PSD_OK;

    if (!reading->is_open || lane->request == 0 || frame->request != lane->request ||
        frame->table != table->id || frame->chunk != chunk_of(lane) ||
        is_sparse != (frame->type == PSI_FRAME_SPARSE_VALUE) ||
        bytes != reading_answer_bytes(lane)) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "%s of table %u chunk %u, %zu bytes: nobody asked for it",
                        psi_frame_type_name(frame->type), frame->table, frame->chunk, bytes);
    }
    if (is_sparse) {
        status = psi_rows_value_decode(payload, bytes, row_bytes(table), lane->asked, &rows, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    if (is_sparse) {
        spread_rows(lane, rows, frame->step);
        lane->next += lane->asked;
    } else {
        memcpy((uint8_t *)reading->args.values + psi_chunk_first(lane->next) * element_bytes(table),
               payload, bytes);
        lane->next = next_chunk(table, lane->place, lane->next + 1);
    }
    note_moment(reading, lane, frame);
    lane->request = 0;
    if (lane->next < lane->end) {
        reading_ask(lane);
    } else {
        reading->lanes_left--;
        reading->ended_ns = psi_now_ns(reader->env);
    }
    return PSD_OK;
}
