/*
 * options.c - the command line of `mnist`, as "--name value" or "--name=value".
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char options_help[] =
    "mnist - learns to read handwritten digits, on many workers at once\n"
    "\n"
    "  psd_run --workers 2 --servers 1 \"bin/mnist\"\n"
    "  psd_run --workers 2 --servers 1 \"bin/mnist --model softmax --mode ssp\"\n"
    "\n"
    "What to learn\n"
    "  --data DIR       the four MNIST files, plain or .gz (examples/mnist/fetch.sh gets them);\n"
    "                   without it: 14,000 digits drawn by the program itself\n"
    "  --model NAME     mlp      two layers, 784-128-10, relu (default)\n"
    "                   softmax  one layer, 784-10\n"
    "How\n"
    "  --epochs N       passes over the training set (default: mlp 6, softmax 12)\n"
    "  --steps N        stop at step N, even in the middle of an epoch\n"
    "  --batch N        images per step and worker (default 64)\n"
    "  --rate X         learning rate (default: mlp 0.4, softmax 0.2)\n"
    "  --momentum X     0 to below 1 (default 0); with 0.9 divide the rate by about 5\n"
    "  --seed N         of first values and order of images (default 1)\n"
    "Together\n"
    "  --mode NAME      bsp    every step waits for all workers; repeatable to the bit (default)\n"
    "                   ssp    workers may be --staleness steps apart\n"
    "                   async  nobody waits\n"
    "  --staleness N    for ssp (default 3)\n"
    "  --slow RANK      this worker computes everything twice, as on a machine half as fast:\n"
    "                   see on the job's page who waits for whom; the result is the same\n"
    "Keep\n"
    "  --save DIR       worker 0 writes the model there at the end\n"
    "  --load DIR       go on from what --save wrote; epochs and steps count from its beginning\n"
    "Join (psd_run says this in the environment; given here, these win)\n"
    "  --master_address tcp://HOST:PORT\n"
    "  --client_id K    this worker's rank, from 0\n"
    "  --distributed    accepted; this program never trains alone\n"
    "  -h, --help, --version\n"
    "\n"
    "The last line of worker 0 is the result: \"MNIST accuracy: 0.9761\".\n"
    "Exit status: 0 done, 1 failed, 2 wrong option.\n";

/* What a model needs to learn well, if the user does not say otherwise. */
static const struct {
    uint32_t epochs;
    double rate;
} defaults[] = {
    [MODEL_SOFTMAX] = {.epochs = 12, .rate = 0.2},
    [MODEL_MLP] = {.epochs = 6, .rate = 0.4},
};

static const char *const model_names[] = {"softmax", "mlp", NULL};
static const char *const mode_names[] = {"bsp", "ssp", "async", NULL};

enum kind { FLAG, TEXT, CHOICE, U32, U64, REAL };

/* One row per option: where its value goes and what it may be. */
struct knob {
    const char *name;
    enum kind kind;
    size_t offset; /* in struct options */
    double low;    /* U32, U64, REAL: lowest and highest */
    double high;
    const char *const *names; /* CHOICE: the index of the name is the value */
};

#define AT(field) offsetof(struct options, field)

static const struct knob knobs[] = {
    {"batch", U32, AT(batch), 1, 65536},
    {"client_id", TEXT, AT(rank)},
    {"data", TEXT, AT(data)},
    {"distributed", FLAG, AT(distributed)},
    {"epochs", U32, AT(epochs), 1, 100000},
    {"help", FLAG, AT(help)},
    {"load", TEXT, AT(load)},
    {"master_address", TEXT, AT(master_address)},
    {"mode", CHOICE, AT(mode), .names = mode_names},
    {"model", CHOICE, AT(model), .names = model_names},
    {"momentum", REAL, AT(momentum), 0, 0.9999},
    {"rate", REAL, AT(rate), 1e-9, 1000},
    {"save", TEXT, AT(save)},
    {"seed", U64, AT(seed), 0, 1e15},
    {"slow", U32, AT(slow), 0, 65535},
    {"staleness", U32, AT(staleness), 1, 10000},
    {"steps", U64, AT(steps), 1, 1e15},
    {"version", FLAG, AT(version)},
};

static const struct knob *
find_knob(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
        if (strlen(knobs[i].name) == length && memcmp(knobs[i].name, name, length) == 0) {
            return &knobs[i];
        }
    }
    return NULL;
}

static bool
set_number(void *field, const struct knob *knob, const char *text, struct failure *failure)
{
    const bool whole = knob->kind != REAL;
    char *end;
    const double real = strtod(text, &end);

    if (end == text || *end != '\0' || !(real >= knob->low && real <= knob->high) ||
        (whole && text[strspn(text, "0123456789")] != '\0')) {
        return failed(failure, "--%s %s: expected a %snumber from %.16g to %.16g", knob->name, text,
                      whole ? "whole " : "", knob->low, knob->high);
    }
    if (knob->kind == REAL) {
        *(double *)field = real;
    } else if (knob->kind == U64) {
        *(uint64_t *)field = (uint64_t)real; /* exact: the bounds are below 2^53 */
    } else {
        *(uint32_t *)field = (uint32_t)real;
    }
    return true;
}

static bool
set_choice(void *field, const struct knob *knob, const char *text, struct failure *failure)
{
    for (uint32_t i = 0; knob->names[i] != NULL; i++) {
        if (strcmp(text, knob->names[i]) == 0) {
            *(uint32_t *)field = i;
            return true;
        }
    }
    return failed(failure, "--%s %s: not one of the names that -h lists", knob->name, text);
}

static bool
set_flag(void *field, const struct knob *knob, const char *text, struct failure *failure)
{
    if (text != NULL && strcmp(text, "true") != 0 && strcmp(text, "1") != 0) {
        return failed(failure, "--%s=%s: leave it out instead", knob->name, text);
    }
    *(bool *)field = true;
    return true;
}

static bool
set_knob(struct options *options, const struct knob *knob, const char *text,
         struct failure *failure)
{
    void *field = (char *)options + knob->offset;

    switch (knob->kind) {
    case FLAG:
        return set_flag(field, knob, text, failure);
    case TEXT:
        *(const char **)field = text;
        return text[0] != '\0' || failed(failure, "--%s: its value is empty", knob->name);
    case CHOICE:
        return set_choice(field, knob, text, failure);
    default:
        return set_number(field, knob, text, failure);
    }
}

/* Reads the option at argv[*index_p] and moves on to the next. */
static bool
parse_one(struct options *options, char **argv, int *index_p, struct failure *failure)
{
    const char *word = argv[(*index_p)++];
    const size_t length = strcspn(word, "=");
    const char *text = word[length] == '=' ? word + length + 1 : NULL;
    const struct knob *knob;

    if (strcmp(word, "-h") == 0) {
        options->help = true;
        return true;
    }
    knob = strncmp(word, "--", 2) == 0 ? find_knob(word + 2, length - 2) : NULL;
    if (knob == NULL) {
        return failed(failure, "%s: no such option; -h lists them", word);
    }
    if (text == NULL && knob->kind != FLAG) {
        text = argv[*index_p];
        if (text == NULL) {
            return failed(failure, "%s: its value is missing", word);
        }
        (*index_p)++;
    }
    return set_knob(options, knob, text, failure);
}

/* What options mean together. */
static bool
complete(struct options *options, struct failure *failure)
{
    if (options->staleness != 0 && options->mode != MODE_SSP) {
        return failed(failure, "--staleness %u: only --mode ssp has one", options->staleness);
    }
    if (options->mode == MODE_SSP && options->staleness == 0) {
        options->staleness = 3;
    }
    if (options->epochs == 0) {
        options->epochs = defaults[options->model].epochs;
    }
    if (options->rate <= 0.0) {
        options->rate = defaults[options->model].rate;
    }
    if (options->rank != NULL && strcmp(options->rank, "-1") == 0) {
        options->rank = NULL; /* what older scripts say for "not given" */
    }
    if (options->rank != NULL && options->rank[strspn(options->rank, "0123456789")] != '\0') {
        return failed(failure, "--client_id %s: expected a whole number from 0", options->rank);
    }
    return true;
}

bool
options_parse(struct options *options, int argc, char **argv, struct failure *failure)
{
    *options = (struct options){
        .model = MODEL_MLP, .mode = MODE_BSP, .batch = 64, .seed = 1, .slow = NOBODY};
    for (int i = 1; i < argc;) {
        if (!parse_one(options, argv, &i, failure)) {
            return false;
        }
    }
    return complete(options, failure);
}
