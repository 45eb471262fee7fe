/*
 * checkpoint.c - `psd_run checkpoint`: what lies in a directory of checkpoints, and whether it is
 * intact.
 *
 * Nothing is repaired: what is damaged is named. Only prune removes anything, and says what.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "checkpoint/needed.h"
#include "checkpoint/read.h"
#include "config/options.h"
#include "launch/cli/checkpoint_export.h"
#include "launch/cli/checkpoint_export_rows.h"
#include "launch/cli/refuse.h"
#include "launch/cli/table.h"
#include "launch/cli/verbs.h"
#include "launch/rules/watch.h"

static const char *const format_words[] = {"safetensors", "numpy", NULL};

/* Thread: a process has one. */
static struct {
    uint32_t generation; /* 0: the newest intact one */
    uint32_t keep;
    enum checkpoint_format format; /* 0: not said */
} given;

static const struct psi_option options[] = {
    {"generation", 0, PSI_OPTION_NUMBER, "of show and export: which one [the newest intact one]",
     &given.generation, 1, UINT32_MAX},
    {"keep", 0, PSI_OPTION_NUMBER, "of prune: so many of the newest intact ones [2]", &given.keep,
     1, UINT32_MAX},
    {"format", 0, PSI_OPTION_WORD,
     "of export: safetensors (one file), numpy (a .npy for each tensor) [safetensors]",
     &given.format, .words = format_words},
};

static const struct psi_command command = {
    .name = "psd_run checkpoint",
    .synopsis = "list | verify | show | export | prune [options] DIR [OUT]",
    .about = "What lies in a directory of checkpoints (psd_run --checkpoint, psd_save).\n"
             "\n"
             "    list DIR        every generation: step, size, age, and whether it is intact\n"
             "    verify DIR      the same for programs: exit code 3 if anything is damaged\n"
             "    show DIR        the tables of one, and how each is kept\n"
             "    export DIR OUT  its values, as one file or a .npy for each; OUT must not exist\n"
             "    prune DIR       removes all but the newest intact ones, and says what\n"
             "\n"
             "Every byte is read and held against its checksum.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

/* What is known of one generation. */
struct finding {
    uint64_t number;
    bool intact;
    uint64_t step;
    uint64_t bytes;
    uint64_t referred; /* of these, in earlier generations ... */
    uint64_t base;     /* ... since this one; 0: none */
    size_t tables;
    double age_s;
    struct psd_error error; /* not intact: why */
};

struct findings {
    struct finding *list; /* newest first */
    size_t count;
};

/* Bytes in an earlier generation. */
static void
refers(struct finding *finding, uint64_t generation, uint64_t bytes)
{
    finding->referred += bytes;
    if (finding->base == 0 || generation < finding->base) {
        finding->base = generation;
    }
}

static void
find_rows(const struct psi_manifest_rows *rows, struct finding *finding)
{
    for (size_t i = 0; i < rows->count; i++) {
        finding->bytes += rows->files[i].bytes;
        if (rows->files[i].generation != finding->number) {
            refers(finding, rows->files[i].generation, rows->files[i].bytes);
        }
    }
}

static void
find(const char *path, int directory, struct finding *finding)
{
    struct psi_checkpoint *checkpoint;
    char name[PSI_CHECKPOINT_NAME_BYTES];
    struct stat stat;

    psi_checkpoint_name(name, PSI_CHECKPOINT_MANIFEST, finding->number);
    if (fstatat(directory, name, &stat, 0) == 0) {
        finding->age_s = difftime(time(NULL), stat.st_mtime);
    }
    if (psi_checkpoint_open_one(&psi_disk_system, path, finding->number, true, &checkpoint,
                                &finding->error) != PSD_OK) {
        return;
    }
    finding->intact = true;
    finding->step = checkpoint->manifest.step;
    finding->tables = checkpoint->manifest.table_count;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        const struct psi_manifest_file *file = &checkpoint->manifest.files[kind];

        finding->bytes += file->bytes;
        for (size_t i = 0; i < file->earlier.count; i++) {
            const struct psi_range *range = &file->earlier.list[i];

            refers(finding, range->generation, range->end - range->begin);
        }
    }
    for (size_t i = 0; i < checkpoint->manifest.part_count; i++) {
        finding->bytes += checkpoint->manifest.parts[i].bytes;
    }
    for (size_t i = 0; i < checkpoint->manifest.rows_count; i++) {
        find_rows(&checkpoint->manifest.rows[i], finding);
    }
    psi_checkpoint_destroy(checkpoint);
}

static psd_status
find_all(const char *path, struct findings *findings_p, struct psd_error *err)
{
    struct psi_directory directory;
    struct psi_generations generations;
    psd_status status = psi_directory_open(&directory, &psi_disk_system, path, err);

    *findings_p = (struct findings){0};
    if (status != PSD_OK) {
        return status;
    }
    status = psi_generations_init(&generations, &directory, err);
    if (status == PSD_OK) {
        findings_p->list = calloc(generations.count + 1, sizeof(*findings_p->list));
        for (size_t i = 0; findings_p->list != NULL && i < generations.count; i++) {
            if (generations.list[i].kind == PSI_CHECKPOINT_MANIFEST) {
                struct finding *finding = &findings_p->list[findings_p->count++];

                finding->number = generations.list[i].number;
                find(path, directory.fd, finding);
            }
        }
        psi_generations_fini(&generations);
    }
    psi_directory_close(&directory);
    if (status == PSD_OK && findings_p->count == 0) {
        free(findings_p->list);
        status = psi_fail(err, PSD_ERR_IO, "%s: no checkpoint there", path);
    }
    return status;
}

static void
put_age(struct table *table, double age_s)
{
    if (age_s < 120) {
        table_cell(table, "%.0f s", age_s);
    } else if (age_s < 7200) {
        table_cell(table, "%.0f min", age_s / 60);
    } else {
        table_cell(table, "%.1f h", age_s / 3600);
    }
}

static int
list(const char *path, struct psd_error *err)
{
    static const char *const heads[] = {"GENERATION", "STEP", "TABLES", "MIB", "AGE", "STATE"};
    struct findings findings;
    struct table table = {0};
    bool damaged = false;

    if (find_all(path, &findings, err) != PSD_OK) {
        return refuse(err);
    }
    table_begin(&table, heads, sizeof(heads) / sizeof(heads[0]));
    for (size_t i = 0; i < findings.count; i++) {
        const struct finding *finding = &findings.list[i];

        damaged = damaged || !finding->intact;
        table_cell(&table, "%" PRIu64, finding->number);
        if (finding->intact) {
            table_cell(&table, "%" PRIu64, finding->step);
            table_cell(&table, "%zu", finding->tables);
            table_cell(&table, "%.1f", (double)finding->bytes / (1 << 20));
        } else {
            table_cell(&table, "-");
            table_cell(&table, "-");
            table_cell(&table, "-");
        }
        put_age(&table, finding->age_s);
        if (finding->base != 0) {
            table_cell(&table, "intact; %.1f MiB since generation %" PRIu64,
                       (double)(finding->bytes - finding->referred) / (1 << 20), finding->base);
        } else {
            table_cell(&table, "%s", finding->intact ? "intact" : finding->error.text);
        }
    }
    table_print(&table, stdout);
    table_fini(&table);
    free(findings.list);
    return damaged ? WATCH_CODE_CANNOT_START : 0;
}

static int
verify(const char *path, struct psd_error *err)
{
    struct findings findings;
    bool damaged = false;

    if (find_all(path, &findings, err) != PSD_OK) {
        return refuse(err);
    }
    for (size_t i = 0; i < findings.count; i++) {
        const struct finding *finding = &findings.list[i];

        damaged = damaged || !finding->intact;
        printf("generation %" PRIu64 ": %s\n", finding->number,
               finding->intact ? "intact" : finding->error.text);
    }
    free(findings.list);
    return damaged ? WATCH_CODE_CANNOT_START : 0;
}

/* The one that was said, or the newest intact one; what is passed over is named. */
static psd_status
open_asked(const char *path, struct psi_checkpoint **checkpoint_p, struct psd_error *err)
{
    psd_status status;

    if (given.generation != 0) {
        return psi_checkpoint_open_one(&psi_disk_system, path, given.generation, true, checkpoint_p,
                                       err);
    }
    status = psi_checkpoint_open(&psi_disk_system, path, checkpoint_p, err);
    if (status == PSD_OK && err->text[0] != '\0') {
        fprintf(stderr, "psd_run: %s; an older generation is taken\n", err->text);
    }
    return status;
}

static void
put_moment(struct table *table, const struct psi_checkpoint *checkpoint,
           const struct psi_manifest_table *record)
{
    const bool has_rows = psi_manifest_rows(&checkpoint->manifest, record->name) != NULL;

    table_cell(table, "%s",
               record->moment == PSI_MANIFEST_MOMENT_STEP ? "the table"
               : has_rows                                 ? "each row"
                                                          : "each chunk");
}

/* A row that was saved again is there once more. */
static void
put_spec(struct table *table, const struct psi_checkpoint *checkpoint,
         const struct psi_manifest_table *record)
{
    const struct psi_manifest_rows *rows = psi_manifest_rows(&checkpoint->manifest, record->name);
    uint64_t all = 0;
    uint64_t written = 0;

    for (size_t i = 0; rows != NULL && i < rows->count; i++) {
        all += rows->files[i].count.rows;
        if (rows->files[i].generation == checkpoint->manifest.generation) {
            written += rows->files[i].count.rows;
        }
    }
    if (rows == NULL) {
        table_cell(table, "%s", record->spec);
    } else {
        table_cell(table,
                   "%s; %zu files, %" PRIu64
                   " rows, earlier states of some among them; this generation wrote %" PRIu64,
                   record->spec, rows->count, all, written);
    }
}

static int
show(const char *path, struct psd_error *err)
{
    static const char *const heads[] = {"TABLE", "UPDATES", "ONE MOMENT", "WHAT"};
    struct psi_checkpoint *checkpoint;
    struct table table = {0};

    if (open_asked(path, &checkpoint, err) != PSD_OK) {
        return refuse(err);
    }
    printf("generation %" PRIu64 " of %s: step %" PRIu64 "\n", checkpoint->manifest.generation,
           path, checkpoint->manifest.step);
    table_begin(&table, heads, sizeof(heads) / sizeof(heads[0]));
    for (size_t i = 0; i < checkpoint->manifest.table_count; i++) {
        const struct psi_manifest_table *record = &checkpoint->manifest.tables[i];

        table_cell(&table, "%s", record->name);
        table_cell(&table, "%" PRIu64, record->updates);
        put_moment(&table, checkpoint, record);
        put_spec(&table, checkpoint, record);
    }
    for (size_t i = 0; i < checkpoint->manifest.part_count; i++) {
        const struct psi_manifest_part *part = &checkpoint->manifest.parts[i];

        table_cell(&table, "%s", part->name);
        table_cell(&table, "-");
        table_cell(&table, "the part");
        table_cell(&table, "brought by workers: %" PRIu64 " bytes", part->bytes);
    }
    table_print(&table, stdout);
    table_fini(&table);
    psi_checkpoint_destroy(checkpoint);
    return 0;
}

static void
tell_exported(const struct psi_checkpoint *checkpoint, const char *path, const char *out,
              bool has_dense)
{
    const bool one_directory = given.format == CHECKPOINT_NUMPY;

    printf("step %" PRIu64 " of %s is in %s\n", checkpoint->manifest.step, path,
           has_dense || one_directory ? out : "files of rows:");
    for (size_t i = 0; i < checkpoint->manifest.rows_count && !one_directory; i++) {
        char file[PATH_MAX];
        struct psd_error err;

        if (checkpoint_export_rows_name(&checkpoint->manifest.rows[i], out, file, &err) == PSD_OK) {
            printf("rows of table %s: %s\n", checkpoint->manifest.rows[i].table, file);
        }
    }
}

static int
export_values(const char *path, const char *out, struct psd_error *err)
{
    struct psi_checkpoint *checkpoint;
    psd_status status = open_asked(path, &checkpoint, err);
    bool has_dense;

    if (status != PSD_OK) {
        return refuse(err);
    }
    has_dense = checkpoint->tensors[PSI_CHECKPOINT_PARAMS].count > 0 ||
                checkpoint->manifest.rows_count == 0;
    if (given.format == CHECKPOINT_NUMPY) {
        status = checkpoint_export_numpy(checkpoint, out, err);
    } else if (has_dense) {
        status = checkpoint_export_file(checkpoint, out, err);
    }
    if (status == PSD_OK) {
        status = given.format == CHECKPOINT_NUMPY
                     ? checkpoint_export_rows_numpy(checkpoint, out, err)
                     : checkpoint_export_rows_files(checkpoint, out, err);
    }
    if (status == PSD_OK) {
        tell_exported(checkpoint, path, out, has_dense);
    }
    psi_checkpoint_destroy(checkpoint);
    return status == PSD_OK ? 0 : refuse(err);
}

/* A job that writes there counts its generations itself. */
static psd_status
check_unused(const struct psi_directory *directory, struct psd_error *err)
{
    const int fd = openat(directory->fd, ".job", O_RDONLY | O_CLOEXEC);
    const bool used = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;

    if (fd >= 0) {
        close(fd);
    }
    return used ? psi_fail(err, PSD_ERR_BUSY,
                           "prune %s: a job writes there; it removes old ones itself (--keep)",
                           directory->path)
                : PSD_OK;
}

static void
remove_generation(const struct psi_directory *directory, const struct psi_generations *generations,
                  const struct finding *finding)
{
    psi_generations_remove(generations, directory, finding->number);
    printf("removed generation %" PRIu64 " (%s)\n", finding->number,
           finding->intact ? "intact" : finding->error.text);
}

/* What those that stay refer to stays. Damaged ones go only when enough intact ones are there: somebody may still want to look at them. */
static int
prune(const char *path, struct psd_error *err)
{
    const uint32_t keep = given.keep > 0 ? given.keep : PSI_GENERATIONS_KEPT;
    struct psi_directory directory;
    struct psi_generations generations;
    struct findings findings;
    struct psi_needed needed = {0};
    uint64_t oldest = 0; /* of those that stay by themselves */
    uint32_t intact = 0;

    if (find_all(path, &findings, err) != PSD_OK) {
        return refuse(err);
    }
    if (psi_directory_open(&directory, &psi_disk_system, path, err) != PSD_OK) {
        free(findings.list);
        return refuse(err);
    }
    if (check_unused(&directory, err) != PSD_OK ||
        psi_generations_init(&generations, &directory, err) != PSD_OK) {
        psi_directory_close(&directory);
        free(findings.list);
        return refuse(err);
    }
    for (size_t i = 0; i < findings.count && intact < keep; i++) {
        if (findings.list[i].intact) {
            psi_needed_add(&needed, &directory, findings.list[i].number);
            intact++;
        }
        oldest = findings.list[i].number;
    }
    for (size_t i = 0; i < findings.count; i++) {
        if (findings.list[i].number < oldest && !psi_needed_has(&needed, findings.list[i].number)) {
            remove_generation(&directory, &generations, &findings.list[i]);
        }
    }
    psi_needed_fini(&needed);
    psi_generations_fini(&generations);
    psi_directory_close(&directory);
    free(findings.list);
    return 0;
}

int
verb_checkpoint(int argc, char *const *argv)
{
    static const char *const verbs[] = {"list", "verify", "show", "export", "prune"};
    struct psi_arguments arguments = {0};
    struct psi_settings settings;
    struct psd_error err = {0};
    const char *path;
    size_t verb = 0;

    while (argc > 1 && verb < sizeof(verbs) / sizeof(verbs[0]) &&
           strcmp(argv[1], verbs[verb]) != 0) {
        verb++;
    }
    if (argc < 2 || verb == sizeof(verbs) / sizeof(verbs[0])) {
        const bool help =
            argc > 1 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0);

        if (argc > 1 && !help) {
            fprintf(
                stderr,
                "psd_run: checkpoint %s: unknown; expected list, verify, show, export or prune\n\n",
                argv[1]);
        }
        psi_options_help(help ? stdout : stderr, &command);
        return help ? 0 : WATCH_CODE_USAGE;
    }
    psi_settings_init(&settings);
    if (psi_options_parse(&command, argc - 1, argv + 1, &settings, &arguments, &err) != PSD_OK) {
        return refuse(&err);
    }
    if (psi_options_answer(stdout, &command, &arguments)) {
        return 0;
    }
    if (argc - 1 - arguments.first != (verb == 3 ? 2 : 1)) {
        psi_fail(&err, PSD_ERR_INVALID, "checkpoint %s: expected %s, behind the options",
                 verbs[verb], verb == 3 ? "DIR and OUT" : "DIR");
        return refuse(&err);
    }
    path = argv[1 + arguments.first];
    switch (verb) {
    case 0:
        return list(path, &err);
    case 1:
        return verify(path, &err);
    case 2:
        return show(path, &err);
    case 3:
        return export_values(path, argv[2 + arguments.first], &err);
    default:
        return prune(path, &err);
    }
}
