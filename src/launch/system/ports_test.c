/*
 * ports_test.c - ports for the workers' own use.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/ports.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static bool
can_bind(uint16_t number)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(number)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool bound;

    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    bound = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return bound;
}

static bool
has(const struct ports *ports, uint16_t number)
{
    for (size_t i = 0; i < ports->count; i++) {
        if (ports->list[i].number == number) {
            return true;
        }
    }
    return false;
}

/* If this fails, workers of two jobs on one machine are given the same port. */
static void
test_jobs_share_no_port(void **state)
{
    struct ports one = {0};
    struct ports other = {0};

    (void)state;
    assert_int_equal(ports_reserve(&one, "127.0.0.1", 40, 0, NULL), PSD_OK);
    for (size_t i = 0; i < one.count; i++) {
        assert_in_range(one.list[i].number, PORTS_FIRST, PORTS_LAST);
        ports_release(&one, one.list[i].number); /* its worker runs, but has not bound it yet */
    }
    assert_int_equal(ports_reserve(&other, "127.0.0.1", 40, 0, NULL), PSD_OK);
    for (size_t i = 0; i < one.count; i++) {
        assert_false(has(&other, one.list[i].number));
    }
    ports_fini(&one);
    ports_fini(&other);
}

/* If this fails, somebody else takes the port before the worker runs, or the worker cannot. */
static void
test_port_is_held_until_released(void **state)
{
    struct ports ports = {0};

    (void)state;
    assert_int_equal(ports_reserve(&ports, "127.0.0.1", 2, 0, NULL), PSD_OK);
    assert_false(can_bind(ports.list[0].number));
    ports_release(&ports, ports.list[0].number);
    assert_true(can_bind(ports.list[0].number));
    assert_false(can_bind(ports.list[1].number));
    ports_fini(&ports);
}

/* If this fails, a job whose port was snatched away is not begun anew, or one that failed for
 * another reason is. */
static void
test_taken_port_is_known(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct ports ports = {0};

    (void)state;
    assert_int_equal(ports_reserve(&ports, "127.0.0.1", 1, 0, NULL), PSD_OK);
    assert_false(ports_is_taken(&ports, ports.list[0].number));
    ports_release(&ports, ports.list[0].number);
    assert_false(ports_is_taken(&ports, ports.list[0].number));
    address.sin_port = htons(ports.list[0].number);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_true(ports_is_taken(&ports, ports.list[0].number));
    close(fd);
    ports_fini(&ports);
}

/* If this fails, a machine without enough ports starts half of a job. */
static void
test_too_many_and_bad_addresses_are_refused(void **state)
{
    struct ports ports = {0};
    struct psd_error err = {0};

    (void)state;
    assert_int_equal(ports_reserve(&ports, "192.0.2.1", 1, 0, &err), PSD_ERR_IO);
    assert_int_equal(ports_reserve(&ports, "no address", 1, 0, &err), PSD_ERR_IO);
    assert_int_equal(ports.count, 0);
    assert_null(ports.list);
}

/* If this fails, a task does not get the port by which others know it, or two get the same. */
static void
test_wish(void **state)
{
    struct ports first = {0};
    struct ports second = {0};
    uint16_t wish;

    (void)state;
    assert_int_equal(ports_reserve(&first, "127.0.0.1", 1, 0, NULL), PSD_OK);
    wish = first.list[0].number;
    assert_int_equal(ports_reserve(&second, "127.0.0.1", 1, wish, NULL), PSD_OK);
    assert_int_not_equal(second.list[0].number, wish);
    ports_fini(&second);
    ports_fini(&first);
    assert_int_equal(ports_reserve(&second, "127.0.0.1", 2, wish, NULL), PSD_OK);
    assert_int_equal(second.list[0].number, wish);
    assert_int_not_equal(second.list[1].number, wish);
    ports_fini(&second);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wish),
        cmocka_unit_test(test_jobs_share_no_port),
        cmocka_unit_test(test_port_is_held_until_released),
        cmocka_unit_test(test_taken_port_is_known),
        cmocka_unit_test(test_too_many_and_bad_addresses_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
