/*
 * options.c - the command line of every program: its own options and the settings, one parser.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config/options.h"

#include <string.h>

#include "base/fail.h"
#include "config/nearest.h"

enum { COLUMN = 34, WORD_BYTES_MAX = 64 };

static const struct psi_option help_option = {
    .name = "help", .short_name = 'h', .kind = PSI_OPTION_FLAG, .help = "print this and exit"};
static const struct psi_option version_option = {
    .name = "version", .kind = PSI_OPTION_FLAG, .help = "print the version and exit"};

/* The argument being read. */
struct reader {
    const struct psi_command *command;
    char *const *argv;
    int argc;
    int at;
    char shown[WORD_BYTES_MAX + 3]; /* "--name" or "-n", for messages */
};

static bool
program_has(const struct psi_command *command, const struct psi_knob *knob)
{
    return (knob->programs & (unsigned)command->program) != 0;
}

static const struct psi_option *
find_option(const struct psi_command *command, const char *name, size_t name_bytes)
{
    for (size_t i = 0; i < command->option_count; i++) {
        if (psi_name_equal(command->options[i].name, name, name_bytes)) {
            return &command->options[i];
        }
    }
    if (command->version != NULL && psi_name_equal(version_option.name, name, name_bytes)) {
        return &version_option;
    }
    return psi_name_equal(help_option.name, name, name_bytes) ? &help_option : NULL;
}

static const struct psi_option *
find_short(const struct psi_command *command, char short_name)
{
    for (size_t i = 0; i < command->option_count; i++) {
        if (command->options[i].short_name == short_name) {
            return &command->options[i];
        }
    }
    return short_name == help_option.short_name ? &help_option : NULL;
}

static const struct psi_knob *
find_knob(const char *name, size_t name_bytes)
{
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        if (psi_name_equal(psi_knobs()[i].name, name, name_bytes)) {
            return &psi_knobs()[i];
        }
    }
    return NULL;
}

static psd_status
unknown_option(const struct reader *reader, struct psd_error *err)
{
    const struct psi_command *command = reader->command;
    struct psi_nearest nearest = {.word = reader->shown + 2};

    for (size_t i = 0; i < command->option_count; i++) {
        psi_nearest_try(&nearest, command->options[i].name);
    }
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        if (program_has(command, &psi_knobs()[i])) {
            psi_nearest_try(&nearest, psi_knobs()[i].name);
        }
    }
    psi_nearest_try(&nearest, help_option.name);
    if (command->version != NULL) {
        psi_nearest_try(&nearest, version_option.name);
    }
    if (nearest.name == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "unknown option %s; -h lists them", reader->shown);
    }
    return psi_fail(err, PSD_ERR_INVALID, "unknown option %s; did you mean --%s?", reader->shown,
                    nearest.name);
}

/* The value after '=' or attached to a short name, else the next argument. */
static psd_status
read_value(struct reader *reader, const char *attached, const char **value_p, struct psd_error *err)
{
    if (attached != NULL) {
        *value_p = attached;
        return PSD_OK;
    }
    if (reader->at >= reader->argc) {
        return psi_fail(err, PSD_ERR_INVALID, "option %s needs a value", reader->shown);
    }
    *value_p = reader->argv[reader->at++];
    return PSD_OK;
}

static psd_status
store_number(const struct reader *reader, const struct psi_option *option, const char *text,
             struct psd_error *err)
{
    const uint32_t max = option->max != 0 ? option->max : UINT32_MAX;
    uint64_t value = 0;
    size_t i = 0;

    for (; text[i] >= '0' && text[i] <= '9' && value <= max; i++) {
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    if (i == 0 || text[i] != '\0' || value < option->min || value > max) {
        return psi_fail(err, PSD_ERR_INVALID, "option %s: %.64s is not a number from %u to %u",
                        reader->shown, text, option->min, max);
    }
    *(uint32_t *)option->pointer = (uint32_t)value;
    return PSD_OK;
}

static psd_status
store_in_list(const struct reader *reader, const char *text, struct psi_option_list *list,
              struct psd_error *err)
{
    if (list->count == PSI_OPTION_LIST_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "option %s: given more than %d times", reader->shown,
                        PSI_OPTION_LIST_MAX);
    }
    list->values[list->count++] = text;
    return PSD_OK;
}

static psd_status
store_word(const struct reader *reader, const struct psi_option *option, const char *text,
           struct psd_error *err)
{
    char list[128] = "";

    for (unsigned i = 0; option->words[i] != NULL; i++) {
        if (strcmp(text, option->words[i]) == 0) {
            *(unsigned *)option->pointer = i + 1;
            return PSD_OK;
        }
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i > 0 ? ", " : "",
                 option->words[i]);
    }
    return psi_fail(err, PSD_ERR_INVALID, "%s=%.64s: must be one of %s", reader->shown, text, list);
}

static psd_status
read_option(struct reader *reader, const struct psi_option *option, const char *attached,
            struct psd_error *err)
{
    const char *value = NULL;
    psd_status status;

    if (option->kind == PSI_OPTION_FLAG) {
        if (attached != NULL) {
            return psi_fail(err, PSD_ERR_INVALID, "option %s takes no value", reader->shown);
        }
        if (option->pointer != NULL) {
            *(bool *)option->pointer = true;
        }
        return PSD_OK;
    }
    status = read_value(reader, attached, &value, err);
    if (status != PSD_OK) {
        return status;
    }
    if (option->kind == PSI_OPTION_NUMBER) {
        return store_number(reader, option, value, err);
    }
    if (option->kind == PSI_OPTION_LIST) {
        return store_in_list(reader, value, option->pointer, err);
    }
    if (option->kind == PSI_OPTION_WORD) {
        return store_word(reader, option, value, err);
    }
    *(const char **)option->pointer = value;
    return PSD_OK;
}

/* --name, --name=value, --name value. *option_p: the option, NULL for a setting. */
static psd_status
read_long(struct reader *reader, struct psi_settings *settings, const struct psi_option **option_p,
          struct psd_error *err)
{
    const char *name = reader->argv[reader->at++] + 2;
    const size_t name_bytes = strcspn(name, "=");
    const char *attached = name[name_bytes] == '=' ? name + name_bytes + 1 : NULL;
    const struct psi_knob *knob = find_knob(name, name_bytes);
    const struct psi_option *option = find_option(reader->command, name, name_bytes);
    const char *value = NULL;
    psd_status status;

    snprintf(reader->shown, sizeof(reader->shown), "--%.*s",
             (int)(name_bytes < WORD_BYTES_MAX ? name_bytes : WORD_BYTES_MAX), name);
    *option_p = option;
    if (option != NULL) {
        return read_option(reader, option, attached, err);
    }
    if (knob == NULL) {
        return unknown_option(reader, err);
    }
    if (!program_has(reader->command, knob)) {
        return psi_fail(err, PSD_ERR_INVALID, "option %s is not one of %s", reader->shown,
                        reader->command->name);
    }
    status = read_value(reader, attached, &value, err);
    if (status != PSD_OK) {
        return status;
    }
    return psi_settings_set(settings, PSI_SOURCE_COMMAND, "command line", knob->name, value, err);
}

/* -n, -n value, -nvalue */
static psd_status
read_short(struct reader *reader, const struct psi_option **option_p, struct psd_error *err)
{
    const char *argument = reader->argv[reader->at++];
    const struct psi_option *option = find_short(reader->command, argument[1]);

    snprintf(reader->shown, sizeof(reader->shown), "-%c", argument[1]);
    if (option == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "unknown option %s; -h lists them", reader->shown);
    }
    *option_p = option;
    return read_option(reader, option, argument[2] != '\0' ? argument + 2 : NULL, err);
}

psd_status
psi_options_parse(const struct psi_command *command, int argc, char *const *argv,
                  struct psi_settings *settings, struct psi_arguments *arguments_p,
                  struct psd_error *err)
{
    struct reader reader = {.command = command, .argv = argv, .argc = argc, .at = 1};
    const struct psi_option *answered = NULL;

    while (reader.at < argc && answered == NULL) {
        const char *argument = argv[reader.at];
        const struct psi_option *option = NULL;
        psd_status status;

        if (strcmp(argument, "--") == 0) {
            reader.at++;
            break;
        }
        if (argument[0] != '-' || argument[1] == '\0') {
            break;
        }
        status = argument[1] == '-' ? read_long(&reader, settings, &option, err)
                                    : read_short(&reader, &option, err);
        if (status != PSD_OK) {
            return status;
        }
        answered = option == &help_option || option == &version_option ? option : NULL;
    }
    *arguments_p = (struct psi_arguments){.help = answered == &help_option,
                                          .version = answered == &version_option,
                                          .first = reader.at < argc ? reader.at : argc};
    return PSD_OK;
}

/* "  -c, --cluster_config VALUE       help" */
static void
print_row(FILE *file, char short_name, const char *name, const char *value, const char *help)
{
    char left[96];
    int used;

    used = short_name != 0 ? snprintf(left, sizeof(left), "  -%c, --%s%s", short_name, name, value)
                           : snprintf(left, sizeof(left), "      --%s%s", name, value);
    if (used < COLUMN) {
        fprintf(file, "%-*s%s\n", COLUMN, left, help);
    } else {
        fprintf(file, "%s\n%*s%s\n", left, COLUMN, "", help);
    }
}

static void
print_knob(FILE *file, const struct psi_knob *knob)
{
    struct psi_settings defaults;
    char fallback[32];
    char help[256];
    char words[64] = "=";

    psi_settings_init(&defaults);
    psi_settings_text(&defaults, knob, fallback, sizeof(fallback));
    for (size_t i = 0; knob->words != NULL && knob->words[i] != NULL; i++) {
        const size_t used = strlen(words);

        snprintf(words + used, sizeof(words) - used, "%s%s", i > 0 ? "|" : "", knob->words[i]);
    }
    if (knob->words == NULL) {
        snprintf(words, sizeof(words), "=%s", knob->unit[0] != '\0' ? knob->unit : "N");
        snprintf(help, sizeof(help), "%s [%s; %u..%u]", knob->help, fallback, knob->min, knob->max);
    } else {
        snprintf(help, sizeof(help), "%s [%s]", knob->help, fallback);
    }
    print_row(file, 0, knob->name, words, help);
}

static void
print_option(FILE *file, const struct psi_option *option)
{
    static const char *const values[] = {[PSI_OPTION_FLAG] = "",
                                         [PSI_OPTION_TEXT] = "=VALUE",
                                         [PSI_OPTION_NUMBER] = "=N",
                                         [PSI_OPTION_LIST] = "=VALUE",
                                         [PSI_OPTION_WORD] = "=VALUE"};
    char help[256];

    if (option->max == 0) {
        snprintf(help, sizeof(help), "%s", option->help);
    } else {
        snprintf(help, sizeof(help), "%s [%u..%u]", option->help, option->min, option->max);
    }
    print_row(file, option->short_name, option->name, values[option->kind], help);
}

void
psi_options_help(FILE *file, const struct psi_command *command)
{
    fprintf(file, "usage: %s %s\n", command->name, command->synopsis);
    if (command->about != NULL) {
        fprintf(file, "\n%s\n", command->about);
    }
    fprintf(file, "\noptions\n");
    for (size_t i = 0; i < command->option_count; i++) {
        print_option(file, &command->options[i]);
    }
    print_option(file, &help_option);
    if (command->version != NULL) {
        print_option(file, &version_option);
    }
    if (command->program == 0) {
        return;
    }
    fprintf(file,
            "\nsettings (also \"settings\" in cluster.json, PSD_<NAME> in the environment)\n");
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        if (program_has(command, &psi_knobs()[i])) {
            print_knob(file, &psi_knobs()[i]);
        }
    }
}

bool
psi_options_answer(FILE *file, const struct psi_command *command,
                   const struct psi_arguments *arguments)
{
    if (arguments->help) {
        psi_options_help(file, command);
    } else if (arguments->version) {
        fprintf(file, "%s %s\n", command->name, command->version);
    }
    return arguments->help || arguments->version;
}
