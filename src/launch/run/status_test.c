/*
 * status_test.c - what a master tells, in a line: nothing in it is wrong, and who is waited for can be read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "launch/run/status.h"

static struct psd_node
worker(uint32_t rank, uint32_t incarnation, uint64_t step)
{
    return (struct psd_node){.role = PSD_ROLE_WORKER,
                             .rank = rank,
                             .state = PSD_NODE_RUNNING,
                             .incarnation = incarnation,
                             .step = step,
                             .steps_per_s = 7,
                             .value = 0.5,
                             .value_name = "loss"};
}

/* ... of which a master that was started again has not heard yet. */
static struct psd_node
unheard(uint32_t rank, uint32_t incarnation)
{
    return (struct psd_node){.role = PSD_ROLE_WORKER,
                             .rank = rank,
                             .state = PSD_NODE_RUNNING,
                             .incarnation = incarnation,
                             .steps_per_s = NAN};
}

/* If this fails, workers are shown at step 0 after the master was started again, or one that replaces another at
 * the step of that one. */
static void
test_a_new_master_forgets_no_step(void **state)
{
    const struct psd_node first[3] = {worker(0, 1, 140), worker(1, 1, 141), worker(2, 1, 142)};
    struct psd_node second[3] = {unheard(0, 0), unheard(1, 1), unheard(2, 2)};
    struct psd_node third[3] = {unheard(0, 1), worker(1, 1, 150), unheard(2, 2)};
    struct status_figures figures;

    (void)state;
    status_fill(second, 3, first, 3);
    assert_int_equal(second[0].step, 140);
    assert_int_equal(second[1].step, 141);
    assert_string_equal(second[1].value_name, "loss");
    assert_true(isnan(second[2].steps_per_s));
    status_fill(third, 3, second, 3);
    assert_int_equal(third[0].step, 140);
    assert_true(third[0].steps_per_s == 7);
    assert_int_equal(third[1].step, 150);
    assert_true(isnan(third[2].steps_per_s));
    status_sum(third, 3, &figures);
    assert_true(figures.has_step);
    assert_int_equal(figures.step, 140);
    assert_int_equal(figures.workers_running, 3);
}

/* If this fails, the status line claims step 0 of workers of which nobody knows where they are. */
static void
test_what_nobody_knows_is_not_said(void **state)
{
    struct psd_node nodes[2] = {unheard(0, 1), unheard(1, 1)};
    struct status status = {.known_ns = 1};
    char text[256];

    (void)state;
    status_fill(nodes, 2, NULL, 0);
    status_sum(nodes, 2, &status.figures);
    status_text(
        &status,
        &(struct status_line){.elapsed_ms = 12000, .workers = 2, .waiting = "", .columns = 79},
        text, sizeof(text));
    assert_string_equal(text, "12 s  workers 2/2");
}

/* If this fails, a terminal of 80 columns does not show who everybody waits for. */
static void
test_who_is_waited_for_has_room(void **state)
{
    static const struct {
        size_t columns;
        uint32_t done;
        const char *waiting;
        const char *text;
    } cases[] = {
        {200, 0, "waiting for worker 3 (61 %)",
         "8100 s  workers 16/16  step 140000  11.2 steps/s  training_loss 0.1234  waiting for "
         "worker 3 "
         "(61 %)"},
        {79, 0, "waiting for worker 3 (61 %)",
         "8100 s  workers 16/16  step 140000  11.2 steps/s  waiting for worker 3 (61 %)"},
        {79, 0, "workers wait for one another (61 %)",
         "8100 s  workers 16/16  step 140000  workers wait for one another (61 %)"},
        {79, 2, "workers wait for one another (61 %)",
         "8100 s  workers 16/16  step 140000  workers wait for one another (61 %)"},
        {79, 0, "", "8100 s  workers 16/16  step 140000  11.2 steps/s  training_loss 0.1234"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct status status = {.known_ns = 1,
                                .figures = {.workers_running = 16,
                                            .workers_done = cases[i].done,
                                            .has_step = true,
                                            .step = 140000,
                                            .steps_per_s = 11.2,
                                            .value_name = "training_loss",
                                            .value = 0.1234}};
        const struct status_line line = {.elapsed_ms = 8100000,
                                         .workers = 16,
                                         .waiting = cases[i].waiting,
                                         .columns = cases[i].columns};
        char text[256];

        status_text(&status, &line, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_new_master_forgets_no_step),
        cmocka_unit_test(test_what_nobody_knows_is_not_said),
        cmocka_unit_test(test_who_is_waited_for_has_room),
    };

    return cmocka_run_group_tests_name("launch_status", tests, NULL, NULL);
}
