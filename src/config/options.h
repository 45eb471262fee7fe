/*
 * options.h - the command line of every program: its own options and the settings, one parser.
 *
 * Options come first: "--name=value", "--name value" or "-nvalue", "-n value"; in names '-' and '_'
 * are equal. The first argument that is no option, or "--", ends them; what follows belongs to the
 * caller (the command that psd_run runs). -h and --help are known everywhere, --version where the
 * command has one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CONFIG_OPTIONS_H
#define PSI_CONFIG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <psd/status.h>

#include "config/settings.h"

enum psi_option_kind {
    PSI_OPTION_FLAG,   /* bool *: true when given; takes no value */
    PSI_OPTION_TEXT,   /* const char **: borrowed from argv */
    PSI_OPTION_NUMBER, /* uint32_t *: digits alone */
    PSI_OPTION_LIST,   /* struct psi_option_list *: may be given several times */
    PSI_OPTION_WORD,   /* enum *: 1 for the first of the words, and so on */
};

enum { PSI_OPTION_LIST_MAX = 64 };

/* The values of an option that was given several times, borrowed from argv. */
struct psi_option_list {
    const char *values[PSI_OPTION_LIST_MAX];
    size_t count;
};

/* An option of one program, besides the settings. Thread: owned by the thread that parses. */
struct psi_option {
    const char *name;
    char short_name; /* 0: none */
    enum psi_option_kind kind;
    const char *help;
    void *pointer; /* written when the option is given; the last one counts, save in lists */
    uint32_t min;  /* PSI_OPTION_NUMBER */
    uint32_t max;  /* likewise; 0: UINT32_MAX */
    const char *const *words; /* PSI_OPTION_WORD: ended by NULL */
};

/* What a program understands. */
struct psi_command {
    const char *name;         /* "ps_server" */
    const char *synopsis;     /* "[options] \"command\"" */
    const char *about;        /* (optional) lines for -h */
    const char *version;      /* (optional) what --version answers, behind the name */
    enum psi_program program; /* 0: knows no settings */
    const struct psi_option *options;
    size_t option_count;
};

/* What was found besides options and settings. */
struct psi_arguments {
    bool help;    /* -h was given; what came after it was not looked at */
    bool version; /* or --version was, likewise */
    int first;    /* argv[first] is the first argument that is no option; argc: none */
};

/*
 * Reads argv into the options' pointers and into settings (source PSI_SOURCE_COMMAND).
 * PSD_ERR_INVALID names the argument, and the nearest known option for one that is unknown; the
 * pointers may have been written by then.
 */
psd_status psi_options_parse(const struct psi_command *command, int argc, char *const *argv,
                             struct psi_settings *settings, struct psi_arguments *arguments_p,
                             struct psd_error *err);

/* Answers -h or --version. False: neither was given. */
bool psi_options_answer(FILE *file, const struct psi_command *command,
                        const struct psi_arguments *arguments);

/* The answer to -h: usage, options, settings with their defaults and ranges, in columns. */
void psi_options_help(FILE *file, const struct psi_command *command);

#endif
