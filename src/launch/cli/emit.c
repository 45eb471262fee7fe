/*
 * emit.c - what other systems need to run a job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/emit.h"

#include <string.h>

#include "base/fail.h"
#include "launch/cli/emit_sbatch.h"
#include "launch/meet/join.h"
#include "launch/prepare/prepare.h"
#include "launch/system/ports.h"

/* ------------------------------------------------------------------------------------- ports ---
 */

/* "rank 2", or "rank 2-5". */
static void
name_ranks(uint32_t first, uint32_t last, char text_p[32])
{
    snprintf(text_p, 32, first == last ? "rank %u" : "rank %u-%u", first, last);
}

static void
print_ports(FILE *file, const char *from, const char *to, unsigned first, unsigned last,
            const char *what)
{
    fprintf(file, "%-15s %-15s %5u-%-7u %s\n", from, to, first, last, what);
}

/* Where the kernel puts those who name no port. */
static void
find_range(unsigned *first_p, unsigned *last_p)
{
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

    if (file == NULL || fscanf(file, "%u %u", first_p, last_p) != 2) {
        *first_p = 32768;
        *last_p = 60999;
    }
    if (file != NULL) {
        fclose(file);
    }
}

static psd_status
print_port_table(const struct emit *emit, FILE *file, struct psd_error *err)
{
    const uint32_t chosen = emit->options->first_port;
    unsigned first;
    unsigned last;
    char servers[32];
    char workers[32];

    (void)err;
    find_range(&first, &last);
    name_ranks(emit->servers, emit->size - 1, workers);
    fprintf(file, "%-15s %-15s %-13s %s\n", "FROM", "TO", "TCP PORT", "WHAT");
    print_ports(file, "all ranks", "rank 0", chosen != 0 ? chosen : first,
                chosen != 0 ? emit->options->last_port : last,
                chosen != 0 ? "psd_run" : "psd_run (--initial_port, --final_port narrow it)");
    if (personality_is_foreign(emit->personality)) {
        const uint16_t port = personality_port(emit->personality);

        if (port != 0) {
            print_ports(file, "all ranks", "all ranks", port, port,
                        "the command, where that is free");
        }
        print_ports(file, "all ranks", "all ranks", PORTS_FIRST, PORTS_LAST,
                    "the command, a port or two for each");
        return PSD_OK;
    }
    name_ranks(0, emit->servers - 1, servers);
    print_ports(file, "all ranks", "rank 0", first, last, "ps_master");
    print_ports(file, "all ranks", servers, first, last, "ps_server, a port for each lane");
    print_ports(file, workers, workers, PORTS_FIRST, PORTS_LAST, "PSD_PORT, if the workers use it");
    return PSD_OK;
}

/* --------------------------------------------------------------------------------------- all ---
 */

static const struct {
    const char *name;
    psd_status (*print)(const struct emit *emit, FILE *file, struct psd_error *err);
} systems[] = {
    {"condor", emit_condor},
    {"k8s", emit_k8s},
    {"ports", print_port_table},
};

/* What would be left out without a word. */
static psd_status
check_options(const struct launch_options *options, struct psd_error *err)
{
    const struct {
        const char *name;
        bool given;
    } others[] = {{"cluster_config", options->cluster_config != NULL},
                  {"roles", options->roles != NULL},
                  {"placement", options->placement != ROLES_NOT_SAID},
                  {"tf_config", options->tf_config.count > 0},
                  {"sync", options->sync != NULL},
                  {"setup", options->setup != NULL}};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (others[i].given) {
            return psi_fail(
                err, PSD_ERR_INVALID,
                "--%s does not go with --emit %s: there --servers and --workers say how large the "
                "job is, and its files are in the image or on a shared disk",
                others[i].name, options->emit);
        }
    }
    return PSD_OK;
}

static psd_status
find_counts(struct emit *emit, struct psd_error *err)
{
    const struct launch_options *options = emit->options;
    psd_status status;

    status = personality_parse(options->personality, &emit->personality, err);
    if (status != PSD_OK) {
        return status;
    }
    emit->servers = options->servers != LAUNCH_NOT_GIVEN
                        ? options->servers
                        : personality_usual_servers(emit->personality);
    status = personality_check_servers(emit->personality, options->personality, emit->servers, err);
    if (status != PSD_OK) {
        return status;
    }
    if (options->size == LAUNCH_NOT_GIVEN && options->workers != LAUNCH_NOT_GIVEN) {
        emit->size = emit->servers + options->workers;
    } else if (options->size != LAUNCH_NOT_GIVEN && options->workers == LAUNCH_NOT_GIVEN) {
        emit->size = options->size;
    } else {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--emit %s: give --workers W (and --servers S), or --size N for both",
                        options->emit);
    }
    if (emit->size <= emit->servers || emit->size > JOIN_SIZE_MAX) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--size %u with --servers %u: at least one worker, at most %d in all",
                        emit->size, emit->servers, JOIN_SIZE_MAX);
    }
    return PSD_OK;
}

static psd_status
find_command(struct emit *emit, struct psd_error *err)
{
    const struct launch_options *options = emit->options;
    if (options->command != NULL) {
        return words_split(options->command, &emit->command, err);
    }
    for (size_t i = 0; options->argv != NULL && options->argv[i] != NULL; i++) {
        words_add(&emit->command, options->argv[i]);
    }
    if (emit->command.count == 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "nothing to run: give the workers' command, as in \"python train.py\"");
    }
    return PSD_OK;
}

static void
hand_on_text(struct emit *emit, const char *name, const char *value)
{
    if (value != NULL) {
        words_add_format(&emit->handed_on, "--%s=%s", name, value);
    }
}

static void
hand_on_settings(struct emit *emit)
{
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        char value[64];

        if (emit->options->settings.source[i] == PSI_SOURCE_COMMAND) {
            psi_settings_text(&emit->options->settings, &psi_knobs()[i], value, sizeof(value));
            hand_on_text(emit, psi_knobs()[i].name, value);
        }
    }
}

/* What was said about the job itself. */
static void
hand_on(struct emit *emit)
{
    const struct launch_options *options = emit->options;
    const struct {
        const char *name;
        const char *value;
    } texts[] = {
        {"workdir", options->workdir},
        {"interface", options->interface},
        {"pass", options->pass},
        {"result_regex", options->result_regex},
        {"tensorboard", options->tensorboard},
        {"restart", options_word(launch_restart_words, options->restart)},
        {"restart_scope", options_word(launch_scope_words, options->restart_scope)},
        {"cold_dir", options->cold_dir},
        {"checkpoint", options->checkpoint},
        {"checkpoint_every", options->checkpoint_every},
        {"resume", options->resume},
        {"log_mode", options_word(launch_logs_words, options->log_mode)},
        {"personality", options->personality},
        {"auto", options_word(plan_automatic_words, options->automatic)},
        {"tf_config_dir", options->tf_config_dir},
        {"show", options->show},
    };
    const struct {
        const char *name;
        bool value;
    } flags[] = {{"chief", options->chief},
                 {"evaluator", options->evaluator},
                 {"keep_env", options->keep_env}};
    const struct {
        const char *name;
        uint32_t value;
        uint32_t usual;
    } numbers[] = {{"min_workers", options->min_workers, LAUNCH_NOT_GIVEN},
                   {"max_wait", options->max_wait_s, LAUNCH_MAX_WAIT_S},
                   {"timeout", options->timeout_s, 0},
                   {"gpus_per_worker", options->gpus_per_worker, 0},
                   {"max_restarts", options->max_restarts, LAUNCH_MAX_RESTARTS},
                   {"keep", options->keep, 0},
                   {"server_restarts", options->server_restarts, LAUNCH_MAX_RESTARTS},
                   {"master_restarts", options->master_restarts, LAUNCH_MAX_RESTARTS},
                   {"restart_delay_ms", options->restart_delay_ms, LAUNCH_RESTART_DELAY_MS},
                   {"grace_ms", options->grace_ms, LAUNCH_NOT_GIVEN}};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        hand_on_text(emit, texts[i].name, texts[i].value);
    }
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (flags[i].value) {
            words_add_format(&emit->handed_on, "--%s", flags[i].name);
        }
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (numbers[i].value != numbers[i].usual) {
            words_add_format(&emit->handed_on, "--%s=%u", numbers[i].name, numbers[i].value);
        }
    }
    for (size_t i = 0; i < options->forward.count; i++) {
        hand_on_text(emit, "forward", options->forward.values[i]);
    }
    hand_on_settings(emit);
}

/* The script runs the same command line inside an allocation: nothing has to be taken apart. */
static psd_status
emit_script(const struct launch_options *options, char *const *argv, FILE *file,
            struct psd_error *err)
{
    char program[4096];
    const psd_status status = prepare_own_program(program, err);

    return status == PSD_OK ? emit_sbatch(options, argv, program, file, err) : status;
}

psd_status
emit_job(const struct launch_options *options, char *const *argv, FILE *file, struct psd_error *err)
{
    struct emit emit = {.options = options};
    psd_status status = PSD_ERR_INVALID;
    size_t i = 0;

    if (strcmp(options->emit, "sbatch") == 0) {
        return emit_script(options, argv, file, err);
    }
    while (i < sizeof(systems) / sizeof(systems[0]) &&
           strcmp(systems[i].name, options->emit) != 0) {
        i++;
    }
    if (i == sizeof(systems) / sizeof(systems[0])) {
        return psi_fail(err, PSD_ERR_INVALID, "--emit %.64s: must be sbatch, condor, k8s or ports",
                        options->emit);
    }
    status = check_options(options, err);
    status = status == PSD_OK ? find_counts(&emit, err) : status;
    status = status == PSD_OK ? find_command(&emit, err) : status;
    hand_on(&emit);
    status = status == PSD_OK ? systems[i].print(&emit, file, err) : status;
    words_fini(&emit.command);
    words_fini(&emit.handed_on);
    return status;
}

void
emit_print_counts(const struct emit *emit, const char *first, FILE *file)
{
    const bool master = personality_has_master(emit->personality);

    if (emit->servers == 0) {
        fprintf(file, "# %u workers (%s 0 is one, and coordinates).", emit->size, first);
        return;
    }
    fprintf(file, "# %u servers (%s 0 is one, and %s) and %u workers.", emit->servers, first,
            master ? "has the master" : "coordinates", emit->size - emit->servers);
}
