/*
 * output_test.c - lines for the console, bytes for the log, the tail; and what the run log hides.
 *
 * The console is this process's own stdout, put into a file while a test looks at it.
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
#include <unistd.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "launch/tell/output.h"
#include "launch/tell/runlog.h"
#include "launch/text/mask.h"

/* Prints pieces through an output of a worker and returns what the console showed. */
static void
show(const char *const *pieces, uint64_t step_ms, char *shown, size_t size)
{
    char path[] = "/tmp/output_test.XXXXXX";
    const int file = mkstemp(path);
    const int saved = dup(STDOUT_FILENO);
    struct output *output = calloc(1, sizeof(*output));
    struct console console;
    uint64_t now_ms = 5000;
    ssize_t bytes;

    assert_true(file >= 0);
    assert_int_equal(output_init(output, LAUNCH_WORKER, "worker0", "/dev/null", NULL), PSD_OK);
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    console_init(&console, -1, NULL, NULL, (char *[]){NULL});
    for (; *pieces != NULL; pieces++, now_ms += step_ms) {
        const struct output_piece piece = {.bytes = *pieces, .count = strlen(*pieces)};

        output_feed(output, &console, &piece, now_ms);
    }
    output_fini(output, &console);
    console_fini(&console);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    bytes = pread(file, shown, size - 1, 0);
    shown[bytes > 0 ? bytes : 0] = '\0';
    close(file);
    unlink(path);
    free(output);
}

/* If this fails, lines are torn, doubled, or an unfinished last one is lost. */
static void
test_lines(void **state)
{
    char shown[256];

    (void)state;
    show((const char *[]){"a\nb", "c\n", "\n", "end", NULL}, 0, shown, sizeof(shown));
    assert_string_equal(shown, "[worker0] a\n[worker0] bc\n[worker0] \n[worker0] end\n");
}

/* If this fails, a progress bar floods the console, or its last state is never seen. */
static void
test_carriage_returns(void **state)
{
    char shown[256];

    (void)state;
    show((const char *[]){"x\r\ny\r", "\nz\n", NULL}, 0, shown, sizeof(shown));
    assert_string_equal(shown, "[worker0] x\n[worker0] y\n[worker0] z\n");
    show((const char *[]){"1%\r2%\r", "3%\r4%\r", "100%\n", NULL}, 100, shown, sizeof(shown));
    assert_string_equal(shown, "[worker0] 1%\n[worker0] 100%\n");
    show((const char *[]){"1%\r", "2%\r", "3%\n", NULL}, 1000, shown, sizeof(shown));
    assert_string_equal(shown, "[worker0] 1%\n[worker0] 2%\n[worker0] 3%\n");
}

/* If this fails, a line without end fills the memory or is lost. */
static void
test_long_line_is_cut(void **state)
{
    const size_t count = 3 * OUTPUT_LINE_BYTES + 5;
    char *line = calloc(1, count + 1);
    char *shown = calloc(1, 2 * count);
    size_t letters = 0;

    (void)state;
    memset(line, 'x', count);
    show((const char *[]){line, "\n", NULL}, 0, shown, 2 * count);
    for (const char *c = shown; *c != '\0'; c++) {
        letters += *c == 'x';
    }
    assert_int_equal(letters, count);
    assert_int_equal(strlen(shown), count + 4 * strlen("[worker0] \n"));
    free(line);
    free(shown);
}

/* If this fails, the log differs from what the process printed, or the summary from its end. */
static void
test_log_and_tail(void **state)
{
    char path[] = "/tmp/output_test.XXXXXX";
    const int file = mkstemp(path);
    struct output *output = calloc(1, sizeof(*output));
    struct console console;
    char wrote[20000];
    char read_back[20001];
    char tail[OUTPUT_TAIL_BYTES + 1];
    size_t used = 0;

    (void)state;
    console_init(&console, -1, NULL, NULL, (char *[]){NULL});
    for (int i = 0; used < sizeof(wrote) - 40; i++) {
        used += (size_t)snprintf(wrote + used, sizeof(wrote) - used, "t master info %04d\r\n", i);
    }
    assert_int_equal(output_init(output, LAUNCH_MASTER, "master", path, NULL), PSD_OK);
    for (size_t at = 0; at < used; at += 1000) {
        output_take(output, &console,
                    &(struct output_piece){.bytes = wrote + at,
                                           .count = used - at < 1000 ? used - at : 1000},
                    0);
    }
    assert_int_equal(pread(file, read_back, sizeof(read_back), 0), used);
    assert_memory_equal(read_back, wrote, used);
    assert_int_equal(output_tail(output, 1, tail, sizeof(tail)), strlen("t master info 0999\r\n"));
    assert_memory_equal(tail, wrote + used - strlen(tail), strlen(tail));
    assert_int_equal(output_tail(output, 3, tail, sizeof(tail)),
                     3 * strlen("t master info 0999\r\n"));
    assert_true(output_tail(output, 100000, tail, sizeof(tail)) == OUTPUT_TAIL_BYTES);
    output_fini(output, &console);
    console_fini(&console);
    close(file);
    unlink(path);
    free(output);
}

/* If this fails, a daemon's warnings are hidden or its chatter is shown. */
static void
test_loud_lines(void **state)
{
    static const char *const quiet[] = {"2026-01-31T12:00:00.123 server0 info JOINED worker 2",
                                        "2026-01-31T12:00:00.123 server0 trace X y", ""};
    static const char *const loud[] = {"2026-01-31T12:00:00.123 server0 warn SLOW 3 ms",
                                       "2026-01-31T12:00:00.123 master error LOST",
                                       "file.c:12: assertion failed: x", "short"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_false(output_is_loud(quiet[i], strlen(quiet[i])));
    }
    for (size_t i = 0; i < 4; i++) {
        assert_true(output_is_loud(loud[i], strlen(loud[i])));
    }
}

/* If this fails, a password lies in a log that others can read. */
static void
test_mask(void **state)
{
    struct words words = {0};
    char text[256];

    (void)state;
    assert_int_equal(
        words_split("run --api-key=abc --token xyz PASSWORD=p --steps 3 --lr=1", &words, NULL),
        PSD_OK);
    mask_words(&words, text, sizeof(text));
    assert_string_equal(text, "run --api-key=*** --token *** PASSWORD=*** --steps 3 --lr=1");
    mask_words(&words, text, 12);
    assert_string_equal(text, "run --api-k");
    words_fini(&words);
}

/* If this fails, two runs of one second write into each other's logs. */
static void
test_directories_are_distinct(void **state)
{
    char base[] = "/tmp/output_test.XXXXXX";
    char out[64];
    char *paths[3] = {0};

    (void)state;
    assert_non_null(mkdtemp(base));
    snprintf(out, sizeof(out), "%s/a/b", base);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(runlog_make_directory(out, &paths[i], NULL), PSD_OK);
    }
    assert_string_not_equal(paths[0], paths[1]);
    assert_string_not_equal(paths[1], paths[2]);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(rmdir(paths[i]), 0);
        free(paths[i]);
    }
    rmdir(out);
    snprintf(out, sizeof(out), "%s/a", base);
    rmdir(out);
    rmdir(base);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_carriage_returns),
        cmocka_unit_test(test_long_line_is_cut),
        cmocka_unit_test(test_log_and_tail),
        cmocka_unit_test(test_loud_lines),
        cmocka_unit_test(test_mask),
        cmocka_unit_test(test_directories_are_distinct),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
