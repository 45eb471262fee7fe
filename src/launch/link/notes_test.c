/*
 * notes_test.c - lines that workers tell psd_run: in pieces, overlong, hostile, too many.
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

#include "launch/link/notes.h"

struct heard {
    unsigned count;
    char last[NOTES_LINE_MAX + 1];
};

static void
hear(void *context, const char *line, size_t bytes)
{
    struct heard *heard = context;

    assert_in_range(bytes, 1, NOTES_LINE_MAX);
    assert_int_equal(strlen(line), bytes);
    heard->count++;
    memcpy(heard->last, line, bytes + 1);
}

/* If this fails, a note that the pipe hands over in pieces is torn, or two become one. */
static void
test_lines_come_in_any_pieces(void **state)
{
    static const char text[] = "one\ntwo\n\nthree";
    struct heard heard = {0};
    struct notes notes;

    (void)state;
    notes_init(&notes);
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        notes_take(&notes, text + i, 1, hear, &heard);
    }
    assert_int_equal(heard.count, 2);
    assert_string_equal(heard.last, "two");
    notes_end(&notes, hear, &heard);
    assert_int_equal(heard.count, 3);
    assert_string_equal(heard.last, "three");
    notes_end(&notes, hear, &heard);
    assert_int_equal(heard.count, 3);
}

/* If this fails, a worker can send escape sequences to the terminal of whoever runs psd_run. */
static void
test_only_printable_bytes_pass(void **state)
{
    struct heard heard = {0};
    struct notes notes;
    char text[NOTES_LINE_MAX + 1];

    (void)state;
    notes_init(&notes);
    notes_take(&notes, "\033[2J\0\x7f\xc3\xa9 ok\r\n", 13, hear, &heard);
    assert_int_equal(heard.count, 1);
    assert_string_equal(heard.last, "?[2J???? ok?");
    notes_clean("a\nb\033", 4, text);
    assert_string_equal(text, "a?b?");
}

/* If this fails, a line without end fills the memory of the agent or the console. */
static void
test_overlong_lines_are_cut(void **state)
{
    struct heard heard = {0};
    struct notes notes;
    char piece[1000];
    char text[NOTES_LINE_MAX + 1];

    (void)state;
    memset(piece, 'x', sizeof(piece));
    notes_init(&notes);
    for (int i = 0; i < 100; i++) {
        notes_take(&notes, piece, sizeof(piece), hear, &heard);
    }
    assert_int_equal(heard.count, 0);
    notes_take(&notes, "\nnext\n", 6, hear, &heard);
    assert_int_equal(heard.count, 2);
    assert_string_equal(heard.last, "next");
    notes_clean(piece, sizeof(piece), text);
    assert_int_equal(strlen(text), NOTES_LINE_MAX);
}

/* If this fails, a worker that tells notes in a loop drowns the console; or a new life is mute. */
static void
test_a_life_has_a_bounded_number(void **state)
{
    struct heard heard = {0};
    struct notes notes;

    (void)state;
    notes_init(&notes);
    for (int i = 0; i < 10 * NOTES_MAX; i++) {
        notes_take(&notes, "again\n", 6, hear, &heard);
    }
    assert_int_equal(heard.count, NOTES_MAX);
    assert_non_null(strstr(heard.last, "more notes"));
    notes_init(&notes);
    notes_take(&notes, "born anew\n", 10, hear, &heard);
    assert_int_equal(heard.count, NOTES_MAX + 1);
    assert_string_equal(heard.last, "born anew");
}

/* If this fails, a worker that has told much cannot say why it ends; or can go on for ever. */
static void
test_the_last_word_is_heard_after_many(void **state)
{
    struct heard heard = {0};
    struct notes notes;

    (void)state;
    notes_init(&notes);
    for (int i = 0; i < 2 * NOTES_MAX; i++) {
        notes_take(&notes, "again\n", 6, hear, &heard);
    }
    for (int i = 0; i < 3; i++) {
        notes_take(&notes, NOTES_LAST_WORD "why\n", sizeof(NOTES_LAST_WORD "why"), hear, &heard);
    }
    assert_int_equal(heard.count, NOTES_MAX + 1);
    assert_string_equal(notes_last_word(heard.last), "why");
    assert_null(notes_last_word("why"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_come_in_any_pieces),
        cmocka_unit_test(test_only_printable_bytes_pass),
        cmocka_unit_test(test_overlong_lines_are_cut),
        cmocka_unit_test(test_a_life_has_a_bounded_number),
        cmocka_unit_test(test_the_last_word_is_heard_after_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
