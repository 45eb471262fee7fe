/*
 * options.c - the command line of psd_bench.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <psd/psd.h>

#include "base/fail.h"
#include "ceiling.h"
#include "config/options.h"

static const char about[] =
    "Measures push_pull of one tensor by size, workers and servers, over tcp on this machine, and\n"
    "in turn with it the raw-socket ceiling: the same work done by bare sockets. Every timed run\n"
    "is checked: all pulled values must have the expected bits. Settings (PSD_LANES=1, ...) reach\n"
    "the job through the environment.\n"
    "\n"
    "examples\n"
    "    psd_bench\n"
    "    psd_bench --workers 1 --servers 1 --sizes 4M,32M --seconds 1 --repeat 7\n"
    "    psd_bench --sealed --sizes 4M,32M";

static const char sizes_default[] = "64,4k,64k,1M,4M,32M,64M";
static const char sizes_quick[] = "64,256k,1M";
static const char json_default[] = "bench/results/latest.jsonl";
static const struct bench_shape shapes_default[] = {{1, 1}, {2, 1}, {2, 2}};

/* What the command line says as text or may leave out. */
struct raw_options {
    uint32_t workers;
    uint32_t servers;
    const char *sizes;
    const char *seconds;
    bool quick;
};

static psd_status
parse_all(int argc, char *const *argv, struct bench_options *options, struct raw_options *raw,
          struct psd_error *err)
{
    const struct psi_option table[] = {
        {"workers", 0, PSI_OPTION_NUMBER, "only this many [1, 2]", &raw->workers},
        {"servers", 0, PSI_OPTION_NUMBER, "only this many [1, 2]", &raw->servers},
        {"sizes", 0, PSI_OPTION_TEXT, "of the tensor [64,4k,64k,1M,4M,32M,64M]", &raw->sizes},
        {"seconds", 0, PSI_OPTION_TEXT, "of one timed run [0.25]", &raw->seconds},
        {"repeat", 0, PSI_OPTION_NUMBER, "timed runs of each; the median counts [3]",
         &options->repeat},
        {"json", 0, PSI_OPTION_TEXT,
         "file for the results [bench/results/latest.jsonl, in a checkout]", &options->json},
        {"sealed", 0, PSI_OPTION_FLAG,
         "with TLS, as between hosts, beside two processes that do nothing but TLS",
         &options->sealed},
        {"quick", 0, PSI_OPTION_FLAG, "a few seconds: does it run, are the bits right?",
         &raw->quick},
        {"control", 0, PSI_OPTION_TEXT, "for the program's own use", &options->control},
    };
    const struct psi_command command = {
        .name = "psd_bench",
        .synopsis = "[options]",
        .about = about,
        .version = psd_version(),
        .options = table,
        .option_count = sizeof(table) / sizeof(table[0]),
    };
    struct psi_settings settings;
    struct psi_arguments arguments;
    psd_status status;

    psi_settings_init(&settings);
    status = psi_options_parse(&command, argc, argv, &settings, &arguments, err);
    options->answered = status == PSD_OK && psi_options_answer(stdout, &command, &arguments);
    if (status == PSD_OK && !options->answered && arguments.first < argc) {
        return psi_fail(err, PSD_ERR_INVALID, "%.64s is no option", argv[arguments.first]);
    }
    return status;
}

/* One size; *end_p: behind it. 0: none. */
static uint64_t
parse_size(const char *text, const char **end_p)
{
    char *end;
    uint64_t bytes;
    unsigned shift = 0;

    if (text[0] < '0' || text[0] > '9') {
        return 0;
    }
    bytes = strtoull(text, &end, 10);
    if (*end == 'k' || *end == 'K') {
        shift = 10;
    } else if (*end == 'M' || *end == 'm') {
        shift = 20;
    }
    *end_p = end + (shift != 0);
    return bytes > UINT64_C(1) << 34 ? 0 : bytes << shift;
}

psd_status
bench_sizes_parse(const char *text, struct bench_options *options, struct psd_error *err)
{
    const uint64_t bytes_max = UINT64_C(4) << 30;
    const char *at = text;
    size_t count = 0;

    while (count < BENCH_SIZES_MAX) {
        const char *end = at;
        const uint64_t bytes = parse_size(at, &end);

        if (bytes == 0 || bytes > bytes_max || bytes % sizeof(float) != 0 ||
            (*end != ',' && *end != '\0')) {
            return psi_fail(err, PSD_ERR_INVALID,
                            "--sizes %.64s: must be multiples of 4 bytes up to 4096M, as 64,4k,1M",
                            text);
        }
        options->sizes[count++] = bytes;
        if (*end == '\0') {
            options->size_count = count;
            return PSD_OK;
        }
        at = end + 1;
    }
    return psi_fail(err, PSD_ERR_INVALID, "--sizes: at most %d", BENCH_SIZES_MAX);
}

static psd_status
parse_seconds(const char *text, double *seconds_p, struct psd_error *err)
{
    char *end;
    const double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(seconds) || seconds <= 0 || seconds > 60) {
        return psi_fail(err, PSD_ERR_INVALID, "--seconds %.64s: must be more than 0, at most 60",
                        text);
    }
    *seconds_p = seconds;
    return PSD_OK;
}

static psd_status
choose_shapes(const struct raw_options *raw, struct bench_options *options, struct psd_error *err)
{
    if (options->sealed && (raw->workers > 1 || raw->servers > 1)) {
        return psi_fail(err, PSD_ERR_INVALID, "--sealed: one worker and one server, as the pair");
    }
    if (options->sealed) {
        options->shapes[0] = (struct bench_shape){1, 1};
        options->shape_count = 1;
        return PSD_OK;
    }
    if (raw->workers == 0 && raw->servers == 0) {
        memcpy(options->shapes, shapes_default, sizeof(shapes_default));
        options->shape_count = sizeof(shapes_default) / sizeof(shapes_default[0]);
        return PSD_OK;
    }
    if (raw->workers > CREW_MAX || raw->servers > CEILING_SERVERS_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "at most %d workers and %d servers", CREW_MAX,
                        CEILING_SERVERS_MAX);
    }
    options->shapes[0].workers = raw->workers != 0 ? raw->workers : 1;
    options->shapes[0].servers = raw->servers != 0 ? raw->servers : 1;
    options->shape_count = 1;
    return PSD_OK;
}

psd_status
bench_options_parse(int argc, char *const *argv, struct bench_options *options_p,
                    struct psd_error *err)
{
    struct bench_options *options = options_p;
    struct raw_options raw = {0};
    psd_status status;

    *options = (struct bench_options){0};
    status = parse_all(argc, argv, options, &raw, err);
    if (status != PSD_OK || options->answered) {
        return status;
    }
    options->seconds = raw.quick ? 0.02 : 0.25;
    if (options->repeat == 0) {
        options->repeat = raw.quick ? 1 : 3;
    }
    if (options->repeat > BENCH_REPEAT_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "--repeat: at most %d", BENCH_REPEAT_MAX);
    }
    if (options->json == NULL && !raw.quick && access("bench/meson.build", F_OK) == 0) {
        options->json = json_default;
    }
    if (raw.sizes == NULL) {
        raw.sizes = raw.quick ? sizes_quick : sizes_default;
    }
    status = bench_sizes_parse(raw.sizes, options, err);
    if (status == PSD_OK && raw.seconds != NULL) {
        status = parse_seconds(raw.seconds, &options->seconds, err);
    }
    return status == PSD_OK ? choose_shapes(&raw, options, err) : status;
}
