/*
 * base_test.c - the leaf tools: checksum, errors, status texts, log lines, descriptors,
 * cores.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/copy_aside.h"
#include "base/cores.h"
#include "base/crc32c.h"
#include "base/descriptors.h"
#include "base/fail.h"
#include "base/limiter.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/process.h"
#include "base/std_fds.h"

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

/* If this fails, they disagree about what is long. */
static void
test_crc32c_paths_agree_on_long_pieces(void **state)
{
    enum { BYTES = 60000 };
    uint8_t *bytes = malloc(BYTES);
    uint64_t drawn = 1;

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < BYTES; i++) {
        drawn = drawn * UINT64_C(6364136223846793005) + 1442695040888963407u;
        bytes[i] = (uint8_t)(drawn >> 56);
    }
    for (size_t bytes_left = BYTES; bytes_left > BYTES / 3; bytes_left -= 4567) {
        assert_int_equal(psi_crc32c(7, bytes + 3, bytes_left - 3),
                         psi_crc32c_portable(7, bytes + 3, bytes_left - 3));
    }
    free(bytes);
}

/* If this fails, what a checkpoint saves is not what a table had. */
static void
test_copies_aside_are_copies(void **state)
{
    enum { BYTES = 1000 };
    uint8_t from[BYTES + 7];
    _Alignas(64) uint8_t to[BYTES + 70];

    (void)state;
    for (size_t i = 0; i < sizeof(from); i++) {
        from[i] = (uint8_t)(i * 37 + 11);
    }
    for (size_t begin = 0; begin < 70; begin += 23) { /* on a line, and off it */
        for (size_t bytes = 0; bytes <= BYTES - begin; bytes += 13) {
            memset(to, 0xee, sizeof(to));
            psi_copy_aside(to + begin, from + begin % 7, bytes);
            assert_memory_equal(to + begin, from + begin % 7, bytes);
            assert_int_equal(to[begin + bytes], 0xee);
        }
    }
}

/* If this fails, a file that was not written from front to back looks damaged. */
static void
test_crc32c_in_any_order(void **state)
{
    enum { BYTES = 1000 };
    static const size_t cuts[] = {0, 1, 8, 9, 300, 777, BYTES};
    static const unsigned order[] = {4, 0, 5, 2, 1, 3};
    uint8_t bytes[BYTES] = {0};
    uint32_t crc = psi_crc32c_zeros(BYTES);

    (void)state;
    assert_int_equal(psi_crc32c_zeros(0), 0);
    for (unsigned i = 0; i < 63; i++) { /* twice so many zeros are as many, and as many behind */
        const uint64_t half = UINT64_C(1) << i;

        assert_int_equal(psi_crc32c_zeros(2 * half) ^ psi_crc32c_zeros(half),
                         psi_crc32c_change(psi_crc32c_zeros(half), 0, half));
    }
    assert_int_equal(crc, psi_crc32c(0, bytes, BYTES));
    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = (uint8_t)(i * 131 + i / 7 + 3);
    }
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        const size_t begin = cuts[order[i]];
        const size_t end = cuts[order[i] + 1];

        assert_int_not_equal(crc, psi_crc32c(0, bytes, BYTES));
        crc ^=
            psi_crc32c_change(psi_crc32c(0, bytes + begin, end - begin), end - begin, BYTES - end);
    }
    assert_int_equal(crc, psi_crc32c(0, bytes, BYTES));
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

/* If this fails, a status has no text, or the text of another. */
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
    char text[96];
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

static void
warn_at(struct psi_limiter *limiter, unsigned ms, const char *peer, const char *text)
{
    psi_limiter_warn(limiter, ms * UINT64_C(1000000), "X", peer, text);
}

/* If this fails, somebody who knocks again and again writes a line each time. */
static void
test_limiter_tells_a_thing_once_a_second(void **state)
{
    struct kept kept = {0};
    const struct psi_log log = {.write = keep, .sink = &kept, .level = PSI_LOG_WARN};
    struct psi_limiter limiter = {.log = &log};

    (void)state;
    for (unsigned ms = 0; ms < 1000; ms += 100) {
        warn_at(&limiter, ms, ms % 200 == 0 ? "tcp://10.0.0.1:4711" : "tcp://10.0.0.1:4712", "no");
    }
    assert_int_equal(kept.lines, 1);
    assert_string_equal(kept.text, "tcp://10.0.0.1:4711: no");
    warn_at(&limiter, 999, "tcp://10.0.0.2:4711", "no"); /* another host */
    assert_int_equal(kept.lines, 2);
    assert_string_equal(kept.text, "tcp://10.0.0.2:4711: no (9 warnings before it not shown)");
    warn_at(&limiter, 999, "tcp://10.0.0.1:4711", "no way"); /* another thing */
    assert_int_equal(kept.lines, 3);
    warn_at(&limiter, 1000, "tcp://10.0.0.1:4713", "no"); /* the next second */
    assert_int_equal(kept.lines, 4);
    assert_string_equal(kept.text, "tcp://10.0.0.1:4713: no");
}

/* If this fails, whoever has many reasons to be refused fills the log. */
static void
test_limiter_tells_few_things_a_second(void **state)
{
    struct kept kept = {0};
    const struct psi_log log = {.write = keep, .sink = &kept, .level = PSI_LOG_WARN};
    struct psi_limiter limiter = {.log = &log};

    (void)state;
    for (char reason[2] = "a"; reason[0] <= 'z'; reason[0]++) {
        warn_at(&limiter, 10, "tcp://10.0.0.1:4711", reason);
    }
    assert_int_equal(kept.lines, PSI_LIMITER_LINES);
    warn_at(&limiter, 1010, "tcp://10.0.0.1:4711", "z");
    assert_string_equal(kept.text, "tcp://10.0.0.1:4711: z (21 warnings before it not shown)");
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

/* ---- cores ------------------------------------------------------------------------------- */

struct share {
    uint32_t index;
    uint32_t shares;
    cpu_set_t cores;
};

static void *
keep_to_share(void *context)
{
    struct share *share = context;

    psi_cores_keep_to_share(share->index, share->shares);
    return (void *)(intptr_t)sched_getaffinity(0, sizeof(share->cores), &share->cores);
}

static cpu_set_t
cores_of_share(uint32_t index, uint32_t shares)
{
    struct share share = {.index = index, .shares = shares};
    pthread_t thread;
    void *code;

    assert_int_equal(pthread_create(&thread, NULL, keep_to_share, &share), 0);
    assert_int_equal(pthread_join(thread, &code), 0);
    assert_null(code);
    return share.cores;
}

/* If this fails, two threads are put on one core, or a core is nobody's. */
static void
test_shares_of_cores_are_apart(void **state)
{
    const uint32_t cores = psi_usable_cores();

    (void)state;
    for (uint32_t shares = 1; shares <= cores && shares <= 8; shares++) {
        cpu_set_t taken;
        int count = 0;

        CPU_ZERO(&taken);
        for (uint32_t i = 0; i < shares; i++) {
            const cpu_set_t share = cores_of_share(i, shares);

            assert_true(CPU_COUNT(&share) >= (int)(cores / shares));
            count += CPU_COUNT(&share);
            CPU_OR(&taken, &taken, &share);
        }
        assert_int_equal(count, cores);
        assert_int_equal(CPU_COUNT(&taken), cores);
    }
}

/* If this fails, a worker on a small machine, or one of many, has threads that only take cores from others. */
static void
test_spare_threads(void **state)
{
    const uint32_t cores = psi_usable_cores();

    (void)state;
    assert_in_range(psi_spare_threads(1), 1, cores / 2 > 1 ? cores / 2 : 1);
    assert_true(psi_spare_threads(1) <= 8);
    assert_int_equal(psi_spare_threads(cores), 1);
    assert_int_equal(psi_spare_threads(1000), 1);
    assert_true(psi_allowed_cores() >= 1);
}

/* If this fails, threads of which there are more than cores crowd on some of them. */
static void
test_more_shares_than_cores_change_nothing(void **state)
{
    const cpu_set_t share = cores_of_share(0, psi_usable_cores() + 1);

    (void)state;
    assert_int_equal(CPU_COUNT(&share), psi_usable_cores());
}

/* What a program of which a shell closed some of 0 to 2 finds there. Returns 0 if it can print. */
static int
fill_and_look(const int *closed, size_t count)
{
    int files[2];

    for (size_t i = 0; i < count; i++) {
        close(closed[i]);
    }
    if (psi_std_fds_fill() != 0 || pipe(files) != 0 || files[0] <= STDERR_FILENO) {
        return 1; /* the next descriptor is one of the three: whatever is printed goes there */
    }
    return write(STDOUT_FILENO, "", 0) == 0 && write(STDERR_FILENO, "", 0) == 0 ? 0 : 2;
}

/* If this fails, `ps_server >&-` writes what it prints into its first socket. */
static void
test_closed_descriptors_are_filled(void **state)
{
    static const int closed[][3] = {{0}, {1}, {2}, {1, 2}, {0, 1, 2}};
    static const size_t counts[] = {1, 1, 1, 2, 3};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        int status = 0;
        const pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
            _exit(fill_and_look(closed[i], counts[i]));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c_known_value),
        cmocka_unit_test(test_crc32c_paths_agree),
        cmocka_unit_test(test_copies_aside_are_copies),
        cmocka_unit_test(test_crc32c_paths_agree_on_long_pieces),
        cmocka_unit_test(test_crc32c_in_any_order),
        cmocka_unit_test(test_fail_errno_appends_reason),
        cmocka_unit_test(test_status_texts),
        cmocka_unit_test(test_log_respects_level),
        cmocka_unit_test(test_pool_uses_objects_again),
        cmocka_unit_test(test_process_knows_its_children),
        cmocka_unit_test(test_limiter_tells_a_thing_once_a_second),
        cmocka_unit_test(test_limiter_tells_few_things_a_second),
        cmocka_unit_test(test_descriptors_are_raised),
        cmocka_unit_test(test_descriptors_for_strangers),
        cmocka_unit_test(test_closed_descriptors_are_filled),
        cmocka_unit_test(test_shares_of_cores_are_apart),
        cmocka_unit_test(test_spare_threads),
        cmocka_unit_test(test_more_shares_than_cores_change_nothing),
    };

    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
