/*
 * replicas_test.c - copies of servers, where nobody has asked for them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config/replicas.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint32_t
settled(struct psi_settings settings, uint32_t servers, bool is_spread)
{
    psi_replicas_settle(&settings, servers, is_spread);
    return settings.replicas;
}

/* If this fails, servers on two hosts have no copies by default, or those on one pay for them. */
static void
test_hosts_decide(void **state)
{
    struct psi_settings settings;

    (void)state;
    psi_settings_init(&settings);
    assert_int_equal(settings.replicas, PSI_REPLICAS_AUTO);
    assert_int_equal(settled(settings, 2, true), PSI_REPLICAS_1);
    assert_int_equal(settled(settings, 2, false), PSI_REPLICAS_0);
}

/* If this fails, what was asked for is overruled. */
static void
test_what_is_told_stays(void **state)
{
    struct psi_settings settings;

    (void)state;
    psi_settings_init(&settings);
    settings.replicas = PSI_REPLICAS_1;
    assert_int_equal(settled(settings, 2, false), PSI_REPLICAS_1);
    settings.replicas = PSI_REPLICAS_0;
    assert_int_equal(settled(settings, 2, true), PSI_REPLICAS_0);
}

/* If this fails, a job that cannot have copies is refused for want of them, or nobody learns why. */
static void
test_obstacles(void **state)
{
    struct psi_settings settings;

    (void)state;
    psi_settings_init(&settings);
    assert_null(psi_replicas_obstacle(&settings, 2));
    assert_string_equal(psi_replicas_obstacle(&settings, 1), "one server");
    assert_int_equal(settled(settings, 1, true), PSI_REPLICAS_0);
    settings.on_worker_death = PSI_DEATH_WAIT;
    assert_null(psi_replicas_obstacle(&settings, 2));
    assert_string_equal(psi_replicas_objection(&settings, 2), "on_worker_death=wait");
    assert_int_equal(settled(settings, 2, true), PSI_REPLICAS_0);
    settings.sum_failover = PSI_FAILOVER_OFF;
    assert_string_equal(psi_replicas_obstacle(&settings, 2), "sum_failover=off");
    assert_string_equal(psi_replicas_objection(&settings, 2), "sum_failover=off");
    assert_int_equal(settled(settings, 2, true), PSI_REPLICAS_0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_decide),
        cmocka_unit_test(test_what_is_told_stays),
        cmocka_unit_test(test_obstacles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
