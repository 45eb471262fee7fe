/*
 * lines.c - results as lines of JSON, for programs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "lines.h"

#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"

psd_status
lines_open(const char *path, FILE **file_p, struct psd_error *err)
{
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    FILE *file = NULL;

    if (slash != NULL && slash > path) {
        char directory[512];

        snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
        (void)mkdir(directory, 0777); /* it may be there; if it is not, fopen says so */
    }
    if (path != NULL) {
        file = fopen(path, "we");
        if (file == NULL) {
            return psi_fail_errno(err, PSD_ERR_IO, "write %s", path);
        }
    }
    *file_p = file;
    return PSD_OK;
}

psd_status
lines_close(FILE *file, const char *path, struct psd_error *err)
{
    if (file != NULL && (ferror(file) != 0) + (fclose(file) != 0) != 0) {
        return psi_fail(err, PSD_ERR_IO, "write %s: not all of it arrived", path);
    }
    return PSD_OK;
}

/* A result and what it is measured by. */
struct pair {
    const struct result *result;
    const struct result *reference; /* NULL: none */
};

/* One figure of both. */
struct figure {
    const char *suffix; /* of the name */
    const char *unit;
    double value;
    double reference;
    double ratio;
};

static void
write_figure(FILE *file, const struct pair *pair, const struct figure *figure)
{
    const struct result *result = pair->result;
    const struct situation *situation = &result->situation;

    fprintf(file,
            "{\"name\": \"%s%s\", \"timing\": \"%s\", \"transport\": \"%s\", \"workers\": %u, "
            "\"servers\": %u, \"bytes\": %llu, \"value\": %.6g, \"unit\": \"%s\"",
            subject_about(result->subject)->name, figure->suffix,
            result->timing == TIMING_TOUCH ? "touch" : "call",
            result_missed_shm(result) ? "tcp" : transport_name(situation->transport),
            situation->workers, situation->servers, (unsigned long long)situation->bytes,
            figure->value, figure->unit);
    if (pair->reference != NULL) {
        fprintf(file, ", \"reference\": %.6g, \"reference_name\": \"%s\", \"ratio\": %.4f",
                figure->reference, subject_about(pair->reference->subject)->name, figure->ratio);
    } else {
        fprintf(file, ", \"reference\": null, \"reference_name\": null, \"ratio\": null");
    }
    fprintf(file, ", \"repeat\": %u", result->repeat);
    if (strcmp(figure->unit, "GB/s") == 0) {
        const struct spread speed = result_speed(result);

        fprintf(file, ", \"min\": %.6g, \"max\": %.6g", speed.least, speed.most);
    }
    fprintf(file, "}\n");
}

/* A time of a round, where less is better. */
static void
write_time(FILE *file, const struct pair *pair, const char *suffix, const double *values_ns,
           const double *references_ns)
{
    const double value = result_spread(values_ns, pair->result->repeat).middle / 1e3;
    const double reference =
        pair->reference != NULL ? result_spread(references_ns, pair->reference->repeat).middle / 1e3
                                : 0;
    const struct figure figure = {suffix, "us", value, reference, reference / value};

    write_figure(file, pair, &figure);
}

static void
write_times(FILE *file, const struct pair *pair)
{
    const struct result *result = pair->result;
    const struct result *other = pair->reference != NULL ? pair->reference : result;

    write_time(file, pair, "_time", result->round_ns, other->round_ns);
    write_time(file, pair, "_p50", result->median_ns, other->median_ns);
    write_time(file, pair, "_p90", result->p90_ns, other->p90_ns);
    write_time(file, pair, "_p99", result->p99_ns, other->p99_ns);
}

/* What moves in a second, and what that costs. */
static void
write_rates(FILE *file, const struct pair *pair)
{
    const struct result *result = pair->result;
    const struct result *other = pair->reference != NULL ? pair->reference : result;
    const double ratio = result_ratio(result, other, result_is_small(result)).middle;
    const double round_ns = result_spread(result->round_ns, result->repeat).middle;
    const double other_ns = result_spread(other->round_ns, other->repeat).middle;
    const double cpu = result_cpu_s_per_gb(result);
    const double other_cpu = result_cpu_s_per_gb(other);
    const struct figure figures[] = {
        {"", "GB/s", result_speed(result).middle, result_speed(other).middle, ratio},
        {"_elements", "Gelements/s", result_elements(result), result_elements(other), ratio},
        {"_rate", "operations/s", 1e9 / round_ns, 1e9 / other_ns, ratio},
        {"_cpu", "s/GB", cpu, other_cpu, cpu > 0 ? other_cpu / cpu : 0},
    };

    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        write_figure(file, pair, &figures[i]);
    }
}

void
lines_write(FILE *file, const struct results *results, const struct situation *situation)
{
    for (size_t i = 0; file != NULL && i < results->count; i++) {
        const struct result *result = results->list[i];
        const struct pair pair = {result, results_reference(results, result)};

        if (result_is_of(result, situation)) {
            write_times(file, &pair);
            if (!subject_about(result->subject)->urgent) {
                write_rates(file, &pair);
            }
        }
    }
    if (file != NULL) {
        fflush(file);
    }
}
