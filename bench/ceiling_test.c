/*
 * ceiling_test.c - ceilings do the work that they are compared by; every run checks its bits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ceiling.h"

/* Two runs, one as it is and one that touches; what they lead to is checked by the workers. */
static void
run_twice(struct ceiling *ceiling, uint64_t bytes, uint32_t workers)
{
    struct team_order order = {.verb = TEAM_RUN, .bytes = bytes, .rounds = 3};
    struct psd_error err = {0};
    struct team_times times;

    assert_int_equal(ceiling->team.count, workers);
    for (int i = 0; i < 2; i++) {
        times = (struct team_times){0};
        assert_int_equal(team_command(&ceiling->team, &order, &times, &err), PSD_OK);
        assert_true(times.elapsed_ns > 0);
        assert_true(times.cpu_ns > 0);
        assert_true(times.median_ns <= times.p90_ns);
        assert_true(times.p90_ns <= times.p99_ns);
        assert_true(times.p99_ns <= times.worst_ns);
        order.flags = TEAM_TOUCH;
        order.rounds = 11;
    }
    ceiling_stop(ceiling);
}

/* If this fails, raw sockets do something else than a parameter server, for some shape or size. */
static void
test_sockets(void **state)
{
    static const uint64_t sizes[] = {4, 64, 262144, 262148, 1 << 20, 5 * 262144 + 40};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (uint32_t shape = 0; shape < 6; shape++) {
            struct ceiling ceiling;
            struct psd_error err = {0};

            const struct ceiling_shape who = {.workers = shape / 2 + 1,
                                              .servers = shape % 2 + 1,
                                              .threads = 1,
                                              .bytes = sizes[i]};

            assert_int_equal(ceiling_sockets_start(&who, &ceiling, &err), PSD_OK);
            run_twice(&ceiling, sizes[i], shape / 2 + 1);
        }
    }
}

/* If this fails, threads that share a worker's sockets leave out a part of the tensor, or never meet again. */
static void
test_sockets_of_several_threads(void **state)
{
    static const uint64_t sizes[] = {64, 262148, 5 * 262144 + 40};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (uint32_t threads = 2; threads <= 4; threads++) { /* more than servers: as many */
            const struct ceiling_shape who = {
                .workers = 2, .servers = 3, .threads = threads, .bytes = sizes[i]};
            struct ceiling ceiling;
            struct psd_error err = {0};

            assert_int_equal(ceiling_sockets_start(&who, &ceiling, &err), PSD_OK);
            run_twice(&ceiling, sizes[i], 2);
        }
    }
}

/* If this fails, spinning changes what is done, or never ends. */
static void
test_sockets_that_spin(void **state)
{
    const struct ceiling_shape who = {
        .wait = CEILING_SPIN, .workers = 1, .servers = 1, .threads = 1, .bytes = 1 << 20};
    struct ceiling ceiling;
    struct psd_error err = {0};

    (void)state;
    assert_int_equal(ceiling_sockets_start(&who, &ceiling, &err), PSD_OK);
    run_twice(&ceiling, 1 << 20, 1);
}

/* If this fails, threads on shared memory do something else than a parameter server, in some way or
 * size. */
static void
test_memory(void **state)
{
    static const uint64_t sizes[] = {4, 64, 100, 262144, (1 << 20) + 36};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int kind = CEILING_FULL; kind <= CEILING_COPY_LIBC; kind++) {
            for (uint32_t workers = 1; workers <= 3; workers++) {
                struct ceiling ceiling;
                struct psd_error err = {0};

                assert_int_equal(ceiling_memory_start((enum ceiling_memory)kind, workers, sizes[i],
                                                      &ceiling, &err),
                                 PSD_OK);
                run_twice(&ceiling, sizes[i], 1);
            }
        }
    }
}

/* If this fails, an echo is no echo, or one sleeps for ever. */
static void
test_pings(void **state)
{
    (void)state;
    for (int kind = CEILING_PING_MEMORY; kind <= CEILING_PING_UNIX; kind++) {
        for (int wait = CEILING_BLOCK; wait <= CEILING_SPIN; wait++) {
            struct ceiling ceiling;
            struct psd_error err = {0};

            assert_int_equal(ceiling_ping_start((enum ceiling_ping)kind, (enum ceiling_wait)wait,
                                                4096, &ceiling, &err),
                             PSD_OK);
            run_twice(&ceiling, 4096, 1);
        }
    }
}

/* If this fails, a relay adds something else than what its workers give, or one of them sleeps for ever. */
static void
test_relays(void **state)
{
    (void)state;
    for (uint32_t workers = 1; workers <= 3; workers++) {
        struct ceiling ceiling;
        struct psd_error err = {0};

        assert_int_equal(ceiling_relay_start(workers, 4096, &ceiling, &err), PSD_OK);
        run_twice(&ceiling, 4096, workers);
    }
}

/* If this fails, bare TLS loses or changes bytes, with one thread or with several. */
static void
test_tls(void **state)
{
    static const uint64_t sizes[] = {4, (1 << 20) + 36};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (uint32_t shape = 0; shape < 4; shape++) {
            const struct ceiling_shape who = {
                .workers = shape / 2 + 1, .threads = shape % 2 * 2 + 1, .bytes = sizes[i]};
            struct ceiling ceiling;
            struct psd_error err = {0};

            assert_int_equal(ceiling_tls_start(&who, &ceiling, &err), PSD_OK);
            run_twice(&ceiling, sizes[i], who.workers);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sockets),
        cmocka_unit_test(test_sockets_of_several_threads),
        cmocka_unit_test(test_sockets_that_spin),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_pings),
        cmocka_unit_test(test_relays),
        cmocka_unit_test(test_tls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
