/*
 * command.c - the user's command.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/text/command.h"

#include <ctype.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "launch/text/memory.h"

enum { SEARCH_BYTES_MAX = 16 << 20 };

void
command_fini(struct command *command)
{
    words_fini(&command->environment);
    words_fini(&command->argv);
}

void
command_take(struct command *command, const char *word)
{
    const bool leading = command->argv.count == 0 && words_name_bytes(word) > 0;

    words_add(leading ? &command->environment : &command->argv, word);
}

psd_status
command_parse(const char *text, struct command *command_p, struct psd_error *err)
{
    struct command command = {0};
    struct words words = {0};
    psd_status status = words_split(text, &words, err);

    for (size_t i = 0; i < words.count; i++) {
        command_take(&command, words.list[i]);
    }
    words_fini(&words);
    if (status == PSD_OK && command.argv.count == 0) {
        status = psi_fail(err, PSD_ERR_INVALID,
                          "command '%.100s': nothing to run; a program must follow", text);
    }
    if (status != PSD_OK) {
        command_fini(&command);
        return status;
    }
    *command_p = command;
    return PSD_OK;
}

static bool
is_program(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

char *
command_find(const char *program, const char *search_path)
{
    const char *at = search_path;
    char *path = NULL;

    if (strchr(program, '/') != NULL) {
        return is_program(program) ? strdup(program) : NULL;
    }
    while (program[0] != '\0' && at != NULL) {
        const char *stop = strchrnul(at, ':');
        const int bytes = (int)(stop - at);

        /* An empty entry is the current directory. */
        path = memory_format("%.*s%s%s", bytes, at, bytes > 0 ? "/" : "./", program);
        if (is_program(path)) {
            return path;
        }
        free(path);
        at = *stop == ':' ? stop + 1 : NULL;
    }
    return NULL;
}

/* Where pieces of a list are looked for. */
struct search {
    const char *path;
    char *also; /* owned: a program that need not be here; NULL: none */
};

/* Whether a piece of a list starts with something that can be run. */
static bool
piece_runs(const char *piece, const struct search *search)
{
    struct command command;
    char *path;
    bool runs;

    if (command_parse(piece, &command, NULL) != PSD_OK) {
        return false;
    }
    path = command_find(command.argv.list[0], search->path);
    runs =
        path != NULL || (search->also != NULL && strcmp(command.argv.list[0], search->also) == 0);
    free(path);
    command_fini(&command);
    return runs;
}

/* The program of the first piece: on other machines it is there, or the check will tell. */
static char *
first_program(const char *piece)
{
    struct command command;
    char *program;

    if (command_parse(piece, &command, NULL) != PSD_OK) {
        return NULL;
    }
    program = strdup(command.argv.list[0]);
    command_fini(&command);
    return program;
}

static size_t
pieces_that_run(const struct words *pieces, const struct search *search)
{
    size_t count = 0;

    for (size_t i = 0; i < pieces->count; i++) {
        count += piece_runs(pieces->list[i], search);
    }
    return count;
}

/* Whether cutting at every comma, blank or not, would give each worker something that runs. */
static bool
every_comma_could_separate(const char *text, uint32_t workers, const struct search *search)
{
    struct words pieces = {0};
    bool could;

    if (words_cut_commas(text, 0, &pieces, NULL) != PSD_OK) {
        return false;
    }
    could = pieces.count == workers && pieces_that_run(&pieces, search) == workers;
    words_fini(&pieces);
    return could;
}

psd_status
command_list(const char *text, uint32_t workers, const char *search_path, bool remote,
             struct words *texts_p, struct psd_error *err)
{
    struct search search = {.path = search_path};
    struct words pieces = {0};
    bool unclear;
    size_t count;
    size_t running;
    bool first_runs;
    psd_status status = words_cut_commas(text, 1, &pieces, err);

    if (status != PSD_OK) {
        return status;
    }
    count = pieces.count;
    search.also = remote ? first_program(pieces.list[0]) : NULL;
    running = pieces_that_run(&pieces, &search);
    first_runs = piece_runs(pieces.list[0], &search);
    unclear = workers > 1 && ((count == workers && running > (first_runs ? 1 : 0)) ||
                              every_comma_could_separate(text, workers, &search));
    free(search.also);
    if (count > 1 && running == count && count == workers) {
        *texts_p = pieces;
        return PSD_OK;
    }
    words_fini(&pieces);
    if (count > 1 && running == count) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "%zu commands for %u worker%s: \"A, B\" is a command for each worker; give as "
            "many as there are (--workers %zu), or quote the comma if it is one command",
            count, workers, workers == 1 ? "" : "s", count);
    }
    if (unclear) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "'%.120s' may be one command or %u: quote the commas, or list the "
                        "commands as \"worker_commands\" in the cluster file",
                        text, workers);
    }
    words_add(texts_p, text);
    return PSD_OK;
}

static const char *const placeholders[] = {"{rank}", "{role}", "{master}", "{world}", "{port}"};
enum { PLACEHOLDERS = sizeof(placeholders) / sizeof(placeholders[0]) };

/* The index of the placeholder that text starts with, or -1. */
static int
placeholder_at(const char *text)
{
    for (int i = 0; i < PLACEHOLDERS; i++) {
        if (strncmp(text, placeholders[i], strlen(placeholders[i])) == 0) {
            return i;
        }
    }
    return -1;
}

static bool
words_have_placeholder(const struct words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        for (const char *at = words->list[i]; *at != '\0'; at++) {
            if (*at == '{' && placeholder_at(at) >= 0) {
                return true;
            }
        }
    }
    return false;
}

bool
command_has_placeholder(const struct command *command)
{
    return words_have_placeholder(&command->environment) || words_have_placeholder(&command->argv);
}

static void
fill_word(const char *word, const char *const texts[PLACEHOLDERS], struct words *to)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = memory_need(open_memstream(&text, &bytes));

    while (*word != '\0') {
        const int which = *word == '{' ? placeholder_at(word) : -1;

        if (which >= 0) {
            fputs(texts[which], stream);
            word += strlen(placeholders[which]);
        } else {
            fputc(*word++, stream);
        }
    }
    words_add(to, memory_need(fclose(stream) == 0 ? text : NULL));
    free(text);
}

void
command_fill(const struct words *from, const struct command_values *values, struct words *to)
{
    const char *colon = strrchr(values->master, ':');
    const char *port = colon != NULL ? colon + 1 : "";
    char rank[16];
    char world[16];
    const char *const texts[PLACEHOLDERS] = {rank, values->role, values->master, world,
                                             values->port != NULL ? values->port : port};

    snprintf(rank, sizeof(rank), "%u", values->rank);
    snprintf(world, sizeof(world), "%u", values->world);
    for (size_t i = 0; i < from->count; i++) {
        fill_word(from->list[i], texts, to);
    }
}

static bool
is_word_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool
has_word(const char *bytes, size_t count)
{
    static const char word[] = "master_address";
    const size_t length = sizeof(word) - 1;
    const char *const end = bytes + count;
    const char *at = bytes;

    while ((at = memmem(at, (size_t)(end - at), word, length)) != NULL) {
        if ((at == bytes || !is_word_byte(at[-1])) &&
            (at + length == end || !is_word_byte(at[length]))) {
            return true;
        }
        at++;
    }
    return false;
}

/*
 * A program's debugging information names every field of every struct it was compiled with, ours
 * included: only the segments that are loaded count.
 */
static bool
loaded_part_has_word(const char *bytes, size_t count)
{
    Elf64_Ehdr header;
    Elf64_Phdr segment;

    memcpy(&header, bytes, sizeof(header));
    for (size_t i = 0; i < header.e_phnum; i++) {
        const uint64_t at = header.e_phoff + i * sizeof(segment);

        if (at > count || count - at < sizeof(segment)) {
            return false;
        }
        memcpy(&segment, bytes + at, sizeof(segment));
        if (segment.p_type == PT_LOAD && segment.p_offset < count) {
            const uint64_t left = count - segment.p_offset;

            if (has_word(bytes + segment.p_offset,
                         segment.p_filesz < left ? segment.p_filesz : left)) {
                return true;
            }
        }
    }
    return false;
}

static bool
file_has_word(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    size_t count;
    char *bytes;
    bool found;

    if (fd < 0) {
        return false;
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
        close(fd);
        return false;
    }
    count = info.st_size < SEARCH_BYTES_MAX ? (size_t)info.st_size : SEARCH_BYTES_MAX;
    bytes = mmap(NULL, count, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED) {
        return false;
    }
    found = count > sizeof(Elf64_Ehdr) && memcmp(bytes, ELFMAG, SELFMAG) == 0 &&
                    bytes[EI_CLASS] == ELFCLASS64
                ? loaded_part_has_word(bytes, count)
                : has_word(bytes, count);
    munmap(bytes, count);
    return found;
}

/* Whether a program is psd_run, of whichever installation: a job inside a job. It writes the flags
 * and does not read them, and what it runs belongs to the inner job. */
static bool
is_psd_run(const char *program)
{
    const char *slash = strrchr(program, '/');

    return strcmp(slash != NULL ? slash + 1 : program, "psd_run") == 0;
}

bool
command_knows_flags(const struct command *command, const char *search_path, const char **file_p)
{
    char *program = command_find(command->argv.list[0], search_path);
    bool found = program != NULL && file_has_word(program);

    free(program);
    *file_p = command->argv.list[0];
    if (is_psd_run(*file_p)) {
        return false;
    }
    for (size_t i = 1; i < command->argv.count && !found; i++) {
        struct stat info;

        if (stat(command->argv.list[i], &info) == 0 && S_ISREG(info.st_mode)) {
            *file_p = command->argv.list[i];
            return file_has_word(*file_p); /* the script; files after it are its data */
        }
    }
    return found;
}
