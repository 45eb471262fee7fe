/*
 * report.c - results as a table for people and as lines of JSON for programs.
 *
 * Speed counts the tensor's bytes once per worker, though each crosses the wire twice: up as a
 * gradient, down as a value. A ratio of 1 is as good as the ceiling, in time as in speed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "report.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"

#define IDLE_CORES_MAX 0.05

psd_status
report_open(const char *path, FILE **json_p, struct psd_error *err)
{
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    FILE *json = NULL;

    if (slash != NULL && slash > path) {
        char directory[512];

        snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
        (void)mkdir(directory, 0777); /* it may be there; if it is not, fopen says so */
    }
    if (path != NULL) {
        json = fopen(path, "w");
        if (json == NULL) {
            return psi_fail_errno(err, PSD_ERR_IO, "write %s", path);
        }
    }
    *json_p = json;
    return PSD_OK;
}

psd_status
report_close(FILE *json, const char *path, struct psd_error *err)
{
    if (json != NULL && (ferror(json) != 0) + (fclose(json) != 0) != 0) {
        return psi_fail(err, PSD_ERR_IO, "write %s: not all of it arrived", path);
    }
    return PSD_OK;
}

void
report_size(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    unsigned unit = 0;

    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, size, "%llu %s", (unsigned long long)bytes, units[unit]);
}

/* Bytes per nanosecond are gigabytes per second. */
static double
speed(const struct report_row *row, enum report_way way)
{
    return (double)row->bytes / row->round_ns[way];
}

static double
ratio(const struct report_row *row, enum report_way way)
{
    return row->round_ns[REPORT_RAW] / row->round_ns[way];
}

void
report_heading(FILE *file, uint32_t repeat, bool sealed)
{
    fprintf(file,
            "push_pull of one tensor over tcp%s, all bits checked; medians of %u\n"
            "GB/s: bytes of the tensor per worker; raw: %s, in turn\n"
            "\n"
            "| workers | servers |    tensor |      us |  GB/s |  raw us | raw GB/s | ratio "
            "| no NaN scan GB/s | ratio |\n"
            "|--------:|--------:|----------:|--------:|------:|--------:|---------:|------:"
            "|-----------------:|------:|\n",
            sealed ? " with TLS" : "", repeat,
            sealed ? "there and back by bare TLS" : "the same work by bare sockets");
}

void
report_print(FILE *file, const struct report_row *row)
{
    char size[32];

    report_size(row->bytes, size, sizeof(size));
    fprintf(file, "| %7u | %7u | %9s | %7.0f | %5.2f | %7.0f | %8.2f | %5.2f | %16.2f | %5.2f |\n",
            row->workers, row->servers, size, row->round_ns[REPORT_DEFAULT] / 1e3,
            speed(row, REPORT_DEFAULT), row->round_ns[REPORT_RAW] / 1e3, speed(row, REPORT_RAW),
            ratio(row, REPORT_DEFAULT), speed(row, REPORT_UNCHECKED), ratio(row, REPORT_UNCHECKED));
    fflush(file);
}

struct line {
    const char *name;
    enum report_way way;
    const char *unit;
};

static void
print_line(FILE *json, const struct report_row *row, const struct line *line, bool sealed)
{
    const bool time = strcmp(line->unit, "us") == 0;
    const double value = time ? row->round_ns[line->way] / 1e3 : speed(row, line->way);
    const double reference = time ? row->round_ns[REPORT_RAW] / 1e3 : speed(row, REPORT_RAW);

    fprintf(json,
            "{\"name\": \"%s\", \"transport\": \"%s\", \"workers\": %u, \"servers\": %u, "
            "\"bytes\": %llu, \"value\": %.6g, \"unit\": \"%s\", \"reference\": %.6g, "
            "\"ratio\": %.4f}\n",
            line->name, sealed ? "tls" : "tcp", row->workers, row->servers,
            (unsigned long long)row->bytes, value, line->unit, reference, ratio(row, line->way));
}

void
report_json(FILE *json, const struct report_row *row, bool sealed)
{
    static const struct line lines[] = {
        {"push_pull", REPORT_DEFAULT, "GB/s"},
        {"push_pull_time", REPORT_DEFAULT, "us"},
        {"push_pull_nan_allow", REPORT_UNCHECKED, "GB/s"},
        {"push_pull_nan_allow_time", REPORT_UNCHECKED, "us"},
    };

    for (size_t i = 0; json != NULL && i < sizeof(lines) / sizeof(lines[0]); i++) {
        print_line(json, row, &lines[i], sealed);
    }
}

/* Workers that do not sleep take CPU time from the ceiling: the comparison is void. */
static void
report_idle(FILE *file, const struct report_row *rows, size_t count)
{
    double idle_ns = 1;
    double cpu_ns = 0;

    for (size_t i = 0; i < count; i++) {
        idle_ns += rows[i].idle_ns;
        cpu_ns += rows[i].idle_cpu_ns;
    }
    if (cpu_ns / idle_ns > IDLE_CORES_MAX) {
        fprintf(file,
                "\nVOID: an idle worker used %.2f cores while the raw sockets ran, so they were "
                "slowed and\nthe ratios are too good\n",
                cpu_ns / idle_ns);
    }
}

void
report_summary(FILE *file, const struct report_row *rows, size_t count, bool sealed,
               double foreign_cores)
{
    const char *before = "\n";

    for (size_t i = 0; i < count; i++) {
        const struct report_row *row = &rows[i];
        char size[32];

        if (row->workers != 1 || row->servers != 1 ||
            (row->bytes != 4 << 20 && row->bytes != 32 << 20)) {
            continue;
        }
        report_size(row->bytes, size, sizeof(size));
        fprintf(file,
                "%s==> 1 worker, 1 server, %s: %.2f GB/s, %.2f of %s "
                "(%.2f without the NaN scan)\n",
                before, size, speed(row, REPORT_DEFAULT), ratio(row, REPORT_DEFAULT),
                sealed ? "bare TLS" : "raw sockets", ratio(row, REPORT_UNCHECKED));
        before = "";
    }
    report_idle(file, rows, count);
    fprintf(file, "\nother programs kept %.2f cores busy meanwhile%s\n", foreign_cores,
            foreign_cores < 0.1 ? "" : ": repeat it on an idle machine");
}
