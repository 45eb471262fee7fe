/*
 * tensorboard.c - the curves of a job as files that TensorBoard reads.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/tensorboard.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "launch/page/feed_state.h"
#include "launch/system/make_path.h"

enum { EVENT_BYTES_MAX = 256 };

/* ---- protocol buffers ---------------------------------------------------------------------- */

/* A message as it grows. */
struct proto {
    uint8_t bytes[EVENT_BYTES_MAX];
    size_t used;
};

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void
put(struct proto *proto, const void *bytes, size_t count)
{
    psi_assert(proto->used + count <= sizeof(proto->bytes));
    memcpy(proto->bytes + proto->used, bytes, count);
    proto->used += count;
}

static void
put_varint(struct proto *proto, uint64_t value)
{
    do {
        const uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));

        put(proto, &byte, 1);
        value >>= 7;
    } while (value != 0);
}

static void
put_key(struct proto *proto, unsigned field, unsigned kind)
{
    put_varint(proto, field << 3 | kind);
}

static void
put_bytes(struct proto *proto, unsigned field, const void *bytes, size_t count)
{
    put_key(proto, field, BYTES);
    put_varint(proto, count);
    put(proto, bytes, count);
}

static void
put_double(struct proto *proto, unsigned field, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    bits = htole64(bits);
    put_key(proto, field, FIXED64);
    put(proto, &bits, sizeof(bits));
}

static void
put_float(struct proto *proto, unsigned field, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    bits = htole32(bits);
    put_key(proto, field, FIXED32);
    put(proto, &bits, sizeof(bits));
}

/* ---- events -------------------------------------------------------------------------------- */

/* Event.wall_time 1, .step 2, .file_version 3, .summary 5; Summary.value 1; Value.tag 1,
 * .simple_value 2. */
static struct proto
point_event(const char *name, const struct curve_point *point)
{
    struct proto value = {.used = 0};
    struct proto summary = {.used = 0};
    struct proto event = {.used = 0};

    put_bytes(&value, 1, name, strlen(name));
    put_float(&value, 2, (float)point->value);
    put_bytes(&summary, 1, value.bytes, value.used);
    put_double(&event, 1, (double)point->unix_ms / 1e3);
    put_key(&event, 2, VARINT);
    put_varint(&event, point->step);
    put_bytes(&event, 5, summary.bytes, summary.used);
    return event;
}

static struct proto
first_event(uint64_t begun_s)
{
    static const char version[] = "brain.Event:2";
    struct proto event = {.used = 0};

    put_double(&event, 1, (double)begun_s);
    put_bytes(&event, 3, version, sizeof(version) - 1);
    return event;
}

/* Checksums of checksums would be weak: so they are turned, and moved. */
static uint32_t
masked_crc(const void *bytes, size_t count)
{
    const uint32_t crc = psi_crc32c(0, bytes, count);

    return htole32(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

static void
write_record(FILE *file, const struct proto *event)
{
    const uint64_t length = htole64(event->used);
    const uint32_t length_crc = masked_crc(&length, sizeof(length));
    const uint32_t crc = masked_crc(event->bytes, event->used);

    fwrite(&length, sizeof(length), 1, file);
    fwrite(&length_crc, sizeof(length_crc), 1, file);
    fwrite(event->bytes, event->used, 1, file);
    fwrite(&crc, sizeof(crc), 1, file);
}

/* ---- files --------------------------------------------------------------------------------- */

psd_status
tensorboard_open(struct tensorboard *board, const char *directory, const char *job,
                 uint64_t begun_s, struct psd_error *err)
{
    *board = (struct tensorboard){.begun_s = begun_s};
    if ((size_t)snprintf(board->directory, sizeof(board->directory) - 64, "%s/%s", directory,
                         job) >= sizeof(board->directory) - 64) {
        board->directory[0] = '\0';
        return psi_fail(err, PSD_ERR_INVALID, "tensorboard: the name of its directory is too long");
    }
    if (make_path(board->directory, NULL) != 0) {
        const psd_status status =
            psi_fail_errno(err, PSD_ERR_IO, "tensorboard: make %s", board->directory);

        board->directory[0] = '\0';
        return status;
    }
    return PSD_OK;
}

/* To the end of a worker's file, which is begun if it is new. NULL: errno says why. */
static FILE *
open_file(const struct tensorboard *board, uint32_t worker)
{
    char path[TENSORBOARD_PATH_MAX + 128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/worker%u", board->directory, worker);
    if (make_path(path, NULL) != 0) {
        return NULL;
    }
    snprintf(path, sizeof(path), "%s/worker%u/events.out.tfevents.%llu.psd_run", board->directory,
             worker, (unsigned long long)board->begun_s);
    file = fopen(path, "ae");
    if (file != NULL && ftell(file) == 0) {
        const struct proto event = first_event(board->begun_s);

        write_record(file, &event);
    }
    return file;
}

static bool
write_curve(const struct tensorboard *board, const struct curve *curve)
{
    uint32_t first = curve->count;
    bool written;
    FILE *file;

    while (first > 0 && curve->points[first - 1].number > board->since) {
        first--;
    }
    if (first == curve->count) {
        return true;
    }
    file = open_file(board, curve->worker);
    if (file == NULL) {
        return false;
    }
    for (uint32_t i = first; i < curve->count; i++) {
        const struct proto event = point_event(curve->name, &curve->points[i]);

        write_record(file, &event);
    }
    written = ferror(file) == 0;
    return fclose(file) == 0 && written;
}

psd_status
tensorboard_write(struct tensorboard *board, struct feed *feed, struct psd_error *err)
{
    psd_status status = PSD_OK;

    pthread_mutex_lock(&feed->lock);
    for (uint32_t i = 0; i < feed->curves.count && status == PSD_OK; i++) {
        if (!write_curve(board, &feed->curves.curves[i])) {
            status = psi_fail_errno(err, PSD_ERR_IO, "tensorboard: write to %s/worker%u",
                                    board->directory, feed->curves.curves[i].worker);
        }
    }
    board->since = feed->curves.number;
    pthread_mutex_unlock(&feed->lock);
    return status;
}
