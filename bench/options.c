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

#include "base/cores.h"
#include "base/fail.h"
#include "config/options.h"

static const char about[] =
    "How fast Poseidon moves tensors on this machine, beside the ceilings (the same work by "
    "threads\n"
    "on shared memory and by bare sockets) and beside its peers (OpenMPI, Gloo,\n"
    "torch.distributed.rpc: make bench-peers). All take turns, and every timed run is checked: "
    "the\n"
    "values must have the expected bits. Settings (PSD_LANES=1, ...) reach the jobs through the\n"
    "environment.\n"
    "\n"
    "    psd_bench              everything, about 10 minutes\n"
    "    psd_bench suite        only what the project's targets name, each with its target\n"
    "    psd_bench ceilings     only the ceilings\n"
    "    psd_bench cores        large tensors on many cores, beside ceilings with as many threads\n"
    "    psd_bench start        from psd_run to the first barrier, with 1 to 256 workers\n"
    "    psd_bench train        the gradients of ResNet-50 and GPT-2, tensor by tensor, and what "
    "they\n"
    "                           add to a backward that takes --backward ms\n"
    "    psd_bench sparse       sparse tables: a lane beside a hash table, jobs beside caches\n"
    "    psd_bench --workers 2 --servers 1 --transport shm --sizes 4M,64M\n"
    "                           only this kind of job\n"
    "    psd_bench --sealed     with TLS, as between hosts, beside bare TLS";

static const char sizes_default[] = "64,4k,64k,1M,4M,32M,64M";
static const char sizes_quick[] = "64,256k,1M";
static const char json_default[] = "bench/results/latest.jsonl";

enum { SERVERS_MAX = 64, WORKERS_MAX = 16, BACKWARD_MS_MAX = 60000 };

/* What the command line says as text or may leave out. */
struct raw_options {
    const char *transport;
    const char *sizes;
    const char *seconds;
    const char *what;
};

static psd_status
parse_all(int argc, char *const *argv, struct bench_options *options, struct raw_options *raw,
          struct psd_error *err)
{
    const struct psi_option table[] = {
        {"transport", 't', PSI_OPTION_TEXT, "shm or tcp [both]", &raw->transport},
        {"workers", 'w', PSI_OPTION_NUMBER, "of the job", &options->workers},
        {"servers", 's', PSI_OPTION_NUMBER, "of the job", &options->servers},
        {"sizes", 0, PSI_OPTION_TEXT, "of the tensor, as 64,4k,1M", &raw->sizes},
        {"cores", 0, PSI_OPTION_NUMBER, "of the machine, for everything that is measured [all]",
         &options->cores},
        {"backward", 0, PSI_OPTION_NUMBER, "ms that a backward takes in train [100]",
         &options->backward_ms},
        {"seconds", 0, PSI_OPTION_TEXT, "of one timed run [0.1]", &raw->seconds},
        {"repeat", 0, PSI_OPTION_NUMBER, "timed runs of each; the median counts [5]",
         &options->repeat},
        {"quick", 'q', PSI_OPTION_FLAG, "does it run, are the bits right? Less than a minute",
         &options->quick},
        {"large", 0, PSI_OPTION_FLAG,
         "sparse: jobs of 10 million rows, growth to 50 million (12 GB, minutes)", &options->large},
        {"alone", 0, PSI_OPTION_FLAG, "without peers", &options->alone},
        {"sealed", 0, PSI_OPTION_FLAG, "with TLS, beside processes that do nothing but TLS",
         &options->sealed},
        {"json", 0, PSI_OPTION_TEXT,
         "file for the results [bench/results/latest.jsonl, in a checkout]", &options->json},
        {"launch", 0, PSI_OPTION_TEXT,
         "shell command that brings the workers of a job (psd_bench --control $PSD_BENCH_CONTROL)",
         &options->launch},
        {"control", 0, PSI_OPTION_TEXT, "be a worker, and call there for orders",
         &options->control},
    };
    const struct psi_command command = {
        .name = "psd_bench",
        .synopsis = "[options] [suite | survival | cores | start | train | ceilings | sparse]",
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
        raw->what = argv[arguments.first];
        if (arguments.first + 1 < argc) {
            return psi_fail(err, PSD_ERR_INVALID, "%.64s: options come first, and one word at most",
                            argv[arguments.first + 1]);
        }
    }
    return status;
}

/* ---- Sizes ---- */

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
bench_sizes_parse(const char *text, struct bench_sizes *sizes_p, struct psd_error *err)
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
        sizes_p->bytes[count++] = bytes;
        if (*end == '\0') {
            sizes_p->count = count;
            return PSD_OK;
        }
        at = end + 1;
    }
    return psi_fail(err, PSD_ERR_INVALID, "--sizes: at most %d", BENCH_SIZES_MAX);
}

/* ---- The others ---- */

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
parse_transport(const char *text, struct bench_options *options, struct psd_error *err)
{
    if (text != NULL && strcmp(text, "shm") != 0 && strcmp(text, "tcp") != 0) {
        return psi_fail(err, PSD_ERR_INVALID, "--transport %.64s: must be shm or tcp", text);
    }
    options->shm = text == NULL || strcmp(text, "shm") == 0;
    options->tcp = text == NULL || strcmp(text, "tcp") == 0;
    return PSD_OK;
}

/* Options that describe a job make it the only one. */
static psd_status
choose_what(const struct raw_options *raw, struct bench_options *options, struct psd_error *err)
{
    const bool chosen = raw->transport != NULL || raw->sizes != NULL || options->workers != 0 ||
                        options->servers != 0 || options->sealed || options->launch != NULL;

    if (raw->what == NULL) {
        options->what = chosen ? BENCH_CHOSEN : BENCH_ALL;
    } else if (strcmp(raw->what, "suite") == 0 && !chosen) {
        options->what = BENCH_SUITE;
    } else if (strcmp(raw->what, "survival") == 0 && !chosen) {
        options->what = BENCH_SURVIVAL;
    } else if (strcmp(raw->what, "cores") == 0 && !chosen) {
        options->what = BENCH_CORES;
    } else if (strcmp(raw->what, "start") == 0 && !chosen) {
        options->what = BENCH_START;
    } else if (strcmp(raw->what, "train") == 0 && !chosen) {
        options->what = BENCH_TRAIN;
    } else if (strcmp(raw->what, "sparse") == 0 && !chosen) {
        options->what = BENCH_SPARSE;
    } else if (strcmp(raw->what, "ceilings") == 0) {
        options->what = BENCH_CEILINGS;
    } else {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%.64s: must be suite, survival, cores, start, train or sparse, on their "
                        "own, or ceilings",
                        raw->what);
    }
    if (options->workers > WORKERS_MAX || options->servers > SERVERS_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "at most %d workers and %d servers", WORKERS_MAX,
                        SERVERS_MAX);
    }
    if (options->backward_ms > BACKWARD_MS_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "--backward: at most %d ms", BACKWARD_MS_MAX);
    }
    if (options->cores > psi_usable_cores()) {
        return psi_fail(err, PSD_ERR_INVALID, "--cores %u: this process may use %u", options->cores,
                        psi_usable_cores());
    }
    return PSD_OK;
}

static psd_status
set_rest(struct raw_options *raw, struct bench_options *options, struct psd_error *err)
{
    psd_status status;

    options->seconds = options->quick ? 0.02 : 0.1;
    if (options->repeat == 0) {
        options->repeat = options->quick ? 1 : 5;
    }
    if (options->repeat > RESULT_REPEAT_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "--repeat: at most %d", RESULT_REPEAT_MAX);
    }
    if (options->json == NULL && !options->quick && access("bench/meson.build", F_OK) == 0) {
        options->json = json_default;
    }
    options->sizes_chosen = raw->sizes != NULL;
    if (raw->sizes == NULL) {
        raw->sizes = options->quick ? sizes_quick : sizes_default;
    }
    status = bench_sizes_parse(raw->sizes, &options->sizes, err);
    if (status == PSD_OK && raw->seconds != NULL) {
        status = parse_seconds(raw->seconds, &options->seconds, err);
    }
    return status;
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
    status = parse_transport(raw.transport, options, err);
    if (status == PSD_OK) {
        status = choose_what(&raw, options, err);
    }
    return status == PSD_OK ? set_rest(&raw, options, err) : status;
}
