/*
 * fuzz_words.c - the user's command, as text, and the file it names.
 *
 * The first byte chooses. 'f': the rest is the content of a program, to be searched for a word.
 * Anything else: the rest is a command string, or a list of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"
#include "fuzz.h"
#include "launch/text/command.h"

enum { WORKERS = 2 };

/* The words as a shell wants them, between blanks. Owned by the caller. */
static char *
quote(const struct words *words)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);

    psi_assert(stream != NULL);
    for (size_t i = 0; i < words->count; i++) {
        words_quote(stream, words->list[i]);
        fputc(' ', stream);
    }
    psi_assert(fclose(stream) == 0);
    return text;
}

static void
check_equal(const struct words *a, const struct words *b)
{
    psi_assert(a->count == b->count);
    for (size_t i = 0; i < a->count; i++) {
        psi_assert(strcmp(a->list[i], b->list[i]) == 0);
    }
    psi_assert(a->list == NULL || a->list[a->count] == NULL);
}

/* Quoting what was split, and splitting again, changes nothing; nor does copying. */
static void
check_words(const struct words *words)
{
    struct words again = {0};
    struct words copy = {0};
    char *text = quote(words);

    psi_assert(words_split(text, &again, NULL) == PSD_OK);
    check_equal(words, &again);
    words_add_all(&copy, words);
    check_equal(words, &copy);
    words_fini(&copy);
    words_fini(&again);
    free(text);
}

/* Every piece of a list can be split by itself, and none has lost or gained a word. */
static void
check_pieces(const char *text, int blank_after)
{
    struct words pieces = {0};

    psi_assert(words_cut_commas(text, blank_after, &pieces, NULL) == PSD_OK);
    psi_assert(pieces.count >= 1);
    for (size_t i = 0; i < pieces.count; i++) {
        struct words words = {0};
        size_t bytes = strlen(pieces.list[i]);

        /* A blank behind a backslash is cut off as any other at the end: then this is refused. */
        if (words_split(pieces.list[i], &words, NULL) != PSD_OK) {
            psi_assert(bytes > 0 && pieces.list[i][bytes - 1] == '\\');
        }
        words_fini(&words);
    }
    words_fini(&pieces);
}

static void
check_command(const char *text)
{
    const struct command_values values = {
        .role = "worker", .rank = 1, .world = WORKERS, .master = "tcp://127.0.0.1:5555"};
    struct words filled = {0};
    struct command command;
    struct psd_error err;

    if (command_parse(text, &command, &err) != PSD_OK) {
        psi_assert(err.status == PSD_ERR_INVALID);
        return;
    }
    command_fill(&command.argv, &values, &filled);
    psi_assert(filled.count == command.argv.count);
    if (!command_has_placeholder(&command)) {
        check_equal(&command.argv, &filled);
    }
    words_add_format(&filled, "%s=%u", "rank", values.rank);
    psi_assert(words_name_bytes(filled.list[filled.count - 1]) == strlen("rank"));
    words_fini(&filled);
    command_fini(&command);
}

static void
check_text(const char *text)
{
    struct words words = {0};
    struct psd_error err;

    if (words_split(text, &words, &err) != PSD_OK) {
        psi_assert(err.status == PSD_ERR_INVALID);
        psi_assert(words_cut_commas(text, 0, &words, NULL) == PSD_ERR_INVALID);
        return;
    }
    check_words(&words);
    words_fini(&words);
    check_pieces(text, 0);
    check_pieces(text, 1);
    check_command(text);
    for (int remote = 0; remote < 2; remote++) {
        if (command_list(text, WORKERS, "/bin:/nowhere:", remote != 0, &words, &err) == PSD_OK) {
            psi_assert(words.count == 1 || words.count == WORKERS);
            words_fini(&words);
        }
    }
}

/* The content of a program, perhaps damaged. */
static void
check_file(const uint8_t *data, size_t size)
{
    const int file = memfd_create("program", MFD_CLOEXEC);
    struct command command = {0};
    const char *found;

    psi_assert(file >= 0);
    psi_assert(write(file, data, size) == (ssize_t)size);
    words_add(&command.argv, "/nowhere");
    words_add_format(&command.argv, "/proc/self/fd/%d", file);
    (void)command_knows_flags(&command, "", &found);
    psi_assert(found == command.argv.list[1]);
    command_fini(&command);
    close(file);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size > 0 && data[0] == 'f') {
        check_file(data + 1, size - 1);
    } else if (size > 0) {
        text = strndup((const char *)data + 1, size - 1);
        psi_assert(text != NULL);
        check_text(text);
        free(text);
    }
    return 0;
}
