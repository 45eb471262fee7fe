/*
 * merge_test.c - stdout and stderr of a process, merged at line ends.
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

#include "launch/agent/merge.h"

enum { OUT = 0, ERR = 1 };

/* The log as it grows, and each stream by itself. */
struct kept {
    struct merge merge;
    size_t bytes;
    char *log; /* owned */
    size_t stream_bytes[LINK_STREAMS];
};

static void
append(struct kept *kept, const char *bytes, size_t count)
{
    kept->log = realloc(kept->log, kept->bytes + count + 1);
    assert_non_null(kept->log);
    memcpy(kept->log + kept->bytes, bytes, count);
    kept->bytes += count;
    kept->log[kept->bytes] = '\0';
}

static void
keep(void *context, unsigned stream, bool broken, const char *bytes, size_t count)
{
    struct kept *kept = context;

    if (broken) {
        append(kept, "\n", 1);
    }
    append(kept, bytes, count);
    kept->stream_bytes[stream] += count;
}

static int
set_up(void **state)
{
    struct kept *kept = calloc(1, sizeof(*kept));

    merge_init(&kept->merge);
    append(kept, "", 0);
    *state = kept;
    return 0;
}

static int
tear_down(void **state)
{
    struct kept *kept = *state;

    merge_fini(&kept->merge);
    free(kept->log);
    free(kept);
    return 0;
}

static void
take(struct kept *kept, unsigned stream, const char *text)
{
    merge_take(&kept->merge, stream, text, strlen(text), 0, keep, kept);
}

static void
end(struct kept *kept)
{
    merge_end(&kept->merge, OUT, keep, kept);
    merge_end(&kept->merge, ERR, keep, kept);
}

/* If this fails, a line of stderr lands inside what Python prints in two pieces. */
static void
test_lines_in_pieces(void **state)
{
    struct kept *kept = *state;

    take(kept, OUT, "step 1");
    take(kept, ERR, "warn");
    take(kept, ERR, "ing\n");
    take(kept, OUT, "\nstep");
    assert_string_equal(kept->log, "warning\nstep 1\n");
    take(kept, OUT, " 2\nstep 3\nst");
    assert_string_equal(kept->log, "warning\nstep 1\nstep 2\nstep 3\n");
    take(kept, OUT, "ep 4\n");
    end(kept);
    assert_string_equal(kept->log, "warning\nstep 1\nstep 2\nstep 3\nstep 4\n");
}

/* If this fails, the last words of a process are lost, or run into each other. */
static void
test_unfinished_last_lines(void **state)
{
    struct kept *kept = *state;

    take(kept, OUT, "a\nlast");
    take(kept, ERR, "words");
    end(kept);
    assert_string_equal(kept->log, "a\nlast\nwords");
}

/* If this fails, a log that has no line end at its end gets one, or an empty one gets anything. */
static void
test_bytes_of_one_stream_stay(void **state)
{
    struct kept *kept = *state;

    end(kept);
    assert_string_equal(kept->log, "");
    take(kept, OUT, "a\n\n\r\nb");
    take(kept, OUT, "\rc");
    end(kept);
    assert_string_equal(kept->log, "a\n\n\r\nb\rc");
}

/* If this fails, a prompt is not to be seen while it waits, or is torn at once. */
static void
test_prompt_is_handed_on_after_a_while(void **state)
{
    struct kept *kept = *state;

    assert_true(merge_deadline(&kept->merge) == UINT64_MAX);
    merge_take(&kept->merge, OUT, "loading", 7, 500, keep, kept);
    assert_true(merge_deadline(&kept->merge) == 500 + MERGE_HELD_MS);
    merge_tick(&kept->merge, 499 + MERGE_HELD_MS, keep, kept);
    assert_string_equal(kept->log, "");
    merge_tick(&kept->merge, 500 + MERGE_HELD_MS, keep, kept);
    assert_string_equal(kept->log, "loading");
    assert_true(merge_deadline(&kept->merge) == UINT64_MAX);
    take(kept, OUT, " done\n");
    take(kept, ERR, "x\n");
    assert_string_equal(kept->log, "loading done\nx\n");
}

/* If this fails, a long line is torn because it takes a slow machine long to write it. */
static void
test_line_that_goes_on_is_waited_for(void **state)
{
    struct kept *kept = *state;

    merge_take(&kept->merge, OUT, "slow", 4, 0, keep, kept);
    merge_take(&kept->merge, OUT, "ly", 2, MERGE_HELD_MS - 1, keep, kept);
    merge_tick(&kept->merge, MERGE_HELD_MS + 1, keep, kept);
    assert_string_equal(kept->log, "");
    merge_tick(&kept->merge, 2 * MERGE_HELD_MS - 1, keep, kept);
    assert_string_equal(kept->log, "slowly");
}

/* If this fails, a line of the other stream continues a prompt instead of having its own line. */
static void
test_other_stream_ends_a_prompt(void **state)
{
    struct kept *kept = *state;

    merge_take(&kept->merge, OUT, "loading", 7, 0, keep, kept);
    merge_tick(&kept->merge, MERGE_HELD_MS, keep, kept);
    take(kept, ERR, "warning\n");
    take(kept, OUT, " done\n");
    assert_string_equal(kept->log, "loading\nwarning\n done\n");
}

/* If this fails, a progress bar on stderr swallows lines of stdout, or is cut within a state. */
static void
test_progress_bar(void **state)
{
    struct kept *kept = *state;

    merge_take(&kept->merge, ERR, "\r 1%\r 2%", 8, 0, keep, kept);
    merge_take(&kept->merge, ERR, "\r 3", 3, MERGE_HELD_MS - 1, keep, kept);
    take(kept, OUT, "epoch 1\n");
    merge_tick(&kept->merge, MERGE_HELD_MS, keep, kept);
    assert_string_equal(kept->log, "epoch 1\n\r 1%\r 2%");
    take(kept, OUT, "epoch 2\n");
    take(kept, ERR, "%\n");
    end(kept);
    assert_string_equal(kept->log, "epoch 1\n\r 1%\r 2%\nepoch 2\n\r 3%\n");
}

/* If this fails, a line without end fills the memory, is lost, or is torn without need. */
static void
test_very_long_line(void **state)
{
    enum { PIECE = 64 << 10, PIECES = MERGE_HELD_BYTES / PIECE };
    struct kept *kept = *state;
    char *piece = malloc(PIECE);

    memset(piece, 'x', PIECE);
    for (int i = 0; i < PIECES; i++) {
        merge_take(&kept->merge, OUT, piece, PIECE, 0, keep, kept);
        take(kept, ERR, "e\n");
    }
    assert_int_equal(kept->stream_bytes[OUT], 0);
    assert_int_equal(kept->bytes, 2 * PIECES);
    merge_take(&kept->merge, OUT, piece, PIECE, 0, keep, kept); /* more than is held */
    assert_int_equal(kept->stream_bytes[OUT], PIECE * (PIECES + 1));
    take(kept, ERR, "e\n");
    take(kept, OUT, "y\n");
    end(kept);
    assert_int_equal(kept->stream_bytes[OUT], PIECE * (PIECES + 1) + 2);
    assert_string_equal(kept->log + kept->bytes - 6, "x\ne\ny\n");
    free(piece);
}

/* If this fails, some way to cut lines into pieces loses, tears or reorders them. */
static void
test_random_pieces(void **state)
{
    enum { LINES = 3000, LINE = 16 };
    struct kept *kept = *state;
    static const char names[LINK_STREAMS] = {'o', 'e'};
    char *texts[LINK_STREAMS];
    size_t used[LINK_STREAMS] = {0};
    int next[LINK_STREAMS] = {0};
    uint32_t random = 1;

    for (unsigned s = 0; s < LINK_STREAMS; s++) {
        texts[s] = malloc(LINES * LINE + 1);
        for (int i = 0; i < LINES; i++) {
            snprintf(texts[s] + (ptrdiff_t)i * LINE, LINE + 1, "%c%014d\n", names[s], i);
        }
    }
    while (used[OUT] < LINES * LINE || used[ERR] < LINES * LINE) {
        random = random * 1664525 + 1013904223;
        const unsigned s = random >> 31;
        size_t count = (random >> 16) % (3 * LINE);

        count = count < LINES * LINE - used[s] ? count : LINES * LINE - used[s];
        merge_take(&kept->merge, s, texts[s] + used[s], count, 0, keep, kept);
        used[s] += count;
    }
    end(kept);
    assert_int_equal(kept->bytes, LINK_STREAMS * LINES * LINE);
    for (size_t at = 0; at < kept->bytes; at += LINE) {
        const unsigned s = kept->log[at] == names[ERR];
        char wanted[LINE + 1];

        snprintf(wanted, sizeof(wanted), "%c%014d\n", names[s], next[s]++);
        assert_memory_equal(kept->log + at, wanted, LINE);
    }
    free(texts[OUT]);
    free(texts[ERR]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lines_in_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unfinished_last_lines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bytes_of_one_stream_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_prompt_is_handed_on_after_a_while, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_line_that_goes_on_is_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_stream_ends_a_prompt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_progress_bar, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_very_long_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_random_pieces, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
