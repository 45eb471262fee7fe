/*
 * report.h - results as a table for people and as lines of JSON for programs.
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <psd/status.h>

enum report_way {
    REPORT_DEFAULT,   /* Poseidon, as it comes: gradients are searched for NaNs */
    REPORT_UNCHECKED, /* Poseidon with PSD_NAN_ALLOW */
    REPORT_RAW,       /* the ceiling */
    REPORT_WAYS,
};

/* One row: nanoseconds of one push_pull, each way. */
struct report_row {
    uint32_t workers;
    uint32_t servers;
    uint64_t bytes;
    double round_ns[REPORT_WAYS];
    double idle_ns; /* of Poseidon's workers, while the ceiling ran, and the CPU time they used */
    double idle_cpu_ns;
};

/* Opens the file of results, and makes its directory; NULL: none. */
psd_status report_open(const char *path, FILE **json_p, struct psd_error *err);
psd_status report_close(FILE *json, const char *path, struct psd_error *err);

/* sealed: both contestants used TLS. */
void report_heading(FILE *file, uint32_t repeat, bool sealed);
void report_print(FILE *file, const struct report_row *row);
void report_json(FILE *json, const struct report_row *row, bool sealed);

/* The rows that the project is held to: one worker, one server, 4 and 32 MiB; and how many cores
 * other programs used meanwhile. */
void report_summary(FILE *file, const struct report_row *rows, size_t count, bool sealed,
                    double foreign_cores);

/* "64 B", "256 KiB", "32 MiB". */
void report_size(uint64_t bytes, char *text, size_t size);

#endif
