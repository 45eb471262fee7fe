/*
 * rows_test.c - payloads about rows: what is written is read, and nothing else is believed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/rows.h"

enum { ROW_BYTES = 10, PLACES = 3, PLACE = 1, ROOM = 4096 };

/* Ids of the place, as they travel. */
static uint32_t
find_ids(uint64_t *ids, uint32_t count)
{
    const uint32_t first = psi_bucket_first(PLACE, PSI_BUCKET_BITS, PLACES);
    const uint32_t end = psi_bucket_first(PLACE + 1, PSI_BUCKET_BITS, PLACES);
    uint32_t found = 0;

    for (uint64_t id = 0; found < count; id++) {
        const uint32_t bucket = psi_bucket_of(id, PSI_BUCKET_BITS);
        uint32_t to = found;

        if (bucket < first || bucket >= end) {
            continue;
        }
        for (; to > 0 && psi_bucket_before(id, ids[to - 1]); to--) {
            ids[to] = ids[to - 1];
        }
        ids[to] = id;
        found++;
    }
    return found;
}

static struct psi_rows_form
form(void)
{
    return (struct psi_rows_form){
        .row_bytes = ROW_BYTES,
        .bucket_bits = PSI_BUCKET_BITS,
        .first_bucket = psi_bucket_first(PLACE, PSI_BUCKET_BITS, PLACES),
        .end_bucket = psi_bucket_first(PLACE + 1, PSI_BUCKET_BITS, PLACES),
    };
}

/* Three rows pushed, two asked for. Returns how long it is. */
static size_t
write_some(uint8_t *payload, uint64_t *ids)
{
    const struct psi_rows counts = {.pushed = 3, .asked = 2, .gradients = 1};
    const struct psi_rows_room room = psi_rows_encode(payload, ROW_BYTES, &counts);

    find_ids(ids, 3);
    for (uint32_t i = 0; i < 3; i++) {
        psi_store_u64(room.ids + 8 * i, ids[i]);
        memset(room.rows + ROW_BYTES * i, (int)(i + 1), ROW_BYTES);
    }
    psi_store_u64(room.asked_ids, ids[0]);
    psi_store_u64(room.asked_ids + 8, ids[2]);
    return psi_rows_bytes(ROW_BYTES, 3, 2);
}

static psd_status
decode(const uint8_t *payload, size_t bytes, struct psi_rows *rows_p, struct psd_error *err)
{
    const struct psi_rows_form expected = form();

    return psi_rows_decode(payload, bytes, &expected, rows_p, err);
}

static void
assert_refused(const uint8_t *payload, size_t bytes, const char *says)
{
    struct psi_rows rows;
    struct psd_error err;

    assert_int_equal(decode(payload, bytes, &rows, &err), PSD_ERR_PROTOCOL);
    if (strstr(err.text, says) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", says, err.text);
    }
}

/* If this fails, rows arrive as others than were sent. */
static void
test_what_is_written_is_read(void **state)
{
    uint8_t payload[ROOM];
    uint64_t ids[3];
    const size_t bytes = write_some(payload, ids);
    struct psi_rows rows;
    struct psd_error err;

    (void)state;
    assert_int_equal(decode(payload, bytes, &rows, &err), PSD_OK);
    assert_int_equal(rows.pushed, 3);
    assert_int_equal(rows.asked, 2);
    assert_int_equal(rows.gradients, 1);
    assert_true(psi_load_u64(rows.ids + 16) == ids[2]);
    assert_true(psi_load_u64(rows.asked_ids + 8) == ids[2]);
    assert_int_equal(rows.rows[ROW_BYTES * 2], 3);
    assert_int_equal((rows.asked_ids - payload) % 8, 0);
}

/* If this fails, a worker that says nothing of a place cannot close its round. */
static void
test_nothing_can_be_said(void **state)
{
    uint8_t payload[PSI_ROWS_HEAD_BYTES];
    struct psi_rows rows = {.gradients = 1};

    (void)state;
    (void)psi_rows_encode(payload, ROW_BYTES, &rows);
    assert_int_equal(psi_rows_bytes(ROW_BYTES, 0, 0), sizeof(payload));
    assert_int_equal(decode(payload, sizeof(payload), &rows, NULL), PSD_OK);
    assert_int_equal(rows.pushed + rows.asked, 0);
}

/* If this fails, bytes that are cut, too long, or of other counts are believed. */
static void
test_sizes(void **state)
{
    uint8_t payload[ROOM] = {0};
    uint64_t ids[3];
    const size_t bytes = write_some(payload, ids);

    (void)state;
    for (size_t cut = 0; cut < bytes; cut++) {
        assert_refused(payload, cut, "bytes");
    }
    assert_refused(payload, bytes + 8, "expected");
    psi_store_u32(payload, PSI_ROWS_MAX + 1);
    assert_refused(payload, bytes, "at most");
    psi_store_u32(payload, UINT32_MAX);
    assert_refused(payload, bytes, "at most");
    (void)write_some(payload, ids);
    psi_store_u32(payload + 8, 0);
    assert_refused(payload, bytes, "0 gradients");
    psi_store_u32(payload + 8, 2);
    assert_refused(payload, bytes, "2 gradients");
    psi_store_u32(payload + 8, 1);
    psi_store_u32(payload + 12, 1);
    assert_refused(payload, bytes, "gradients");
}

/* If this fails, a store that relies on the order of ids is given others. */
static void
test_order_of_ids(void **state)
{
    uint8_t payload[ROOM];
    uint64_t ids[3];
    const size_t bytes = write_some(payload, ids);
    uint8_t *at = payload + PSI_ROWS_HEAD_BYTES;

    (void)state;
    psi_store_u64(at + 8, ids[2]);
    psi_store_u64(at + 16, ids[1]);
    assert_refused(payload, bytes, "not sorted");
    psi_store_u64(at + 8, ids[0]);
    assert_refused(payload, bytes, "comes twice");
    (void)write_some(payload, ids);
    psi_store_u64(payload + bytes - 8, ids[0]);
    assert_refused(payload, bytes, "comes twice");
}

/* If this fails, a lane keeps rows that nobody looks for there. */
static void
test_ids_of_another_place(void **state)
{
    uint8_t payload[ROOM];
    uint64_t ids[3];
    const size_t bytes = write_some(payload, ids);
    uint64_t stranger = 0;

    (void)state;
    while (psi_bucket_place(psi_bucket_of(stranger, PSI_BUCKET_BITS), PSI_BUCKET_BITS, PLACES) ==
           PLACE) {
        stranger++;
    }
    psi_store_u64(payload + PSI_ROWS_HEAD_BYTES, stranger);
    assert_refused(payload, bytes, "another place");
}

/* If this fails, places overlap, or some bucket belongs to nobody. */
static void
test_every_bucket_has_one_place(void **state)
{
    (void)state;
    for (uint32_t places = 1; places <= 1024; places += places < 20 ? 1 : 251) {
        for (uint32_t bucket = 0; bucket < 1u << PSI_BUCKET_BITS_MIN; bucket++) {
            const uint32_t place = psi_bucket_place(bucket, PSI_BUCKET_BITS_MIN, places);

            assert_true(place < places);
            assert_true(psi_bucket_first(place, PSI_BUCKET_BITS_MIN, places) <= bucket);
            assert_true(psi_bucket_first(place + 1, PSI_BUCKET_BITS_MIN, places) > bucket);
        }
    }
}

/* If this fails, a worker takes too few rows, or those of another request, for what it asked for. */
static void
test_values(void **state)
{
    uint8_t payload[ROOM];
    const size_t bytes = psi_rows_value_bytes(ROW_BYTES, 4);
    const uint8_t *rows = NULL;
    struct psd_error err;

    (void)state;
    memset(psi_rows_value_encode(payload, 4), 7, 4 * ROW_BYTES);
    assert_int_equal(psi_rows_value_decode(payload, bytes, ROW_BYTES, 4, &rows, &err), PSD_OK);
    assert_int_equal(rows[4 * ROW_BYTES - 1], 7);
    assert_int_equal(psi_rows_value_decode(payload, bytes, ROW_BYTES, 3, &rows, &err),
                     PSD_ERR_PROTOCOL);
    assert_int_equal(psi_rows_value_decode(payload, bytes - 1, ROW_BYTES, 4, &rows, &err),
                     PSD_ERR_PROTOCOL);
    psi_store_u32(payload, 3);
    assert_int_equal(psi_rows_value_decode(payload, bytes, ROW_BYTES, 4, &rows, &err),
                     PSD_ERR_PROTOCOL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_nothing_can_be_said),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_order_of_ids),
        cmocka_unit_test(test_ids_of_another_place),
        cmocka_unit_test(test_every_bucket_has_one_place),
        cmocka_unit_test(test_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
