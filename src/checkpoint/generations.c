/*
 * generations.c - which generations of a checkpoint a directory holds, by the names of its files.
 *
 * Files are removed newest generation first, and the manifest first in each. So no manifest is ever
 * left without the files it names.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/generations.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"

enum { DIGITS_MAX = 18 }; /* so that the next one fits, too */

static const struct {
    const char *prefix;
    const char *suffix;
    const char *temporary;
} kinds[PSI_CHECKPOINT_KINDS] = {
    [PSI_CHECKPOINT_PARAMS] = {"params-", ".safetensors", ".params"},
    [PSI_CHECKPOINT_STATE] = {"state-", ".safetensors", ".state"},
    [PSI_CHECKPOINT_MANIFEST] = {"manifest-", ".json", ".manifest"},
};

static const char changes_suffix[] = ".changes";
static const char part_prefix[] = "part-";
static const char part_temporary[] = ".part";
static const char rows_prefix[] = "rows-";
static const char rows_suffix[] = ".safetensors";
static const char rows_temporary[] = ".rows";

void
psi_checkpoint_name(char name[PSI_CHECKPOINT_NAME_BYTES], enum psi_checkpoint_kind kind,
                    uint64_t generation)
{
    snprintf(name, PSI_CHECKPOINT_NAME_BYTES, "%s%llu%s", kinds[kind].prefix,
             (unsigned long long)generation, kinds[kind].suffix);
}

void
psi_checkpoint_temporary_name(char name[PSI_CHECKPOINT_NAME_BYTES], enum psi_checkpoint_kind kind,
                              uint64_t token)
{
    if (token == 0) {
        snprintf(name, PSI_CHECKPOINT_NAME_BYTES, "%s.tmp", kinds[kind].temporary);
    } else {
        snprintf(name, PSI_CHECKPOINT_NAME_BYTES, "%s-%016llx.tmp", kinds[kind].temporary,
                 (unsigned long long)token);
    }
}

void
psi_checkpoint_changes_name(char name[PSI_CHECKPOINT_NAME_BYTES], enum psi_checkpoint_kind kind,
                            uint64_t generation)
{
    snprintf(name, PSI_CHECKPOINT_NAME_BYTES, "%s%llu%s", kinds[kind].prefix,
             (unsigned long long)generation, changes_suffix);
}

bool
psi_checkpoint_part_name_fits(const char *name)
{
    static const char characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789._-";
    const size_t length = strlen(name);

    return length > 0 && length <= PSI_CHECKPOINT_PART_NAME_MAX && name[0] != '.' &&
           strspn(name, characters) == length;
}

void
psi_checkpoint_part_name(char file[PSI_CHECKPOINT_NAME_BYTES], uint64_t generation,
                         const char *name)
{
    snprintf(file, PSI_CHECKPOINT_NAME_BYTES, "%s%llu-%.*s", part_prefix,
             (unsigned long long)generation, PSI_CHECKPOINT_PART_NAME_MAX, name);
}

void
psi_checkpoint_temporary_part_name(char file[PSI_CHECKPOINT_NAME_BYTES], uint64_t token,
                                   const char *name)
{
    snprintf(file, PSI_CHECKPOINT_NAME_BYTES, "%s-%016llx-%.*s.tmp", part_temporary,
             (unsigned long long)token, PSI_CHECKPOINT_PART_NAME_MAX, name);
}

void
psi_checkpoint_rows_name(char file[PSI_CHECKPOINT_NAME_BYTES], uint64_t generation, uint32_t place,
                         uint32_t number)
{
    snprintf(file, PSI_CHECKPOINT_NAME_BYTES, "%s%llu-%u-%u%s", rows_prefix,
             (unsigned long long)generation, place, number, rows_suffix);
}

void
psi_checkpoint_temporary_rows_name(char file[PSI_CHECKPOINT_NAME_BYTES], uint64_t token,
                                   uint32_t place, uint32_t number)
{
    snprintf(file, PSI_CHECKPOINT_NAME_BYTES, "%s-%016llx-%u-%u.tmp", rows_temporary,
             (unsigned long long)token, place, number);
}

static bool
begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

bool
psi_checkpoint_is_temporary_rows(const char *file, uint64_t token)
{
    char prefix[PSI_CHECKPOINT_NAME_BYTES];

    snprintf(prefix, sizeof(prefix), "%s-%016llx-", rows_temporary, (unsigned long long)token);
    return begins_with(file, prefix);
}

/* Is it the temporary file of a data file, a part or rows? (The manifest's is the writer's lock.) */
static bool
is_temporary(const char *name)
{
    static const char suffix[] = ".tmp";
    const size_t length = strlen(name);
    bool is_ours = (begins_with(name, part_temporary) && name[sizeof(part_temporary) - 1] == '-') ||
                   (begins_with(name, rows_temporary) && name[sizeof(rows_temporary) - 1] == '-');

    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        const size_t prefix = strlen(kinds[kind].temporary);

        is_ours = is_ours || (begins_with(name, kinds[kind].temporary) &&
                              (name[prefix] == '-' || name[prefix] == '.'));
    }
    return is_ours && length > sizeof(suffix) && length < PSI_CHECKPOINT_NAME_BYTES &&
           strcmp(name + length - sizeof(suffix) + 1, suffix) == 0;
}

/* part-N-NAME */
static bool
parse_part_name(const char *name, struct psi_generation *generation_p)
{
    const char *digits = name + sizeof(part_prefix) - 1;
    size_t count;

    if (!begins_with(name, part_prefix)) {
        return false;
    }
    count = strspn(digits, "0123456789");
    if (count < 1 || count > DIGITS_MAX || digits[0] == '0' || digits[count] != '-' ||
        !psi_checkpoint_part_name_fits(digits + count + 1)) {
        return false;
    }
    generation_p->number = strtoull(digits, NULL, 10);
    generation_p->kind = PSI_CHECKPOINT_BROUGHT;
    return true;
}

/* A number without leading zeros; NULL: there is none. Else what follows it. */
static const char *
skip_number(const char *text)
{
    const size_t count = strspn(text, "0123456789");

    return count < 1 || count > DIGITS_MAX || (count > 1 && text[0] == '0') ? NULL : text + count;
}

/* rows-N-P-K.safetensors */
static bool
parse_rows_name(const char *name, struct psi_generation *generation_p)
{
    const char *at = begins_with(name, rows_prefix) ? name + sizeof(rows_prefix) - 1 : NULL;

    for (int left = 2; left > 0 && at != NULL; left--) {
        at = skip_number(at);
        at = at != NULL && at[0] == '-' ? at + 1 : NULL;
    }
    at = at != NULL ? skip_number(at) : NULL;
    if (at == NULL || strcmp(at, rows_suffix) != 0 || name[sizeof(rows_prefix) - 1] == '0') {
        return false;
    }
    generation_p->number = strtoull(name + sizeof(rows_prefix) - 1, NULL, 10);
    generation_p->kind = PSI_CHECKPOINT_ROWS;
    return true;
}

/* What follows the number. */
static bool
is_suffix(unsigned kind, const char *text)
{
    return strcmp(text, kinds[kind].suffix) == 0 ||
           (kind < PSI_CHECKPOINT_DATA_FILES && strcmp(text, changes_suffix) == 0);
}

static bool
parse_name(const char *name, struct psi_generation *generation_p)
{
    if (parse_part_name(name, generation_p) || parse_rows_name(name, generation_p)) {
        return true;
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_KINDS; kind++) {
        const size_t prefix = strlen(kinds[kind].prefix);
        const char *digits = name + prefix;
        size_t count;

        if (strncmp(name, kinds[kind].prefix, prefix) != 0) {
            continue;
        }
        count = strspn(digits, "0123456789");
        if (count < 1 || count > DIGITS_MAX || digits[0] == '0' ||
            !is_suffix(kind, digits + count)) {
            return false;
        }
        generation_p->number = strtoull(digits, NULL, 10);
        generation_p->kind = (enum psi_checkpoint_kind)kind;
        return true;
    }
    return false;
}

static int
newest_first(const void *a, const void *b)
{
    const struct psi_generation *left = a;
    const struct psi_generation *right = b;

    const bool left_first = left->kind == PSI_CHECKPOINT_MANIFEST;
    const bool right_first = right->kind == PSI_CHECKPOINT_MANIFEST;

    if (left->number != right->number) {
        return left->number > right->number ? -1 : 1;
    }
    return left_first != right_first ? (int)right_first - (int)left_first
                                     : strcmp(left->name, right->name);
}

static bool
add(struct psi_generations *generations, struct psi_generation generation)
{
    if (generations->count == generations->capacity) {
        const size_t capacity = generations->capacity * 2 + 16;
        struct psi_generation *list = reallocarray(generations->list, capacity, sizeof(*list));

        if (list == NULL) {
            return false;
        }
        generations->list = list;
        generations->capacity = capacity;
    }
    generations->list[generations->count++] = generation;
    return true;
}

/* Reads the directory to its end. Returns 0, or -1 and errno. */
static int
read_names(DIR *stream, struct psi_generations *generations)
{
    const struct dirent *entry;
    struct psi_generation generation;

    while (errno = 0, (entry = readdir(stream)) != NULL) {
        generation = (struct psi_generation){.kind = PSI_CHECKPOINT_TEMPORARY};
        if (!is_temporary(entry->d_name) && !parse_name(entry->d_name, &generation)) {
            continue;
        }
        snprintf(generation.name, sizeof(generation.name), "%.*s", PSI_CHECKPOINT_NAME_BYTES - 1,
                 entry->d_name);
        if (!add(generations, generation)) {
            errno = ENOMEM;
            break;
        }
    }
    return errno == 0 ? 0 : -1;
}

psd_status
psi_generations_init(struct psi_generations *generations, const struct psi_directory *directory,
                     struct psd_error *err)
{
    const int fd = openat(directory->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    psd_status status = PSD_OK;

    memset(generations, 0, sizeof(*generations));
    if (stream == NULL || read_names(stream, generations) != 0) {
        status = psi_fail_errno(err, errno == ENOMEM ? PSD_ERR_NO_MEMORY : PSD_ERR_IO,
                                "read directory %s", directory->path);
    }
    if (stream != NULL) {
        closedir(stream);
    } else if (fd >= 0) {
        close(fd);
    }
    if (status != PSD_OK) {
        psi_generations_fini(generations);
        return status;
    }
    if (generations->count > 1) {
        qsort(generations->list, generations->count, sizeof(generations->list[0]), newest_first);
    }
    return PSD_OK;
}

void
psi_generations_fini(struct psi_generations *generations)
{
    free(generations->list);
    memset(generations, 0, sizeof(*generations));
}

uint64_t
psi_generations_next(const struct psi_generations *generations)
{
    return generations->count == 0 ? 1 : generations->list[0].number + 1;
}

static void
remove_file(const struct psi_generation *file, const struct psi_directory *directory)
{
    (void)psi_directory_remove(directory, file->name, NULL);
}

void
psi_generations_remove_unfinished(const struct psi_generations *generations,
                                  const struct psi_directory *directory)
{
    uint64_t committed = 0;

    for (size_t i = 0; i < generations->count; i++) {
        const struct psi_generation *file = &generations->list[i];

        if (file->kind == PSI_CHECKPOINT_MANIFEST) {
            committed = file->number;
        } else if (file->kind == PSI_CHECKPOINT_TEMPORARY || file->number != committed) {
            remove_file(file, directory);
        }
    }
}

void
psi_generations_remove(const struct psi_generations *generations,
                       const struct psi_directory *directory, uint64_t number)
{
    for (size_t i = 0; i < generations->count; i++) {
        if (generations->list[i].number == number && number > 0) {
            remove_file(&generations->list[i], directory);
        }
    }
}
