/*
 * targets.c - what the project wants to reach, and how near it came.
 *
 * A target names a subject, whom it is compared with, and a bound. Nobody is failed by it: the
 * table says what is so.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "targets.h"

#include "base/cores.h"
#include "base/fail.h"
#include "options.h"
#include "report.h"

enum bound {
    AT_LEAST,   /* times as fast as the reference */
    AT_MOST,    /* times as long as the reference takes, by the median of rounds */
    AT_MOST_US, /* microseconds, by the median of rounds */
    MORE_THAN,  /* times as fast as the reference */
};

/* Thread: immutable. */
struct target {
    const char *number;
    enum transport transport;
    uint32_t workers;
    uint32_t servers;
    const char *sizes;
    enum subject subject;
    enum subject_timing timing;
    enum subject references[2]; /* the better of them */
    enum bound bound;
    double value;
    bool aim; /* wished for, not promised */
};

#define SHM   TRANSPORT_SHM
#define TCP   TRANSPORT_TCP
#define TLS   TRANSPORT_TLS
#define CALL  TIMING_CALL
#define TOUCH TIMING_TOUCH

/* clang-format off */
static const struct target targets[] = {
    {"1", SHM, 2, 1, "32M,64M", SUBJECT_IN_PLACE, TOUCH, {SUBJECT_FULL}, AT_LEAST, 0.80, false},
    {"1", SHM, 2, 1, "1M,4M",   SUBJECT_IN_PLACE, TOUCH, {SUBJECT_FULL}, AT_LEAST, 0.60, false},
    {"1", SHM, 2, 1, "32M,64M", SUBJECT_STREAMED, TOUCH, {SUBJECT_BLOCKED}, AT_LEAST, 0.80, true},
    {"1", SHM, 2, 1, "1M,4M,32M,64M", SUBJECT_ORDINARY, CALL,
                                {SUBJECT_COPY_NT, SUBJECT_COPY_LIBC}, AT_LEAST, 0.80, false},

    {"2", SHM, 2, 1, "4M",      SUBJECT_IN_PLACE, TOUCH, {SUBJECT_MPI}, MORE_THAN, 1, false},
    {"2", SHM, 2, 1, "4M",      SUBJECT_IN_PLACE, CALL,  {SUBJECT_MPI}, MORE_THAN, 1, false},
    {"2", SHM, 2, 1, "32M,64M", SUBJECT_IN_PLACE, TOUCH, {SUBJECT_MPI}, AT_LEAST, 2, false},
    {"2", SHM, 2, 1, "32M,64M", SUBJECT_IN_PLACE, CALL,  {SUBJECT_MPI}, AT_LEAST, 2, false},
    {"2", SHM, 2, 1, "64k,1M",  SUBJECT_IN_PLACE, TOUCH, {SUBJECT_MPI}, MORE_THAN, 1, true},
    {"2", SHM, 2, 1, "64k,1M",  SUBJECT_IN_PLACE, CALL,  {SUBJECT_MPI}, MORE_THAN, 1, true},
    {"2", SHM, 2, 1, "4k,64k,1M,4M", SUBJECT_IN_PLACE, TOUCH, {SUBJECT_GLOO}, AT_LEAST, 4, false},
    {"2", SHM, 2, 1, "4k,64k,1M,4M", SUBJECT_IN_PLACE, CALL,  {SUBJECT_GLOO}, AT_LEAST, 4, false},
    {"2", SHM, 2, 1, "32M,64M", SUBJECT_IN_PLACE, TOUCH, {SUBJECT_GLOO}, AT_LEAST, 2.5, false},
    {"2", SHM, 2, 1, "32M,64M", SUBJECT_IN_PLACE, CALL,  {SUBJECT_GLOO}, AT_LEAST, 2.5, false},
    {"2", SHM, 2, 1, "4k,64k,1M,4M", SUBJECT_IN_PLACE, TOUCH, {SUBJECT_RPC}, AT_LEAST, 4, false},
    {"2", SHM, 2, 1, "4k,64k,1M,4M", SUBJECT_IN_PLACE, CALL,  {SUBJECT_RPC}, AT_LEAST, 4, false},
    {"2", SHM, 2, 1, "32M,64M", SUBJECT_IN_PLACE, TOUCH, {SUBJECT_RPC}, AT_LEAST, 2.5, false},
    {"2", SHM, 2, 1, "32M,64M", SUBJECT_IN_PLACE, CALL,  {SUBJECT_RPC}, AT_LEAST, 2.5, false},
    {"2", SHM, 4, 1, "1M,4M,32M,64M", SUBJECT_IN_PLACE, TOUCH, {SUBJECT_MPI}, AT_LEAST, 2, false},
    {"2", SHM, 4, 1, "1M,4M,32M,64M", SUBJECT_IN_PLACE, CALL,  {SUBJECT_MPI}, AT_LEAST, 2, false},

    {"3", SHM, 1, 1, "64,4k",   SUBJECT_IN_PLACE, CALL, {0}, AT_MOST_US, 5, false},
    {"3", SHM, 1, 1, "64,4k",   SUBJECT_BLOCKING, CALL, {0}, AT_MOST_US, 150, false},
    {"3", TCP, 1, 1, "64,4k",   SUBJECT_IN_PLACE, CALL, {SUBJECT_SOCKETS_SPIN}, AT_MOST, 1.5, false},
    {"3", TCP, 1, 1, "64,4k",   SUBJECT_BLOCKING, CALL, {SUBJECT_SOCKETS}, AT_MOST, 1.5, false},

    {"4", TCP, 1, 1, "4M,32M",  SUBJECT_ORDINARY, CALL, {SUBJECT_SOCKETS}, AT_LEAST, 0.90, false},
    {"4", TCP, 1, 1, "4M,32M",  SUBJECT_ORDINARY, CALL, {SUBJECT_SOCKETS_SPIN}, AT_LEAST, 0.90, true},
    {"4", TCP, 2, 2, "4M,32M",  SUBJECT_ORDINARY, CALL, {SUBJECT_SOCKETS_ONE_SERVER}, AT_LEAST, 0.90, false},
    {"4", TCP, 1, 1, "4M,32M",  SUBJECT_HALF,     CALL, {SUBJECT_ORDINARY}, AT_LEAST, 1.7, false},

    /* 0.9 of what the passes over memory, or the bytes of a link, allow: docs/performance.md */
    {"s", SHM, 2, 2, "4M,64M",  SUBJECT_COPIED,          CALL, {SUBJECT_IN_PLACE}, AT_LEAST, 0.45, false},
    {"s", SHM, 2, 2, "4M,64M",  SUBJECT_COPIED_MOMENTUM, CALL, {SUBJECT_MOMENTUM}, AT_LEAST, 0.45, false},
    {"s", SHM, 2, 2, "4M,64M",  SUBJECT_COPIED_ADAM,     CALL, {SUBJECT_ADAM},     AT_LEAST, 0.45, false},
    {"s", SHM, 8, 2, "16M",     SUBJECT_COPIED,          CALL, {SUBJECT_IN_PLACE}, AT_LEAST, 0.64, false},
    {"s", SHM, 8, 2, "16M",     SUBJECT_COPIED_MOMENTUM, CALL, {SUBJECT_MOMENTUM}, AT_LEAST, 0.60, false},
    {"s", SHM, 8, 2, "16M",     SUBJECT_COPIED_ADAM,     CALL, {SUBJECT_ADAM},     AT_LEAST, 0.57, false},
    {"s", TCP, 2, 2, "4M,32M",  SUBJECT_COPIED,          CALL, {SUBJECT_IN_PLACE}, AT_LEAST, 0.60, false},
    {"s", TCP, 2, 2, "4M,32M",  SUBJECT_COPIED_MOMENTUM, CALL, {SUBJECT_MOMENTUM}, AT_LEAST, 0.60, false},
    {"s", TCP, 2, 2, "4M,32M",  SUBJECT_COPIED_ADAM,     CALL, {SUBJECT_ADAM},     AT_LEAST, 0.60, false},
    {"s", TCP, 8, 2, "8M",      SUBJECT_COPIED,          CALL, {SUBJECT_IN_PLACE}, AT_LEAST, 0.80, false},
    {"s", TCP, 8, 2, "8M",      SUBJECT_COPIED_MOMENTUM, CALL, {SUBJECT_MOMENTUM}, AT_LEAST, 0.80, false},
    {"s", TCP, 8, 2, "8M",      SUBJECT_COPIED_ADAM,     CALL, {SUBJECT_ADAM},     AT_LEAST, 0.80, false},
    {"s", SHM, 2, 2, "4M,64M",  SUBJECT_SUM,             CALL, {SUBJECT_SUM_OFF},  AT_LEAST, 0.98, false},
    {"s", TCP, 2, 2, "4M,32M",  SUBJECT_SUM,             CALL, {SUBJECT_SUM_OFF},  AT_LEAST, 0.98, false},
    {"s", TCP, 2, 2, "4M,32M",  SUBJECT_SUM_HELD,        CALL, {SUBJECT_SUM_HELD_OFF}, AT_LEAST, 0.95, false},

    /* many cores: as many threads beside ours as we have */
    {"c", SHM, 2, 1, "64M,256M", SUBJECT_ORDINARY, CALL,
                                {SUBJECT_COPY_NT, SUBJECT_COPY_LIBC}, AT_LEAST, 0.70, false},
    {"c", TCP, 2, 2, "64M,256M", SUBJECT_ORDINARY, CALL, {SUBJECT_SOCKETS_THREADS}, AT_LEAST, 0.80, false},
    {"c", TLS, 1, 1, "64M",     SUBJECT_ORDINARY, CALL, {SUBJECT_TLS_THREADS}, AT_LEAST, 0.80, false},
    {"c", TLS, 2, 2, "64M",     SUBJECT_ORDINARY, CALL, {SUBJECT_TLS_THREADS}, AT_LEAST, 0.80, false},
    {"c", SHM, 2, 1, "4k",      SUBJECT_IN_PLACE, CALL, {SUBJECT_PING_RELAY}, AT_MOST, 1.5, false},
    {"c", SHM, 2, 1, "102228128", SUBJECT_TENSORS, CALL, {SUBJECT_SUM_HELD}, AT_LEAST, 0.87, false},

    {"6", SHM, 1, 1, "256M",    SUBJECT_URGENT,   CALL, {SUBJECT_URGENT_EQUAL}, AT_LEAST, 10, false},
    {"6", TCP, 1, 1, "256M",    SUBJECT_URGENT,   CALL, {SUBJECT_URGENT_EQUAL}, AT_LEAST, 10, false},
};
/* clang-format on */

/* ---- One target at one size ---- */

static const struct result *
better_reference(const struct results *results, const struct target *target,
                 const struct situation *situation)
{
    const struct result *best = NULL;

    for (size_t i = 0; i < 2 && target->references[i] != SUBJECT_NONE; i++) {
        const struct result *one =
            results_find(results, situation, target->references[i], target->timing);

        if (one != NULL && (best == NULL || result_speed(one).middle > result_speed(best).middle)) {
            best = one;
        }
    }
    return best;
}

static struct spread
measure(const struct target *target, const struct result *result, const struct result *reference)
{
    double values[RESULT_REPEAT_MAX];

    if (target->bound == AT_LEAST || target->bound == MORE_THAN) {
        return result_ratio(result, reference, false);
    }
    for (uint32_t i = 0; i < result->repeat; i++) {
        values[i] = target->bound == AT_MOST_US ? result->median_ns[i] / 1e3
                                                : result->median_ns[i] / reference->median_ns[i];
    }
    return result_spread(values, result->repeat);
}

static bool
is_met(const struct target *target, double value)
{
    switch (target->bound) {
    case AT_LEAST:
        return value >= target->value;
    case MORE_THAN:
        return value > target->value;
    case AT_MOST:
    case AT_MOST_US:
        return value <= target->value;
    }
    return false;
}

static void
bound_text(const struct target *target, char *text, size_t size)
{
    static const char *const words[] = {
        [AT_LEAST] = ">=", [MORE_THAN] = ">", [AT_MOST] = "<=", [AT_MOST_US] = "<="};

    snprintf(text, size, "%s %g%s", words[target->bound], target->value,
             target->bound == AT_MOST_US ? " us" : "");
}

/* Whoever spins beside others on one core is no reference. */
static bool
lacks_cores(const struct target *target, const struct result *reference)
{
    return reference != NULL && subject_about(reference->subject)->kind == KIND_RELAY &&
           psi_usable_cores() <= target->workers;
}

static void
print_verdict(FILE *file, const struct target *target, const struct result *result,
              const struct result *reference)
{
    struct spread value;

    if (result == NULL || (reference == NULL && target->references[0] != SUBJECT_NONE)) {
        fprintf(file, " | | not measured |\n");
        return;
    }
    value = measure(target, result, reference);
    fprintf(file, " %.2f | %.2f-%.2f | %s%s%s |\n", value.middle, value.least, value.most,
            is_met(target, value.middle) ? "met"
            : target->aim                ? "missed (aim)"
                                         : "MISSED",
            result_missed_shm(result) ? ", but over tcp" : "",
            lacks_cores(target, reference) ? ", but on too few cores" : "");
}

/* ---- The table ---- */

static const char *
reference_title(const struct target *target, const struct result *reference)
{
    if (target->references[0] == SUBJECT_NONE) {
        return "";
    }
    return subject_about(reference != NULL ? reference->subject : target->references[0])->title;
}

/* heading: printed before the first row, then not again. */
static void
print_target(FILE *file, const struct results *results, const struct target *target, bool all,
             const char **heading)
{
    struct bench_sizes sizes;
    char bound[32];
    const psd_status status = bench_sizes_parse(target->sizes, &sizes, NULL);

    psi_assert(status == PSD_OK);
    bound_text(target, bound, sizeof(bound));
    for (size_t i = 0; i < sizes.count; i++) {
        const struct situation situation = {target->transport, target->workers, target->servers,
                                            sizes.bytes[i]};
        const struct result *result =
            results_find(results, &situation, target->subject, target->timing);
        const struct result *reference = better_reference(results, target, &situation);
        char size[32];

        if (result == NULL && !all) {
            continue;
        }
        report_size(sizes.bytes[i], size, sizeof(size));
        fprintf(file, "%s| %s | %s %uw %us | %s | %s | %s | %s | %s |", *heading, target->number,
                transport_name(target->transport), target->workers, target->servers, size,
                subject_about(target->subject)->title,
                target->timing == TIMING_TOUCH ? "write, call, read" : "call",
                reference_title(target, reference), bound);
        print_verdict(file, target, result, reference);
        *heading = "";
    }
}

void
targets_print(FILE *file, const struct results *results, bool all)
{
    const char *heading =
        "\n### Targets\n\n"
        "| no. | job | tensor | what | timed | beside | target | measured | min-max | |\n"
        "|:---|:---|---:|:---|:---|:---|---:|---:|---:|:---|\n";

    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        print_target(file, results, &targets[i], all, &heading);
    }
}
