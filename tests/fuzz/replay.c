/*
 * replay.c - runs a target over kept inputs, without libFuzzer: replay DIRECTORY...
 *
 * Every input is handed over in a heap block of exactly its size. An empty directory is a failure:
 * it would test nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

enum { INPUT_BYTES_MAX = 1 << 20, PATH_BYTES_MAX = 4096 };

/* The content of a file in a block of its own size; NULL with a message. */
static uint8_t *
read_input(const char *path, size_t *size_p)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(INPUT_BYTES_MAX);
    uint8_t *fitted = NULL;
    size_t size = 0;

    if (file != NULL && bytes != NULL) {
        size = fread(bytes, 1, INPUT_BYTES_MAX, file);
        if (!ferror(file) && size < INPUT_BYTES_MAX) {
            fitted = realloc(bytes, size > 0 ? size : 1);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    if (fitted == NULL) {
        perror(path);
        free(bytes);
        return NULL;
    }
    *size_p = size;
    return fitted;
}

static int
replay_file(const char *path)
{
    size_t size;
    uint8_t *bytes = read_input(path, &size);

    if (bytes == NULL) {
        return -1;
    }
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    return 0;
}

/* Returns the number of inputs; -1 with a message. */
static int
replay_directory(const char *path)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    int count = 0;

    if (directory == NULL) {
        perror(path);
        return -1;
    }
    while (count >= 0 && (entry = readdir(directory)) != NULL) {
        char file[PATH_BYTES_MAX];

        if (entry->d_name[0] != '.') {
            snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
            count = replay_file(file) == 0 ? count + 1 : -1;
        }
    }
    closedir(directory);
    return count;
}

int
main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const int count = replay_directory(argv[i]);

        if (count <= 0) {
            fprintf(stderr, "replay: %s: nothing to replay\n", argv[i]);
            return EXIT_FAILURE;
        }
        printf("%s: %d inputs\n", argv[i], count);
    }
    return argc > 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
