/*
 * words_test.c - quoting, columns of errors, comma lists.
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

#include <cmocka.h>
#include <sys/wait.h>

#include "base/exit_code.h"
#include "launch/text/memory.h"
#include "launch/text/words.h"

/* Splits text and joins the words as "<a><b>", so that one string says it all. */
static const char *
split(const char *text, char *shown, size_t size)
{
    struct psd_error err = {0};
    struct words words = {0};
    size_t used = 0;

    shown[0] = '\0';
    if (words_split(text, &words, &err) != PSD_OK) {
        snprintf(shown, size, "%s", err.text);
        return shown;
    }
    for (size_t i = 0; i < words.count; i++) {
        used += (size_t)snprintf(shown + used, size - used, "<%s>", words.list[i]);
    }
    words_fini(&words);
    return shown;
}

static const char *
cut(const char *text, int blank_after, char *shown, size_t size)
{
    struct psd_error err = {0};
    struct words words = {0};
    size_t used = 0;

    shown[0] = '\0';
    assert_int_equal(words_cut_commas(text, blank_after, &words, &err), PSD_OK);
    for (size_t i = 0; i < words.count; i++) {
        used += (size_t)snprintf(shown + used, size - used, "<%s>", words.list[i]);
    }
    words_fini(&words);
    return shown;
}

/* If this fails, a command that works in a shell gets other arguments here. */
static void
test_split_follows_posix_quoting(void **state)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"  \t\n ", ""},
        {"python  train.py", "<python><train.py>"},
        {"a 'b c' d", "<a><b c><d>"},
        {"a \"b c\" d", "<a><b c><d>"},
        {"a\\ b", "<a b>"},
        {"''", "<>"},
        {"a '' b", "<a><><b>"},
        {"x'y'\"z\"w", "<xyzw>"},
        {"'a\\b'", "<a\\b>"},
        {"\"a\\b\"", "<a\\b>"},
        {"\"a\\\"b\\\\c\\$d\"", "<a\"b\\c$d>"},
        {"\"it's\" 'say \"hi\"'", "<it's><say \"hi\">"},
        {"a\\\nb", "<ab>"},
        {"a \\\n b", "<a><b>"},
        {"$HOME *.py | cat", "<$HOME><*.py><|><cat>"},
        {"A=1 'B=2 3' run", "<A=1><B=2 3><run>"},
        {"sh -c 'echo \"$0\"; exit 3'", "<sh><-c><echo \"$0\"; exit 3>"},
    };
    char shown[600];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(split(cases[i][0], shown, sizeof(shown)), cases[i][1]);
    }
}

/* If this fails, a user must search a long command for the quote that is missing. */
static void
test_split_names_the_column(void **state)
{
    char shown[600];

    (void)state;
    assert_string_equal(split("echo 'abc", shown, sizeof(shown)),
                        "command, column 6: ' is never closed");
    assert_string_equal(split("a \"b\" \"c d", shown, sizeof(shown)),
                        "command, column 7: \" is never closed");
    assert_string_equal(split("\"a\\\"", shown, sizeof(shown)),
                        "command, column 1: \" is never closed");
    assert_string_equal(split("ab \\", shown, sizeof(shown)),
                        "command, column 4: nothing after backslash");
}

/* If this fails, a command list is cut inside an argument. */
static void
test_cut_commas_respects_quotes(void **state)
{
    char shown[600];

    (void)state;
    assert_string_equal(cut("a 1, b 2", 1, shown, sizeof(shown)), "<a 1><b 2>");
    assert_string_equal(cut("a 1,2, b", 1, shown, sizeof(shown)), "<a 1,2><b>");
    assert_string_equal(cut("a 1,2, b", 0, shown, sizeof(shown)), "<a 1><2><b>");
    assert_string_equal(cut("a ', ' b, c", 1, shown, sizeof(shown)), "<a ', ' b><c>");
    assert_string_equal(cut("a \\, b", 1, shown, sizeof(shown)), "<a \\, b>");
    assert_string_equal(cut("a \", \", b", 0, shown, sizeof(shown)), "<a \", \"><b>");
    assert_string_equal(cut(", a,", 0, shown, sizeof(shown)), "<><a><>");
    assert_string_equal(cut("", 0, shown, sizeof(shown)), "<>");
}

/* If this fails, a leading NAME=value is run as a program, or a program is taken for one. */
static void
test_name_bytes(void **state)
{
    (void)state;
    assert_int_equal(words_name_bytes("A=1"), 1);
    assert_int_equal(words_name_bytes("_a9=x=y"), 3);
    assert_int_equal(words_name_bytes("=x"), 0);
    assert_int_equal(words_name_bytes("9a=x"), 0);
    assert_int_equal(words_name_bytes("--a=x"), 0);
    assert_int_equal(words_name_bytes("plain"), 0);
}

/* If this fails, what one quotes is not what one gets back. Single-quoting any word must survive.
 */
static void
test_split_inverts_quoting(void **state)
{
    static const char alphabet[] = "ab '\"\\,$\n=";
    const uint32_t seed = 20260131;
    uint32_t random = seed;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char word[12] = {0};
        char text[64];
        FILE *stream;
        struct words words = {0};
        struct psd_error err = {0};

        for (size_t i = 0; i < 1 + (random >> 8) % 10; i++) {
            random = random * 1664525u + 1013904223u;
            word[i] = alphabet[(random >> 16) % (sizeof(alphabet) - 1)];
        }
        stream = fmemopen(text, sizeof(text), "w");
        words_quote(stream, word);
        fclose(stream);
        if (words_split(text, &words, &err) != PSD_OK || words.count != 1 ||
            strcmp(words.list[0], word) != 0) {
            fail_msg("seed %u round %d: %s", seed, round, text);
        }
        words_fini(&words);
    }
}

/* If this fails, a command that psd_run tells people to type is something else to their shell. */
static void
test_quotes_what_shells_expand(void **state)
{
    static const char *const pairs[][2] = {{"ann@h", "ann@h"},         {"[h]:2222", "'[h]:2222'"},
                                           {"{rank}", "'{rank}'"},     {"=python", "'=python'"},
                                           {"~/x", "'~/x'"},           {"a*", "'a*'"},
                                           {"--a=b:c,d", "--a=b:c,d"}, {"", "''"}};

    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        char text[64] = "";
        FILE *stream = fmemopen(text, sizeof(text), "w");

        words_quote(stream, pairs[i][0]);
        fclose(stream);
        assert_string_equal(text, pairs[i][1]);
    }
}

/* If this fails, a list that lacks a word for want of memory starts another program than was meant.
 */
static void
test_no_list_lacks_a_word(void **state)
{
    int status = 0;
    pid_t pid;

    (void)state;
    assert_ptr_equal(memory_need(&status), &status);
    pid = fork();
    if (pid == 0) {
        close(STDERR_FILENO);
        memory_need(NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), PSI_EXIT_CANNOT_START);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_follows_posix_quoting),
        cmocka_unit_test(test_split_names_the_column),
        cmocka_unit_test(test_cut_commas_respects_quotes),
        cmocka_unit_test(test_name_bytes),
        cmocka_unit_test(test_split_inverts_quoting),
        cmocka_unit_test(test_quotes_what_shells_expand),
        cmocka_unit_test(test_no_list_lacks_a_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
