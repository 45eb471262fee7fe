/*
 * pass_test.c - what tells members from strangers before a handshake is begun.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct job {
    struct psi_secret *secret;
    struct psi_passes *passes;
};

static int
make_job(void **state)
{
    struct job *job = calloc(1, sizeof(*job));

    if (job == NULL || psi_secret_create(&job->secret, NULL) != PSD_OK ||
        psi_passes_create(job->secret, &job->passes, NULL) != PSD_OK) {
        return -1;
    }
    *state = job;
    return 0;
}

static int
end_job(void **state)
{
    struct job *job = *state;

    psi_passes_destroy(job->passes);
    psi_secret_destroy(job->secret);
    free(job);
    return 0;
}

static void
write_label(const struct job *job, char label[PSI_LABEL_BYTES])
{
    snprintf(label, PSI_LABEL_BYTES, "psd1 tls worker:3 server:0.1");
    assert_true(psi_pass_write(job->passes, label));
}

/* If this fails, members are taken for strangers,
 * or anybody who saw one label can write another. */
static void
test_check(void **state)
{
    const struct job *job = *state;
    char label[PSI_LABEL_BYTES];
    uint64_t number;

    write_label(job, label);
    assert_true(psi_pass_check(job->passes, label, &number));
    assert_int_not_equal(number, 0);
    for (size_t i = 0; i < strlen(label); i++) {
        label[i] ^= 1;
        assert_false(psi_pass_check(job->passes, label, &number));
        label[i] ^= 1;
    }
    assert_true(psi_pass_check(job->passes, label, &number));
    label[strlen(label) - 1] = '\0';
    assert_false(psi_pass_check(job->passes, label, &number));
    assert_false(psi_pass_check(job->passes, "", &number));
    assert_false(psi_pass_check(job->passes, "psd1 tls worker:3 server:0.1", &number));
}

/* If this fails, another job's members pass for ours. */
static void
test_check_of_another_job(void **state)
{
    const struct job *job = *state;
    void *other;
    char label[PSI_LABEL_BYTES];
    uint64_t number;

    assert_int_equal(make_job(&other), 0);
    write_label(other, label);
    assert_false(psi_pass_check(job->passes, label, &number));
    end_job(&other);
}

/* If this fails, two labels of a member are the same, and the second is taken for a recording. */
static void
test_numbers_differ(void **state)
{
    const struct job *job = *state;
    char one[PSI_LABEL_BYTES];
    char other[PSI_LABEL_BYTES];

    write_label(job, one);
    write_label(job, other);
    assert_string_not_equal(one, other);
}

/* If this fails, a label grows over its end. */
static void
test_write_without_room(void **state)
{
    const struct job *job = *state;
    char label[PSI_LABEL_BYTES];
    uint64_t number;

    memset(label, 'x', sizeof(label));
    label[PSI_LABEL_BYTES - 2 - PSI_PASS_DIGITS] = '\0';
    assert_true(psi_pass_write(job->passes, label));
    assert_int_equal(strlen(label), PSI_LABEL_BYTES - 1);
    assert_true(psi_pass_check(job->passes, label, &number));
    memset(label, 'x', sizeof(label));
    label[PSI_LABEL_BYTES - 1 - PSI_PASS_DIGITS] = '\0';
    assert_false(psi_pass_write(job->passes, label));
}

/* If this fails, a recorded greeting is worth an answer again and again. */
static void
test_use_once(void **state)
{
    const struct job *job = *state;

    assert_true(psi_pass_use(job->passes, 7));
    assert_false(psi_pass_use(job->passes, 7));
    for (uint64_t i = 1; i < PSI_PASSES_KEPT; i++) {
        assert_true(psi_pass_use(job->passes, 100 + i));
    }
    assert_false(psi_pass_use(job->passes, 7));
    assert_true(psi_pass_use(job->passes, 99)); /* the oldest is forgotten */
    assert_true(psi_pass_use(job->passes, 7));
}

/* If this fails, a member's first bytes are not recognised among others, or noise is. */
static void
test_find(void **state)
{
    const struct job *job = *state;
    char label[PSI_LABEL_BYTES];
    uint8_t bytes[600];
    uint64_t number;
    size_t size;

    write_label(job, label);
    size = strlen(label);
    for (size_t at = 2; at + size <= sizeof(bytes); at += 83) {
        memset(bytes, 0xee, sizeof(bytes));
        bytes[at - 2] = (uint8_t)(size >> 8);
        bytes[at - 1] = (uint8_t)size;
        memcpy(bytes + at, label, size);
        assert_true(psi_pass_find(job->passes, bytes, sizeof(bytes)));
        assert_true(psi_pass_find(job->passes, bytes, at + size));
        assert_false(psi_pass_find(job->passes, bytes, at + size - 1));
        assert_false(psi_pass_find(job->passes, bytes + at, size)); /* without its length */
        for (unsigned wrong = 0; wrong < 256; wrong++) {
            bytes[at - 1] = (uint8_t)wrong;
            assert_int_equal(psi_pass_find(job->passes, bytes, sizeof(bytes)), wrong == size);
        }
        bytes[at - 1] = (uint8_t)size;
        bytes[at - 2] = 1;
        assert_false(psi_pass_find(job->passes, bytes, sizeof(bytes)));
    }
    assert_false(psi_pass_find(job->passes, bytes, 0));
    assert_true(psi_pass_check(job->passes, label, &number));
    assert_true(psi_pass_use(job->passes, number));
    memset(bytes, 0, sizeof(bytes));
    bytes[1] = (uint8_t)size;
    memcpy(bytes + 2, label, size);
    assert_false(psi_pass_find(job->passes, bytes, sizeof(bytes)));
}

int
main(void)
{
#define PASS_TEST(function) cmocka_unit_test_setup_teardown(function, make_job, end_job)
    const struct CMUnitTest tests[] = {
        PASS_TEST(test_check),          PASS_TEST(test_check_of_another_job),
        PASS_TEST(test_numbers_differ), PASS_TEST(test_write_without_room),
        PASS_TEST(test_use_once),       PASS_TEST(test_find),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
