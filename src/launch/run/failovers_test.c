/*
 * failovers_test.c - how often a process died and how soon it was back, in words that mean something.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "launch/run/failovers.h"

static struct failover
death(uint32_t slot, uint64_t took_ms)
{
    return (struct failover){.slot = slot, .lost_ms = 1000, .back_ms = 1000 + took_ms};
}

static void
expect(const struct failover *failovers, size_t count, const char *longest, const char *wanted)
{
    char text[256];

    failovers_words(failovers, count, longest, text, sizeof(text));
    assert_string_equal(text, wanted);
}

/* If this fails, a summary says that somebody was back after 0.0 s, compares with others that there are not, or counts
 * restarts that somebody asked for as deaths. */
static void
test_words(void **state)
{
    struct failover one = death(1, 40);
    struct failover same[2] = {death(1, 40), death(1, 0)};
    struct failover several[3] = {death(1, 40), death(0, 2110), death(2, 100)};
    struct failover rolled[2] = {death(1, 900), death(2, 40)};

    (void)state;
    expect(NULL, 0, "", "");
    expect(&one, 1, "server0", "server0 died and was back after 40 ms");
    one.to = "node2";
    expect(&one, 1, "server0", "server0 died and was back on node2 after 40 ms");
    one.back_ms = 0;
    expect(&one, 1, "", "");
    expect(same, 2, "server0", "server0 died twice and was back within 40 ms each time");
    expect(several, 3, "master",
           "servers and the master died 3 times and were back within 2.2 s each time (master took "
           "longest)");
    rolled[0].is_rolled = true;
    expect(rolled, 2, "server1", "server1 died and was back after 40 ms");
}

/* If this fails, a short absence is said to have taken no time. */
static void
test_durations(void **state)
{
    static const struct {
        uint64_t ms;
        const char *text;
    } cases[] = {{0, "1 ms"}, {7, "7 ms"}, {999, "999 ms"}, {1000, "1.0 s"}, {1001, "1.1 s"}};
    char text[32];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        failovers_duration(cases[i].ms, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_durations),
    };

    return cmocka_run_group_tests_name("launch_failovers", tests, NULL, NULL);
}
