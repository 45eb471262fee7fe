/*
 * fuzz_settings.c - settings and options, from a command line and from the environment.
 *
 * The first byte chooses the program and the setting that the environment has, too. The lines that
 * follow are the arguments; the first of them is also the value in the environment.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "config/options.h"
#include "fuzz.h"

enum { ARGS_MAX = 16, TEXT_BYTES_MAX = 4096 };

/* Cuts text at its line ends, in place. Returns how many lines there are. */
static int
cut_lines(char *text, char **lines)
{
    int count = 0;

    while (text != NULL && count < ARGS_MAX) {
        lines[count++] = strsep(&text, "\n");
    }
    return count;
}

/* Every value can be written and read again, and is in its range. */
static void
check_settings(const struct psi_settings *settings)
{
    struct psi_settings again;
    struct psi_settings merged;

    psi_settings_init(&again);
    psi_settings_init(&merged);
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        const struct psi_knob *knob = &psi_knobs()[i];
        char text[64];

        psi_settings_text(settings, knob, text, sizeof(text));
        psi_assert(psi_settings_set(&again, settings->source[i], "again", knob->name, text, NULL) ==
                   PSD_OK);
    }
    psi_assert(memcmp(&again, settings, sizeof(again)) == 0);
    psi_settings_merge(&merged, settings);
    psi_assert(memcmp(&merged, settings, sizeof(merged)) == 0);
}

static void
log_line(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    (void)sink;
    (void)level;
    psi_assert(strcmp(id, "SETTINGS") == 0 && text[0] != '\0');
}

static void
check_environment(struct psi_settings *settings, const struct psi_knob *knob, const char *value,
                  unsigned program)
{
    char variable[64];
    struct psd_error err;
    int used = snprintf(variable, sizeof(variable), "PSD_%s", knob->name);

    for (int i = 0; i < used; i++) {
        variable[i] = (char)toupper((unsigned char)variable[i]);
    }
    psi_assert(setenv(variable, value, 1) == 0);
    if (psi_settings_environment(settings, program, &err) != PSD_OK) {
        psi_assert(err.status == PSD_ERR_INVALID);
        psi_assert(strstr(err.text, variable) != NULL);
    }
    psi_assert(unsetenv(variable) == 0);
}

/* Either it is asked for, or nothing is said. */
static void
check_answer(const struct psi_command *command, const struct psi_arguments *arguments)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    bool answered;

    psi_assert(stream != NULL);
    answered = psi_options_answer(stream, command, arguments);
    psi_assert(fclose(stream) == 0);
    psi_assert(answered == (bytes > 0));
    psi_assert(!arguments->help || strstr(text, "usage: ") == text);
    psi_assert(arguments->help || !arguments->version || strcmp(text, "fuzz 1.0\n") == 0);
    free(text);
}

static void
check_arguments(int argc, char **argv, unsigned program, const struct psi_knob *knob)
{
    const struct psi_log log = {.write = log_line, .level = PSI_LOG_INFO};
    bool flag = false;
    const char *word = NULL;
    uint32_t number = 0;
    uint32_t percent = 0;
    struct psi_option_list list = {0};
    const struct psi_option options[] = {
        {"json", 'j', PSI_OPTION_FLAG, "for programs", &flag},
        {"cluster_config", 'c', PSI_OPTION_TEXT, "a file", &word},
        {"workers", 'w', PSI_OPTION_NUMBER, "how many", &number},
        {"percent", 'p', PSI_OPTION_NUMBER, "of all", &percent, 1, 100},
        {"host", 'H', PSI_OPTION_LIST, "one of them", &list},
    };
    const struct psi_command command = {
        .name = "fuzz",
        .synopsis = "[options]",
        .about = program == PSI_PROGRAM_RUN ? "About it." : NULL,
        .version = program == PSI_PROGRAM_RUN ? "1.0" : NULL,
        .program = program == PSI_PROGRAM_WORKER ? 0 : program,
        .options = options,
        .option_count = sizeof(options) / sizeof(options[0]),
    };
    struct psi_arguments arguments = {0};
    struct psi_settings settings;
    struct psd_error err = {0};

    psi_settings_init(&settings);
    if (psi_options_parse(&command, argc, argv, &settings, &arguments, &err) == PSD_OK) {
        psi_assert(arguments.first >= 1 && arguments.first <= argc);
        check_answer(&command, &arguments);
        psi_assert(list.count <= PSI_OPTION_LIST_MAX);
    } else {
        psi_assert(err.status == PSD_ERR_INVALID && err.text[0] != '\0');
    }
    if (argc > 1) {
        check_environment(&settings, knob, argv[1], program);
        (void)psi_settings_set(&settings, PSI_SOURCE_FILE, "file", argv[1], argv[argc - 1], &err);
    }
    check_settings(&settings);
    psi_settings_log(&settings, program, &log);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[] = "fuzz";
    char *argv[ARGS_MAX + 2] = {name};
    char *text;
    int argc;

    if (size == 0 || size > TEXT_BYTES_MAX) {
        return 0;
    }
    text = strndup((const char *)data + 1, size - 1);
    psi_assert(text != NULL);
    argc = 1 + cut_lines(text, argv + 1);
    check_arguments(argc, argv, 1u << (data[0] & 3), &psi_knobs()[(data[0] >> 2) % PSI_KNOBS]);
    free(text);
    return 0;
}
