/*
 * settings_test.c - the table of knobs: defaults, sources, ranges, suggestions.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/nearest.h"
#include "config/settings.h"

static psd_status
set(struct psi_settings *settings, enum psi_source source, const char *name, const char *text,
    struct psd_error *err)
{
    return psi_settings_set(settings, source, "here", name, text, err);
}

/* The text is refused with this message, and nothing has changed. */
static void
expect_refused(const char *name, const char *text, const char *message)
{
    struct psi_settings before;
    struct psi_settings after;
    struct psd_error err = {0};

    psi_settings_init(&before);
    psi_settings_init(&after);
    assert_int_equal(set(&after, PSI_SOURCE_COMMAND, name, text, &err), PSD_ERR_INVALID);
    assert_string_equal(err.text, message);
    assert_memory_equal(&before, &after, sizeof(before));
}

/* If this fails, a row of the table contradicts itself or points at another row's value. */
static void
test_table_is_consistent(void **state)
{
    struct psi_settings settings;

    (void)state;
    psi_settings_init(&settings);
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        const struct psi_knob *knob = &psi_knobs()[i];
        char text[32];

        assert_int_equal(knob->offset, i * sizeof(uint32_t));
        assert_in_range(knob->fallback, knob->min, knob->max);
        assert_true((knob->programs & PSI_PROGRAM_RUN) != 0);
        assert_true((knob->programs & ~(unsigned)PSI_PROGRAM_RUN) != 0);
        psi_settings_text(&settings, knob, text, sizeof(text));
        assert_int_equal(set(&settings, PSI_SOURCE_FILE, knob->name, text, NULL), PSD_OK);
        assert_int_equal(settings.source[i], PSI_SOURCE_FILE);
        if (knob->words != NULL) {
            assert_non_null(knob->words[knob->max]);
            assert_null(knob->words[knob->max + 1]);
        }
    }
}

/* If this fails, a default has moved without anybody deciding it. */
static void
test_defaults(void **state)
{
    struct psi_settings settings;

    (void)state;
    psi_settings_init(&settings);
    assert_int_equal(settings.heartbeat_ms, 250);
    assert_int_equal(settings.dead_heartbeats, 8);
    assert_int_equal(settings.lost_grace_ms, 500);
    assert_int_equal(settings.start_timeout_ms, 60000);
    assert_int_equal(settings.op_timeout_ms, 60000);
    assert_int_equal(settings.open_timeout_ms, 60000);
    assert_int_equal(settings.on_worker_death, PSI_DEATH_FAIL);
    assert_int_equal(settings.replacement_timeout_ms, 60000);
    assert_int_equal(settings.lanes, 0);
    assert_int_equal(settings.slot_pool_mib, 48);
    assert_int_equal(settings.memory_max_mib, 0);
    assert_int_equal(settings.kernel, PSI_KERNEL_AUTO);
    assert_int_equal(settings.payload_checksum, 0);
    assert_int_equal(settings.log_level, PSI_LOG_INFO);
    assert_int_equal(settings.window_kib, 2048);
    assert_int_equal(settings.harden, 1);
}

/* If this fails, one kind of value is not understood. */
static void
test_set_reads_numbers_and_words(void **state)
{
    struct psi_settings settings;

    (void)state;
    psi_settings_init(&settings);
    assert_int_equal(set(&settings, PSI_SOURCE_FILE, "heartbeat-ms", "10", NULL), PSD_OK);
    assert_int_equal(settings.heartbeat_ms, 10);
    assert_int_equal(set(&settings, PSI_SOURCE_FILE, "heartbeat_ms", "60000", NULL), PSD_OK);
    assert_int_equal(settings.heartbeat_ms, 60000);
    assert_int_equal(set(&settings, PSI_SOURCE_FILE, "kernel", "avx512", NULL), PSD_OK);
    assert_int_equal(settings.kernel, PSI_KERNEL_AVX512);
    assert_int_equal(set(&settings, PSI_SOURCE_FILE, "log_level", "trace", NULL), PSD_OK);
    assert_int_equal(settings.log_level, PSI_LOG_TRACE);
    assert_int_equal(set(&settings, PSI_SOURCE_FILE, "on_worker_death", "wait", NULL), PSD_OK);
    assert_int_equal(settings.on_worker_death, PSI_DEATH_WAIT);
}

/* If this fails, a switch written in one of the usual ways is refused or inverted. */
static void
test_set_reads_switches(void **state)
{
    static const char *const words[][2] = {
        {"off", "on"}, {"false", "true"}, {"no", "yes"}, {"0", "1"}};
    struct psi_settings settings;

    (void)state;
    psi_settings_init(&settings);
    for (size_t i = 0; i < 4; i++) {
        for (unsigned value = 2; value-- > 0;) {
            assert_int_equal(
                set(&settings, PSI_SOURCE_FILE, "payload_checksum", words[i][value], NULL), PSD_OK);
            assert_int_equal(settings.payload_checksum, value);
        }
    }
}

/* If this fails, "4k" reads as 4, or a number outside its range gets in. */
static void
test_set_refuses_bad_numbers(void **state)
{
    (void)state;
    expect_refused("heartbeat_ms", "9", "here: heartbeat_ms=9: must be a number, 10 to 60000 ms");
    expect_refused("heartbeat_ms", "60001",
                   "here: heartbeat_ms=60001: must be a number, 10 to 60000 ms");
    expect_refused("heartbeat_ms", "", "here: heartbeat_ms=: must be a number, 10 to 60000 ms");
    expect_refused("heartbeat_ms", "4k", "here: heartbeat_ms=4k: must be a number, 10 to 60000 ms");
    expect_refused("lanes", "-1", "here: lanes=-1: must be a number, 0 to 64");
    expect_refused("lanes", " 1", "here: lanes= 1: must be a number, 0 to 64");
    expect_refused("lanes", "0x1", "here: lanes=0x1: must be a number, 0 to 64");
    expect_refused("lanes", "18446744073709551617",
                   "here: lanes=18446744073709551617: must be a number, 0 to 64");
}

/* If this fails, a word that means nothing is taken for one that does. */
static void
test_set_refuses_bad_words(void **state)
{
    (void)state;
    expect_refused("on_worker_death", "ignore",
                   "here: on_worker_death=ignore: must be fail, continue or wait");
    expect_refused("kernel", "", "here: kernel=: must be auto, scalar, avx2 or avx512");
    expect_refused("kernel", "yes", "here: kernel=yes: must be auto, scalar, avx2 or avx512");
    expect_refused("payload_checksum", "2", "here: payload_checksum=2: must be off or on");
}

/* If this fails, a typing mistake is silently ignored, or the hint leads elsewhere. */
static void
test_set_suggests_the_nearest_name(void **state)
{
    (void)state;
    expect_refused("hartbeat_ms", "5",
                   "here: unknown setting hartbeat_ms; did you mean heartbeat_ms?");
    expect_refused("log-levle", "5", "here: unknown setting log-levle; did you mean log_level?");
    expect_refused("bananas", "5", "here: unknown setting bananas");
    expect_refused("", "5", "here: unknown setting ");
}

/* If this fails, the order in which sources are read decides, not their rank. */
static void
test_higher_source_wins_in_any_order(void **state)
{
    static const char *const values[] = {"10", "20", "30", "40"};
    static const int orders[6][3] = {{1, 2, 3}, {1, 3, 2}, {2, 1, 3},
                                     {2, 3, 1}, {3, 1, 2}, {3, 2, 1}};

    (void)state;
    for (int order = 0; order < 6; order++) {
        struct psi_settings settings;
        int highest = 0;

        psi_settings_init(&settings);
        for (int i = 0; i < 3; i++) {
            const int source = orders[order][i];

            highest = source > highest ? source : highest;
            assert_int_equal(
                set(&settings, (enum psi_source)source, "lost_grace_ms", values[source], NULL),
                PSD_OK);
            assert_int_equal(settings.lost_grace_ms, (highest + 1) * 10);
            assert_int_equal(settings.source[2], highest);
        }
    }
}

/* If this fails, a mistake in the file goes unseen because the command line says otherwise. */
static void
test_overridden_value_is_still_checked(void **state)
{
    struct psi_settings settings;

    (void)state;
    psi_settings_init(&settings);
    assert_int_equal(set(&settings, PSI_SOURCE_COMMAND, "lanes", "2", NULL), PSD_OK);
    assert_int_equal(set(&settings, PSI_SOURCE_FILE, "lanes", "99", NULL), PSD_ERR_INVALID);
    assert_int_equal(settings.lanes, 2);
}

/* If this fails, cluster.json overrides the command line, or does nothing. */
static void
test_merge_takes_higher_sources_only(void **state)
{
    struct psi_settings file;
    struct psi_settings settings;

    (void)state;
    psi_settings_init(&file);
    psi_settings_init(&settings);
    set(&file, PSI_SOURCE_FILE, "lanes", "3", NULL);
    set(&file, PSI_SOURCE_FILE, "kernel", "scalar", NULL);
    set(&settings, PSI_SOURCE_COMMAND, "lanes", "5", NULL);
    assert_false(psi_settings_told(&settings, "kernel"));
    psi_settings_merge(&settings, &file);
    assert_true(psi_settings_told(&settings, "kernel"));
    assert_false(psi_settings_told(&settings, "heartbeat_ms"));
    assert_int_equal(settings.lanes, 5);
    assert_int_equal(settings.kernel, PSI_KERNEL_SCALAR);
    assert_int_equal(settings.heartbeat_ms, 250);
}

/* If this fails, workers do not hear what psd_run tells them. */
static void
test_environment_sets_and_checks(void **state)
{
    struct psi_settings settings;
    struct psd_error err = {0};

    (void)state;
    psi_settings_init(&settings);
    setenv("PSD_OP_TIMEOUT_MS", "1234", 1);
    setenv("PSD_OPEN_TIMEOUT_MS", "", 1);
    setenv("PSD_LANES", "many", 1);
    assert_int_equal(psi_settings_environment(&settings, PSI_PROGRAM_WORKER, &err), PSD_OK);
    assert_int_equal(settings.op_timeout_ms, 1234);
    assert_int_equal(settings.open_timeout_ms, 60000);
    assert_int_equal(psi_settings_environment(&settings, PSI_PROGRAM_SERVER, &err),
                     PSD_ERR_INVALID);
    assert_string_equal(err.text, "PSD_LANES: lanes=many: must be a number, 0 to 64");
    unsetenv("PSD_LANES");
    unsetenv("PSD_OP_TIMEOUT_MS");
    assert_null(psi_environment("PSD_OPEN_TIMEOUT_MS"));
    unsetenv("PSD_OPEN_TIMEOUT_MS");
    assert_null(psi_environment("PSD_OPEN_TIMEOUT_MS"));
}

static void
keep_line(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    snprintf(sink, 1024, "%d %s %s", (int)level, id, text);
}

/* If this fails, a log does not tell with which settings a daemon ran. */
static void
test_log_shows_values_and_sources(void **state)
{
    char line[1024] = "";
    const struct psi_log log = {.write = keep_line, .sink = line, .level = PSI_LOG_INFO};
    struct psi_settings settings;

    (void)state;
    psi_settings_init(&settings);
    set(&settings, PSI_SOURCE_ENVIRONMENT, "lanes", "4", NULL);
    set(&settings, PSI_SOURCE_COMMAND, "kernel", "avx2", NULL);
    psi_settings_log(&settings, PSI_PROGRAM_SERVER, &log);
    assert_string_equal(line,
                        "2 SETTINGS heartbeat_ms=250 replicas=auto max_servers=0 "
                        "start_timeout_ms=60000 "
                        "lanes=4 (environment) standby_lanes=0 slot_pool_mib=48 memory_max_mib=0 "
                        "kernel=avx2 (command line) payload_checksum=off log_level=info "
                        "window_kib=2048 harden=on "
                        "transport=auto spin_us=50");
    psi_settings_log(&settings, PSI_PROGRAM_RUN, &log);
    assert_non_null(strstr(line, "window_kib=2048"));
}

static const char *
nearest_of(const char *word)
{
    struct psi_nearest nearest = {.word = word};

    psi_nearest_try(&nearest, "out");
    psi_nearest_try(&nearest, "cluster_config");
    psi_nearest_try(&nearest, "master_node");
    psi_nearest_try(&nearest, "master_port");
    return nearest.name;
}

/* If this fails, a hint is wrong: a missing, doubled, replaced or swapped letter is one edit. */
static void
test_nearest_counts_edits(void **state)
{
    char endless[200];

    (void)state;
    assert_string_equal(nearest_of("master_prot"), "master_port");
    assert_string_equal(nearest_of("master_nod"), "master_node");
    assert_string_equal(nearest_of("master-nodes"), "master_node");
    assert_string_equal(nearest_of("clusterconfig"), "cluster_config");
    assert_string_equal(nearest_of("oot"), "out");
    assert_null(nearest_of("worker"));
    assert_null(nearest_of(""));
    memset(endless, 'm', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    assert_null(nearest_of(endless));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_consistent),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_set_reads_numbers_and_words),
        cmocka_unit_test(test_set_reads_switches),
        cmocka_unit_test(test_set_refuses_bad_numbers),
        cmocka_unit_test(test_set_refuses_bad_words),
        cmocka_unit_test(test_set_suggests_the_nearest_name),
        cmocka_unit_test(test_higher_source_wins_in_any_order),
        cmocka_unit_test(test_overridden_value_is_still_checked),
        cmocka_unit_test(test_merge_takes_higher_sources_only),
        cmocka_unit_test(test_environment_sets_and_checks),
        cmocka_unit_test(test_log_shows_values_and_sources),
        cmocka_unit_test(test_nearest_counts_edits),
    };

    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
