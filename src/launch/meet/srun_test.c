/*
 * srun_test.c - the command line of srun, and what its failures mean.
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

#include "launch/meet/srun.h"
#include "launch/text/variables.h"

static const struct srun_target target = {.node = "n7", .program = "/opt/a b/psd_run"};

/* If this fails, srun does something else with the agent's line, or binds it to one core. */
static void
test_arguments(void **state)
{
    struct words argv = {0};

    (void)state;
    srun_arguments(&target, &argv);
    assert_string_equal(argv.list[0], "srun");
    assert_string_equal(argv.list[argv.count - 5], "--nodelist=n7");
    assert_string_equal(argv.list[argv.count - 1], target.program); /* one word, never a script */
    words_fini(&argv);
}

/* If this fails, what sbatch was told changes the steps of agents. */
static void
test_environment(void **state)
{
    char *const environment[] = {
        "HOME=/root",           "SLURM_JOB_ID=3",    "SLURM_LABELIO=1",      "SLURM_NTASKS=8",
        "SRUN_CPUS_PER_TASK=2", "SLURM_CONF=/etc/s", "SLURM_MEM_PER_CPU=10", NULL};
    struct words kept = {0};

    (void)state;
    srun_environment(environment, &kept);
    assert_int_equal(kept.count, 3);
    assert_string_equal(variables_get(kept.list, "SLURM_JOB_ID"), "3");
    assert_string_equal(variables_get(kept.list, "SLURM_CONF"), "/etc/s");
    words_fini(&kept);
}

static void
expect(const char *stderr_tail, int status, const char *text)
{
    char said[900];

    srun_explain(&target, stderr_tail, "", status, said, sizeof(said));
    assert_string_equal(said, text);
}

/* If this fails, nobody knows why a node did not take part, or what to do. */
static void
test_explanations(void **state)
{
    (void)state;
    expect("sh: 1: exec: psd_run: not found\nsrun: error: n7: task 0: Exited with exit code 127\n",
           127 << 8,
           "n7 (srun -w n7): sh: 1: exec: psd_run: not found; psd_run is not there: install "
           "Poseidon on that node, in its PATH or as /opt/a b/psd_run");
    expect("srun: error: Unable to create step for job 9: Invalid job id specified\n", 1 << 8,
           "n7 (srun -w n7): srun: error: Unable to create step for job 9: Invalid job id "
           "specified; the allocation is over; sbatch or salloc makes a new one");
    expect("", 1 << 8,
           "n7 (srun -w n7): srun said nothing and ended with code 1; for the state of the "
           "node, run: sinfo -N -l -n n7; to see for yourself, run: srun --overlap -N1 -n1 -w n7 "
           "true");
    assert_true(srun_may_try_again("srun: error: Unable to contact slurm controller\n"));
    assert_false(srun_may_try_again("srun: error: Invalid job id specified\n"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_explanations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
