/*
 * base_test.c - the leaf tools: checksum, errors, status texts, log lines, descriptors.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/descriptors.h"
#include "base/fail.h"
#include "base/log.h"

/* If this fails, two hosts would not agree about any header. */
static void
test_crc32c_known_value(void **state)
{
    (void)state;
    assert_int_equal(psi_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(psi_crc32c_portable(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(psi_crc32c(psi_crc32c(0, "12345", 5), "6789", 4), 0xe3069283u);
}

/* If this fails, hosts with and without the instruction disagree. */
static void
test_crc32c_paths_agree(void **state)
{
    uint8_t bytes[97];

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i * 37 + 11);
    }
    for (size_t from = 0; from < 9; from++) {
        for (size_t count = 0; from + count <= sizeof(bytes); count++) {
            assert_int_equal(psi_crc32c(7, bytes + from, count),
                             psi_crc32c_portable(7, bytes + from, count));
        }
    }
}

/* If this fails, messages lose the system's words. */
static void
test_fail_errno_appends_reason(void **state)
{
    struct psd_error err;

    (void)state;
    errno = ENOENT;
    assert_int_equal(psi_fail_errno(&err, PSD_ERR_IO, "open %s", "x.json"), PSD_ERR_IO);
    assert_string_equal(err.text, "open x.json: No such file or directory");
    assert_int_equal(psi_fail(NULL, PSD_ERR_BUSY, "nobody listens"), PSD_ERR_BUSY);
}

static void
test_status_texts(void **state)
{
    (void)state;
    assert_string_equal(psd_status_name(PSD_ERR_TIMEOUT), "PSD_ERR_TIMEOUT");
    assert_string_equal(psd_status_text(PSD_ERR_TIMEOUT), "deadline passed");
    assert_string_equal(psd_status_text((psd_status)12345), "unknown status");
}

struct kept {
    int lines;
    char text[64];
};

static void
keep(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    struct kept *kept = sink;

    (void)level;
    (void)id;
    kept->lines++;
    strncpy(kept->text, text, sizeof(kept->text) - 1);
}

/* If this fails, debug lines reach users who did not ask. */
static void
test_log_respects_level(void **state)
{
    struct kept kept = {0};
    struct psi_log log = {.write = keep, .sink = &kept, .level = PSI_LOG_INFO};

    (void)state;
    psi_log(&log, PSI_LOG_DEBUG, "X", "hidden");
    assert_int_equal(kept.lines, 0);
    psi_log(&log, PSI_LOG_INFO, "X", "shown %d", 7);
    assert_int_equal(kept.lines, 1);
    assert_string_equal(kept.text, "shown 7");
}

/* If this fails, a daemon makes do with the few descriptors that a shell gives it. */
static void
test_descriptors_are_raised(void **state)
{
    int status = 0;
    pid_t child;

    (void)state;
    child = fork(); /* the limits of this process stay as they are */
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {0};
        rlim_t most;

        getrlimit(RLIMIT_NOFILE, &limit);
        most = limit.rlim_max;
        limit.rlim_cur = 64;
        _exit(setrlimit(RLIMIT_NOFILE, &limit) == 0 && psi_descriptors_raise() == most &&
                      getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == most
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* If this fails, strangers can hold the descriptors that members need. */
static void
test_descriptors_for_strangers(void **state)
{
    (void)state;
    assert_int_equal(psi_descriptors_for_strangers(1 << 20, 8), 256);
    assert_int_equal(psi_descriptors_for_strangers(1024, 1), 256);
    assert_int_equal(psi_descriptors_for_strangers(1024, 8), 32);
    assert_int_equal(psi_descriptors_for_strangers(256, 64), 1);
    assert_int_equal(psi_descriptors_for_strangers(64, 64), 1);
    assert_int_equal(psi_descriptors_for_strangers(UINT32_MAX, 1), 256);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c_known_value),
        cmocka_unit_test(test_crc32c_paths_agree),
        cmocka_unit_test(test_fail_errno_appends_reason),
        cmocka_unit_test(test_status_texts),
        cmocka_unit_test(test_log_respects_level),
        cmocka_unit_test(test_descriptors_are_raised),
        cmocka_unit_test(test_descriptors_for_strangers),
    };

    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
