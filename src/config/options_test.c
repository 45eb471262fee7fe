/*
 * options_test.c - the command line: every way to write an option, every way to get it wrong.
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

#include "config/options.h"

enum { ARGUMENTS_MAX = 16 };

/* A program with one option of each kind, and what came of parsing its command line. */
struct program {
    bool verbose;
    const char *cluster_config;
    uint32_t index;
    uint32_t workers;
    unsigned colour;
    struct psi_option options[5];
    struct psi_command command;
    struct psi_settings settings;
    struct psi_arguments arguments;
    struct psd_error err;
    const char *argv[ARGUMENTS_MAX];
    int argc;
};

static void
program_init(struct program *program)
{
    static const char *const colours[] = {"red", "green", NULL};

    memset(program, 0, sizeof(*program));
    program->index = 77;
    program->options[0] = (struct psi_option){.name = "cluster_config",
                                              .short_name = 'c',
                                              .kind = PSI_OPTION_TEXT,
                                              .help = "the hosts of the job",
                                              .pointer = &program->cluster_config};
    program->options[1] = (struct psi_option){.name = "index",
                                              .kind = PSI_OPTION_NUMBER,
                                              .help = "which server this is",
                                              .pointer = &program->index};
    program->options[2] = (struct psi_option){.name = "verbose",
                                              .short_name = 'v',
                                              .kind = PSI_OPTION_FLAG,
                                              .help = "tell more",
                                              .pointer = &program->verbose};
    program->options[3] = (struct psi_option){.name = "workers",
                                              .kind = PSI_OPTION_NUMBER,
                                              .help = "how many",
                                              .pointer = &program->workers,
                                              .min = 1,
                                              .max = 1024};
    program->options[4] = (struct psi_option){.name = "colour",
                                              .kind = PSI_OPTION_WORD,
                                              .help = "red, green",
                                              .pointer = &program->colour,
                                              .words = colours};
    program->command = (struct psi_command){.name = "ps_server",
                                            .synopsis = "[options]",
                                            .about = "Holds parameters.",
                                            .program = PSI_PROGRAM_SERVER,
                                            .options = program->options,
                                            .option_count = 5};
    psi_settings_init(&program->settings);
    program->arguments = (struct psi_arguments){.first = -1};
    program->argv[program->argc++] = "ps_server";
}

/* Parses the words, up to NULL, as the command line. */
static psd_status
parse(struct program *program, ...)
{
    va_list words;
    const char *word;

    program_init(program);
    va_start(words, program);
    while ((word = va_arg(words, const char *)) != NULL) {
        assert_true(program->argc < ARGUMENTS_MAX);
        program->argv[program->argc++] = word;
    }
    va_end(words);
    return psi_options_parse(&program->command, program->argc,
                             (char *const *)(uintptr_t)program->argv, &program->settings,
                             &program->arguments, &program->err);
}

/* If this fails, a misspelt word is taken for none, and the program does what nobody asked for. */
static void
test_parse_knows_words(void **state)
{
    struct program p;

    (void)state;
    assert_int_equal(parse(&p, "-v", NULL), PSD_OK);
    assert_int_equal(p.colour, 0);
    assert_int_equal(parse(&p, "--colour", "green", NULL), PSD_OK);
    assert_int_equal(p.colour, 2);
    assert_int_equal(parse(&p, "--colour=gren", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "--colour=gren: must be one of red, green");
}

/* If this fails, one of the ways to write a value is not understood. */
static void
test_parse_accepts_every_form(void **state)
{
    struct program p;

    (void)state;
    assert_int_equal(parse(&p, "--cluster_config=a.json", "--index=3", "-v", NULL), PSD_OK);
    assert_string_equal(p.cluster_config, "a.json");
    assert_int_equal(p.index, 3);
    assert_true(p.verbose);
    assert_int_equal(p.arguments.first, 4);
    assert_int_equal(parse(&p, "--cluster-config", "b.json", "--index", "0", NULL), PSD_OK);
    assert_string_equal(p.cluster_config, "b.json");
    assert_int_equal(p.index, 0);
    assert_false(p.verbose);
    assert_int_equal(parse(&p, "-c", "c.json", "--verbose", NULL), PSD_OK);
    assert_string_equal(p.cluster_config, "c.json");
    assert_true(p.verbose);
    assert_int_equal(parse(&p, "-cd.json", "--index", "4294967295", NULL), PSD_OK);
    assert_string_equal(p.cluster_config, "d.json");
    assert_int_equal(p.index, UINT32_MAX);
    assert_int_equal(parse(&p, "-c", "x", "-c", "y", "--cluster_config=", NULL), PSD_OK);
    assert_string_equal(p.cluster_config, "");
}

/* If this fails, settings cannot be given on the command line. */
static void
test_parse_reads_settings(void **state)
{
    struct program p;

    (void)state;
    assert_int_equal(parse(&p, "--heartbeat-ms", "100", "--kernel=scalar", NULL), PSD_OK);
    assert_int_equal(p.settings.heartbeat_ms, 100);
    assert_int_equal(p.settings.kernel, PSI_KERNEL_SCALAR);
    assert_int_equal(p.settings.source[0], PSI_SOURCE_COMMAND);
}

/* If this fails, psd_run eats options that belong to the command it should run. */
static void
test_parse_stops_at_the_command(void **state)
{
    struct program p;

    (void)state;
    assert_int_equal(parse(&p, "-v", "python", "-c", "x", "--index=1", NULL), PSD_OK);
    assert_int_equal(p.arguments.first, 2);
    assert_null(p.cluster_config);
    assert_int_equal(p.index, 77);
    assert_int_equal(parse(&p, "-v", "--", "--index=1", NULL), PSD_OK);
    assert_int_equal(p.arguments.first, 3);
    assert_int_equal(p.index, 77);
    assert_int_equal(parse(&p, "-", NULL), PSD_OK);
    assert_int_equal(p.arguments.first, 1);
    assert_int_equal(parse(&p, "", NULL), PSD_OK);
    assert_int_equal(p.arguments.first, 1);
    assert_int_equal(parse(&p, "--", NULL), PSD_OK);
    assert_int_equal(p.arguments.first, 2);
    assert_int_equal(parse(&p, NULL), PSD_OK);
    assert_int_equal(p.arguments.first, 1);
}

/* If this fails, -h is an error or is hidden by what follows. */
static void
test_parse_reports_help(void **state)
{
    struct program p;

    (void)state;
    assert_int_equal(parse(&p, "-h", NULL), PSD_OK);
    assert_true(p.arguments.help);
    assert_int_equal(parse(&p, "--help", "--nonsense", NULL), PSD_OK);
    assert_true(p.arguments.help);
    assert_int_equal(parse(&p, "-v", NULL), PSD_OK);
    assert_false(p.arguments.help);
}

/* If this fails, a typing mistake is ignored, or the hint leads elsewhere. */
static void
test_parse_refuses_unknown_options(void **state)
{
    struct program p;

    (void)state;
    assert_int_equal(parse(&p, "--hartbeat_ms=5", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "unknown option --hartbeat_ms; did you mean --heartbeat_ms?");
    assert_int_equal(p.arguments.first, -1);
    assert_int_equal(parse(&p, "--indx", "5", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "unknown option --indx; did you mean --index?");
    assert_int_equal(parse(&p, "--bananas", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "unknown option --bananas; -h lists them");
    assert_int_equal(parse(&p, "--=5", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "unknown option --; -h lists them");
    assert_int_equal(parse(&p, "-x", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "unknown option -x; -h lists them");
}

/* If this fails, a server silently accepts a setting that only the master has. */
static void
test_parse_refuses_settings_of_other_programs(void **state)
{
    struct program p;

    (void)state;
    assert_int_equal(parse(&p, "--on_worker_death=wait", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "option --on_worker_death is not one of ps_server");
}

/* If this fails, an option without its value takes whatever is there, or reads past the end. */
static void
test_parse_refuses_missing_values(void **state)
{
    struct program p;

    (void)state;
    assert_int_equal(parse(&p, "--cluster-config", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "option --cluster-config needs a value");
    assert_int_equal(parse(&p, "-c", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "option -c needs a value");
    assert_int_equal(parse(&p, "--lanes", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "option --lanes needs a value");
}

/* If this fails, a flag swallows a value that meant something. */
static void
test_parse_refuses_values_of_flags(void **state)
{
    struct program p;

    (void)state;
    assert_int_equal(parse(&p, "--verbose=no", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "option --verbose takes no value");
    assert_int_equal(parse(&p, "-vc", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "option -v takes no value");
    assert_int_equal(parse(&p, "--help=me", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "option --help takes no value");
}

/* If this fails, a bad number becomes another number. */
static void
test_parse_refuses_bad_numbers(void **state)
{
    static const char *const bad[] = {
        "", "-1", "1x", "x", " 1", "4294967296", "99999999999999999999999"};
    struct program p;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char expected[128];

        snprintf(expected, sizeof(expected),
                 "option --index: %s is not a number from 0 to 4294967295", bad[i]);
        assert_int_equal(parse(&p, "--index", bad[i], NULL), PSD_ERR_INVALID);
        assert_string_equal(p.err.text, expected);
        assert_int_equal(p.index, 77);
    }
    assert_int_equal(parse(&p, "--lanes=65", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "command line: lanes=65: must be a number, 0 to 64");
}

/* If this fails, a number that the program cannot use gets in, or the range told is not its own. */
static void
test_parse_keeps_to_the_range(void **state)
{
    static const char *const bad[] = {"0", "1025", "99999999999999999999", "many"};
    struct program p;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char expected[128];

        snprintf(expected, sizeof(expected), "option --workers: %s is not a number from 1 to 1024",
                 bad[i]);
        assert_int_equal(parse(&p, "--workers", bad[i], NULL), PSD_ERR_INVALID);
        assert_string_equal(p.err.text, expected);
        assert_int_equal(p.workers, 0);
    }
    assert_int_equal(parse(&p, "--workers", "1024", NULL), PSD_OK);
    assert_int_equal(p.workers, 1024);
    assert_int_equal(parse(&p, "--workers=1", NULL), PSD_OK);
    assert_int_equal(p.workers, 1);
}

/* If this fails, --version says nothing, or is taken where a program has no use for it. */
static void
test_version_is_answered_where_there_is_one(void **state)
{
    static const char *const words[] = {"ps_server", "--version", "--nonsense"};
    struct program p;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(file);
    assert_int_equal(parse(&p, "--version", NULL), PSD_ERR_INVALID);
    assert_string_equal(p.err.text, "unknown option --version; -h lists them");
    assert_int_equal(parse(&p, "-v", NULL), PSD_OK);
    assert_false(psi_options_answer(file, &p.command, &p.arguments));

    p.command.version = "1.2.3";
    assert_int_equal(psi_options_parse(&p.command, 3, (char *const *)(uintptr_t)words, &p.settings,
                                       &p.arguments, &p.err),
                     PSD_OK);
    assert_true(p.arguments.version);
    assert_false(p.arguments.help);
    assert_true(psi_options_answer(file, &p.command, &p.arguments));
    fclose(file);
    assert_string_equal(text, "ps_server 1.2.3\n");
    free(text);
}

/* If this fails, -h hides an option, or its columns are ragged. */
static void
test_help_lists_everything_in_columns(void **state)
{
    struct program p;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(file);
    program_init(&p);
    p.command.version = "1.2.3";
    assert_true(psi_options_answer(file, &p.command, &(struct psi_arguments){.help = true}));
    fclose(file);
    assert_non_null(strstr(text, "usage: ps_server [options]\n"));
    assert_non_null(strstr(text, "\nHolds parameters.\n"));
    assert_non_null(strstr(text, "\n  -c, --cluster_config=VALUE      the hosts of the job\n"));
    assert_non_null(strstr(text, "\n      --index=N                   which server this is\n"));
    assert_non_null(strstr(text, "\n      --workers=N                 how many [1..1024]\n"));
    assert_non_null(
        strstr(text, "\n      --version                   print the version and exit\n"));
    assert_non_null(strstr(text, "\n  -h, --help                      print this and exit\n"));
    assert_non_null(strstr(text,
                           "\n      --heartbeat_ms=ms           time between two signs of life "
                           "[250; 10..60000]\n"));
    assert_non_null(strstr(text, "\n      --log_level=error|warn|info|debug|trace\n"
                                 "                                  how much the daemons tell "
                                 "[info]\n"));
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        const struct psi_knob *knob = &psi_knobs()[i];
        char option[64];

        snprintf(option, sizeof(option), "--%s=", knob->name);
        assert_int_equal(strstr(text, option) != NULL, (knob->programs & PSI_PROGRAM_SERVER) != 0);
    }
    free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_knows_words),
        cmocka_unit_test(test_parse_accepts_every_form),
        cmocka_unit_test(test_parse_reads_settings),
        cmocka_unit_test(test_parse_stops_at_the_command),
        cmocka_unit_test(test_parse_reports_help),
        cmocka_unit_test(test_parse_refuses_unknown_options),
        cmocka_unit_test(test_parse_refuses_settings_of_other_programs),
        cmocka_unit_test(test_parse_refuses_missing_values),
        cmocka_unit_test(test_parse_refuses_values_of_flags),
        cmocka_unit_test(test_parse_refuses_bad_numbers),
        cmocka_unit_test(test_parse_keeps_to_the_range),
        cmocka_unit_test(test_version_is_answered_where_there_is_one),
        cmocka_unit_test(test_help_lists_everything_in_columns),
    };

    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
