/*
 * base_test.c - the leaf tools: checksum, errors, status texts, log lines.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/process.h"

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

/* If this fails, the steady state of a job allocates, or two users get one object. */
static void
test_pool_uses_objects_again(void **state)
{
    struct psi_pool pool;
    uint8_t *first;
    uint8_t *second;

    (void)state;
    psi_pool_init(&pool, 1); /* less than the pool itself needs to remember it */
    first = psi_pool_take(&pool);
    second = psi_pool_take(&pool);
    assert_non_null(first);
    assert_non_null(second);
    assert_ptr_not_equal(first, second);
    *first = 1;
    *second = 2;
    psi_pool_give(&pool, first);
    psi_pool_give(&pool, second);
#ifndef PSI_INSTRUMENTED /* those builds allocate every time */
    assert_ptr_equal(psi_pool_take(&pool), second);
    assert_ptr_equal(psi_pool_take(&pool), first);
    psi_pool_give(&pool, first);
    psi_pool_give(&pool, second);
#endif
    psi_pool_fini(&pool);
    assert_null(pool.spare);
}

/* If this fails, a forked child uses its parent's connections, or the parent may not. */
static void
test_process_knows_its_children(void **state)
{
    struct psi_process process;
    int ways[2]; /* as seen by a child: with the page, and by process id alone */

    (void)state;
    psi_process_init(&process);
    for (int i = 0; i < 2; i++) {
        const struct psi_process asked = {.pid = process.pid, .here = i == 0 ? process.here : NULL};
        pid_t child;

        assert_true(psi_process_is_this(&asked));
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            _exit(psi_process_is_this(&asked) ? 1 : 0);
        }
        assert_int_equal(waitpid(child, &ways[i], 0), child);
        assert_true(psi_process_is_this(&asked));
    }
    assert_int_equal(ways[0], 0);
    assert_int_equal(ways[1], 0);
    psi_process_fini(&process);
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
        cmocka_unit_test(test_pool_uses_objects_again),
        cmocka_unit_test(test_process_knows_its_children),
    };

    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
