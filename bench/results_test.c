/*
 * results_test.c - what is made of times: medians, ratios, tables, lines, verdicts; and the command
 * line that asks for them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lines.h"
#include "plan.h"
#include "report.h"
#include "results.h"
#include "targets.h"
#include "timer.h"

static const struct situation place = {TRANSPORT_SHM, 2, 1, 64 << 20};

/* Three runs of one round each, so many milliseconds long. */
static struct result *
note(struct results *results, enum subject subject, enum subject_timing timing, unsigned a,
     unsigned b, unsigned c)
{
    struct result *result = results_add(results, &place, subject, timing);
    const unsigned values[] = {a, b, c};

    assert_non_null(result);
    for (size_t i = 0; i < 3; i++) {
        const uint64_t ns = values[i] * UINT64_C(1000000);
        const struct team_times times = {.elapsed_ns = 10 * ns,
                                         .median_ns = ns,
                                         .p90_ns = ns,
                                         .p99_ns = ns,
                                         .cpu_ns = 20 * ns,
                                         .shared = 2};

        result_note(result, &times, 10);
    }
    return result;
}

/* What a function prints. */
static char *
printed(void (*print)(FILE *file, const struct results *results), const struct results *results)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    assert_non_null(file);
    print(file, results);
    fclose(file);
    return text;
}

/* If this fails, one disturbed run decides what the median is. */
static void
test_timer_median(void **state)
{
    double odd[] = {5, 1, 3};
    double even[] = {4, 1, 3, 2};
    double one[] = {7};

    (void)state;
    assert_true(timer_median(odd, 3) == 3);
    assert_true(timer_median(even, 4) == 2);
    assert_true(timer_median(one, 1) == 7);
}

/* If this fails, a percentile is another round's time. */
static void
test_timer_percentile(void **state)
{
    uint64_t values[200];

    (void)state;
    for (uint64_t i = 0; i < 200; i++) {
        values[i] = (i * 77 + 3) % 200 + 1;
    }
    timer_sort(values, 200);
    assert_int_equal(timer_percentile(values, 200, 50), 100);
    assert_int_equal(timer_percentile(values, 200, 99), 198);
    assert_int_equal(timer_percentile(values, 1, 50), 1);
    assert_int_equal(timer_percentile(values, 3, 99), 3);
}

/* If this fails, runs are much longer or shorter than asked for. */
static void
test_timer_rounds(void **state)
{
    (void)state;
    assert_int_equal(timer_rounds(1000000, 10, 100000), 99);
    assert_int_equal(timer_rounds(1000000, 1, 900000), 3);
    assert_int_equal(timer_rounds(1000000, 1, 0), 1000000);
}

/* If this fails, runs of different minutes are compared, or the ratio stands on its head. */
static void
test_ratio_is_taken_run_by_run(void **state)
{
    struct results results = {0};
    const struct result *ours = note(&results, SUBJECT_IN_PLACE, TIMING_TOUCH, 10, 20, 40);
    const struct result *full = note(&results, SUBJECT_FULL, TIMING_TOUCH, 8, 16, 20);
    const struct spread ratio = result_ratio(ours, full, false);

    (void)state;
    assert_true(ratio.middle == 0.8);
    assert_true(ratio.least == 0.5);
    assert_true(ratio.most == 0.8);
    assert_ptr_equal(results_reference(&results, ours), full);
    assert_true(result_speed(ours).middle == (64 << 20) / 20e6);
    assert_true(result_cpu_s_per_gb(ours) == 40e6 / (2.0 * (64 << 20)));
    results_fini(&results);
}

/* If this fails, a call is compared with a call that also writes and reads, or with the worse
 * ceiling. */
static void
test_reference_is_the_best_timed_alike(void **state)
{
    struct results results = {0};
    const struct result *ours = note(&results, SUBJECT_ORDINARY, TIMING_CALL, 10, 10, 10);
    const struct result *touched = note(&results, SUBJECT_ORDINARY, TIMING_TOUCH, 10, 10, 10);
    const struct result *libc = note(&results, SUBJECT_COPY_LIBC, TIMING_CALL, 7, 7, 7);

    (void)state;
    (void)note(&results, SUBJECT_COPY_NT, TIMING_CALL, 9, 9, 9);
    assert_ptr_equal(results_reference(&results, ours), libc);
    assert_null(results_reference(&results, touched));
    results_fini(&results);
}

static void
print_targets(FILE *file, const struct results *results)
{
    targets_print(file, results, false);
}

/* If this fails, a missed target is called met, or the other way round. */
static void
test_targets(void **state)
{
    struct results results = {0};
    struct result *ours = note(&results, SUBJECT_IN_PLACE, TIMING_TOUCH, 10, 10, 10);
    char *text;

    (void)state;
    (void)note(&results, SUBJECT_FULL, TIMING_TOUCH, 8, 8, 8);
    (void)note(&results, SUBJECT_MPI, TIMING_TOUCH, 19, 19, 19);
    text = printed(print_targets, &results);
    assert_non_null(strstr(text, "ceiling: full | >= 0.8 | 0.80 | 0.80-0.80 | met |"));
    assert_non_null(strstr(text, "OpenMPI | >= 2 | 1.90 | 1.90-1.90 | MISSED |"));
    assert_non_null(strstr(text, "Gloo | >= 2.5 | | | not measured |"));
    free(text);

    ours->shared = false;
    text = printed(print_targets, &results);
    assert_non_null(strstr(text, "met, but over tcp |"));
    free(text);
    results_fini(&results);
}

/* If this fails, a round trip of three processes that take turns on one core passes for a reference. */
static void
test_targets_on_too_few_cores(void **state)
{
    const struct situation small = {TRANSPORT_SHM, 2, 1, 4096};
    const struct team_times times = {.elapsed_ns = 1, .median_ns = 1, .shared = 2};
    struct results results = {0};
    cpu_set_t before;
    cpu_set_t one;
    char *text;

    (void)state;
    result_note(results_add(&results, &small, SUBJECT_IN_PLACE, TIMING_CALL), &times, 1);
    result_note(results_add(&results, &small, SUBJECT_PING_RELAY, TIMING_CALL), &times, 1);
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    text = printed(print_targets, &results);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    assert_non_null(strstr(text, "through a third process, spinning | <= 1.5 | 1.00 | 1.00-1.00 | "
                                 "met, but on too few cores |"));
    free(text);
    results_fini(&results);
}

/* If this fails, programs cannot read the results. */
static void
test_lines(void **state)
{
    struct results results = {0};
    char path[] = "/tmp/bench_test.XXXXXX";
    char text[8192] = "";
    struct psd_error err;
    FILE *file;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    (void)note(&results, SUBJECT_IN_PLACE, TIMING_TOUCH, 10, 20, 40);
    (void)note(&results, SUBJECT_FULL, TIMING_TOUCH, 8, 16, 32);
    assert_int_equal(lines_open(path, &file, &err), PSD_OK);
    lines_write(file, &results, &place);
    assert_int_equal(lines_close(file, path, &err), PSD_OK);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    fclose(file);
    unlink(path);
    assert_non_null(strstr(
        text, "{\"name\": \"push_pull_in_place\", \"timing\": \"touch\", \"transport\": \"shm\", "
              "\"workers\": 2, \"servers\": 1, \"bytes\": 67108864, \"value\": 3.35544, "
              "\"unit\": \"GB/s\", \"reference\": 4.1943, \"reference_name\": \"ceiling_full\", "
              "\"ratio\": 0.8000, \"repeat\": 3, \"min\": 1.67772, \"max\": 6.71089}\n"));
    results_fini(&results);
}

/* If this fails, subjects that burn the cores of the others, or jobs over the wrong transport, go
 * unnoticed. */
static void
test_doubts(void **state)
{
    struct results results = {0};
    struct result *ours = note(&results, SUBJECT_IN_PLACE, TIMING_TOUCH, 10, 20, 40);
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    (void)state;
    ours->shared = false;
    ours->idle_ns = 1e9;
    ours->idle_cpu_ns = 0.5e9;
    assert_non_null(file);
    report_doubts(file, &results, 0.3);
    fclose(file);
    assert_non_null(strstr(text, "VOID: push_pull, in place"));
    assert_non_null(strstr(text, "OVER TCP"));
    assert_non_null(strstr(text, "repeat it on an idle machine"));
    free(text);
    results_fini(&results);
}

/* If this fails, another size than the one asked for is measured. */
static void
test_sizes(void **state)
{
    static const char *const wrong[] = {"",    "64,", ",64", "x",     "6",
                                        "64x", "-4",  "0",   "8192M", "4kk"};
    struct bench_sizes sizes;
    struct psd_error err;

    (void)state;
    assert_int_equal(bench_sizes_parse("64,4k,2M", &sizes, &err), PSD_OK);
    assert_int_equal(sizes.count, 3);
    assert_int_equal(sizes.bytes[0], 64);
    assert_int_equal(sizes.bytes[1], 4096);
    assert_int_equal(sizes.bytes[2], 2 << 20);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(bench_sizes_parse(wrong[i], &sizes, &err), PSD_ERR_INVALID);
    }
}

static psd_status
parse(const char *line, struct bench_options *options)
{
    char words[256];
    char *argv[16] = {0};
    char *rest = NULL;
    int argc = 0;
    struct psd_error err;

    snprintf(words, sizeof(words), "psd_bench %s", line);
    for (char *word = strtok_r(words, " ", &rest); word != NULL && argc < 15;
         word = strtok_r(NULL, " ", &rest)) {
        argv[argc++] = word;
    }
    return bench_options_parse(argc, argv, options, &err);
}

/* If this fails, a typing error starts ten minutes of something else. */
static void
test_options(void **state)
{
    static const char *const wrong[] = {"siute",       "suite --workers 2", "--transport udp",
                                        "--seconds 0", "--repeat 1000",     "--workers 100",
                                        "suite again"};
    struct bench_options options;
    struct plan plan;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(parse(wrong[i], &options), PSD_ERR_INVALID);
    }
    assert_int_equal(parse("suite", &options), PSD_OK);
    assert_int_equal(options.what, BENCH_SUITE);
    assert_int_equal(parse("", &options), PSD_OK);
    assert_int_equal(options.what, BENCH_ALL);
    assert_int_equal(options.repeat, 5);
    assert_int_equal(parse("--workers 3 --transport tcp --sizes 4M", &options), PSD_OK);
    plan_make(&options, &plan);
    assert_int_equal(plan.count, 1);
    assert_int_equal(plan.rows[0].workers, 3);
    assert_int_equal(plan.rows[0].servers, 1);
    assert_int_equal(plan.rows[0].transport, TRANSPORT_TCP);
    assert_int_equal(plan.rows[0].sizes.bytes[0], 4 << 20);
    assert_int_equal(parse("--sealed --workers 2 --servers 2 --sizes 4M", &options), PSD_OK);
    plan_make(&options, &plan);
    assert_int_equal(plan.count, 1);
    assert_int_equal(plan.rows[0].workers, 2);
    assert_int_equal(plan.rows[0].transport, TRANSPORT_TLS);
    assert_true((plan.rows[0].subjects & SUBJECT_BIT(SUBJECT_TLS_THREADS)) != 0);
    assert_true((plan.rows[0].subjects & SUBJECT_BIT(SUBJECT_TLS)) ==
                0); /* a pair, not two of them */
}

static void
print_all_targets(FILE *file, const struct results *results)
{
    targets_print(file, results, true);
}

/* As if everybody in a row had run with a tensor of this size. */
static void
note_everybody(struct results *results, const struct plan_row *row, uint64_t bytes)
{
    const struct situation situation = {row->transport, row->workers, row->servers, bytes};
    const struct team_times times = {.elapsed_ns = 1, .median_ns = 1};

    for (enum subject subject = 1; subject < SUBJECTS; subject++) {
        for (unsigned timing = TIMING_CALL; timing <= TIMING_TOUCH; timing++) {
            if ((row->subjects & SUBJECT_BIT(subject)) != 0 && subject_takes(subject, bytes) &&
                (subject_about(subject)->timings & timing) != 0) {
                result_note(results_add(results, &situation, subject, (enum subject_timing)timing),
                            &times, 1);
            }
        }
    }
}

/* If this fails, a target is never measured, because no row of the suite has its job, size and
 * partners. */
static void
test_suite_measures_every_target(void **state)
{
    struct results results = {0};
    struct bench_options options;
    struct plan plan;
    char *text;

    (void)state;
    assert_int_equal(parse("suite", &options), PSD_OK);
    plan_make(&options, &plan);
    for (size_t row = 0; row < plan.count; row++) {
        for (size_t size = 0; size < plan.rows[row].sizes.count; size++) {
            note_everybody(&results, &plan.rows[row], plan.rows[row].sizes.bytes[size]);
        }
    }
    text = printed(print_all_targets, &results);
    assert_null(strstr(text, "not measured"));
    free(text);
    results_fini(&results);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timer_median),
        cmocka_unit_test(test_timer_percentile),
        cmocka_unit_test(test_timer_rounds),
        cmocka_unit_test(test_ratio_is_taken_run_by_run),
        cmocka_unit_test(test_reference_is_the_best_timed_alike),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_targets_on_too_few_cores),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_doubts),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_suite_measures_every_target),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
