/*
 * rendezvous_file_test.c - what one psd_run tells the others in a shared directory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "launch/meet/rendezvous_file.h"

static const struct rendezvous_entry sample = {.run = "4711",
                                               .rank = 3,
                                               .size = 6,
                                               .incarnation = 1763204400123,
                                               .token = 0xfedcba9876543210,
                                               .pid = 77,
                                               .host = "node7.cluster",
                                               .addresses = {"10.0.0.7", "fd00::7"},
                                               .address_count = 2,
                                               .port = 40511};

/* If this fails, ranks do not understand each other's files. */
static void
test_what_was_written_is_read(void **state)
{
    struct rendezvous_entry entry;
    char text[RENDEZVOUS_FILE_BYTES];

    (void)state;
    assert_int_equal(rendezvous_write(&sample, text, NULL), PSD_OK);
    assert_int_equal(rendezvous_read(text, strlen(text), &entry, NULL), PSD_OK);
    assert_memory_equal(&entry, &sample, sizeof(entry));
}

/* If this fails, half of a file is taken for a whole one. Its last byte is a line end. */
static void
test_no_part_of_a_file_is_a_file(void **state)
{
    struct rendezvous_entry entry = {.rank = 99};
    char text[RENDEZVOUS_FILE_BYTES];

    (void)state;
    assert_int_equal(rendezvous_write(&sample, text, NULL), PSD_OK);
    for (size_t bytes = 0; bytes + 1 < strlen(text); bytes++) {
        assert_int_equal(rendezvous_read(text, bytes, &entry, NULL), PSD_ERR_INVALID);
    }
    assert_int_equal(entry.rank, 99);
}

static psd_status
read_changed(const char *from, const char *to)
{
    struct rendezvous_entry entry;
    char text[RENDEZVOUS_FILE_BYTES];
    char changed[2 * RENDEZVOUS_FILE_BYTES];
    char *at;

    assert_int_equal(rendezvous_write(&sample, text, NULL), PSD_OK);
    at = strstr(text, from);
    assert_non_null(at);
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return rendezvous_read(changed, strlen(changed), &entry, NULL);
}

/* If this fails, a file leads a psd_run to something that is no address, or no rank. */
static void
test_values_are_checked(void **state)
{
    static const char *const changes[][2] = {
        {"\"rank\": 3", "\"rank\": 6"},
        {"\"rank\": 3", "\"rank\": -1"},
        {"\"rank\": 3", "\"rank\": \"3\""},
        {"\"size\": 6", "\"size\": 0"},
        {"\"size\": 6", "\"size\": 99999999999"},
        {"\"port\": 40511", "\"port\": 65536"},
        {"\"port\": 40511", "\"port\": 1.5"},
        {"\"psd_rendezvous\": 1", "\"psd_rendezvous\": 2"},
        {"\"10.0.0.7\"", "\"10.0.0.7 \""},
        {"\"10.0.0.7\"", "\"\""},
        {"\"10.0.0.7\"", "7"},
        {"\"node7.cluster\"", "\"a\\nb\""},
        {"\"node7.cluster\"", "null"},
        {"fedcba9876543210", "fedcba987654321"},
        {"fedcba9876543210", "Fedcba9876543210"},
        {"\"pid\": 77", "\"pid\": 77, \"pid\": 78"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        assert_int_equal(read_changed(changes[i][0], changes[i][1]), PSD_ERR_INVALID);
    }
    assert_int_equal(read_changed("\"size\": 6", "\"size\": 7"), PSD_OK);
}

/* If this fails, files of the scripts before psd_run are not recognised. */
static void
test_old_files(void **state)
{
    static const char text[] = "{\"task\": \"worker\", \"worker_idx\": 1, \"ip_address\": "
                               "\"10.0.0.9\", \"port\": 49152}";
    struct rendezvous_old old;

    (void)state;
    assert_int_equal(rendezvous_read_old(text, strlen(text), &old, NULL), PSD_OK);
    assert_string_equal(old.task, "worker");
    assert_int_equal(old.index, 1);
    assert_string_equal(old.address, "10.0.0.9");
    assert_int_equal(old.port, 49152);
    for (size_t bytes = 0; bytes < strlen(text); bytes++) {
        assert_int_equal(rendezvous_read_old(text, bytes, &old, NULL), PSD_ERR_INVALID);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_is_read),
        cmocka_unit_test(test_no_part_of_a_file_is_a_file),
        cmocka_unit_test(test_values_are_checked),
        cmocka_unit_test(test_old_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
