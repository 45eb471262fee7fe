/*
 * logs.c - `psd_run logs`: what a process of a job printed.
 *
 * The logs lie on this machine as the processes printed them; when they grew stands
 * in .times beside them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/stat.h>

#include "launch/cli/verb_args.h"
#include "launch/cli/verbs.h"
#include "launch/link/jobs.h"
#include "launch/rules/watch.h"
#include "launch/system/wall_clock.h"

enum { FOLLOW_MS = 100, PATH_MAX_BYTES = 4096 };

/* Where the logs of a job are. job "": it has ended. */
struct place {
    char job[JOBS_NAME_BYTES];
    char started_in[PATH_MAX_BYTES]; /* of one that runs */
    char directory[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES]; /* of the log that is meant */
    char file[256];            /* its name */
    bool unnamed;              /* the user did not say which job */
};

/* Asks a running job. */
static bool
ask_directory(struct place *place)
{
    char *answer = NULL;
    json_t *job;
    const char *logs;
    const char *base;

    if (jobs_ask(place->job, "show\n", &answer, NULL) != PSD_OK) {
        return false;
    }
    job = json_loads(answer, 0, NULL);
    free(answer);
    logs = json_string_value(json_object_get(job, "logs"));
    base = json_string_value(json_object_get(job, "directory"));
    if (base != NULL) {
        snprintf(place->started_in, sizeof(place->started_in), "%s", base);
    }
    if (logs != NULL && base != NULL) {
        snprintf(place->directory, sizeof(place->directory), "%s%s%s", logs[0] == '/' ? "" : base,
                 logs[0] == '/' ? "" : "/", logs);
    }
    json_decref(job);
    return place->directory[0] != '\0';
}

/* ----------------------------------------------------------------------------- which file --- */

static int
compare_names(const void *left, const void *right)
{
    return strverscmp(*(char *const *)left, *(char *const *)right);
}

/* The names in a directory with that beginning and end, numbers in them sorted as such. */
static void
list_names(const char *directory, const char *beginning, const char *ending, struct words *names_p)
{
    DIR *stream = opendir(directory);
    struct dirent *item;

    *names_p = (struct words){0};
    while (stream != NULL && (item = readdir(stream)) != NULL) {
        const size_t bytes = strlen(item->d_name);
        const size_t last = strlen(ending);

        if (strncmp(item->d_name, beginning, strlen(beginning)) == 0 && bytes >= last &&
            strcmp(item->d_name + bytes - last, ending) == 0) {
            words_add(names_p, item->d_name);
        }
    }
    if (stream != NULL) {
        closedir(stream);
    }
    if (names_p->count > 0) {
        qsort(names_p->list, names_p->count, sizeof(names_p->list[0]), compare_names);
    }
}

/* Whether two logs are of one process: worker0.log, worker0.1.log. */
static bool
same_process(const char *left, const char *right)
{
    const size_t bytes = strcspn(left, ".");

    return bytes == strcspn(right, ".") && strncmp(left, right, bytes) == 0;
}

/* Which life of its process a log is of: worker0.log is the first, 0. */
static unsigned long
life_of(const char *name)
{
    return strtoul(name + strcspn(name, ".") + 1, NULL, 10); /* "log" is no number */
}

/*
 * Counts the processes whose name is `wanted` or, if not exact, begins with it; place->file becomes
 * the log of the last of them, of its lives the last. list: their names.
 */
static unsigned
scan(struct place *place, const char *wanted, bool exact, char *list_p, size_t size)
{
    unsigned matching = 0;
    struct words names;

    list_p[0] = '\0';
    place->file[0] = '\0';
    list_names(place->directory, wanted, ".log", &names);
    for (size_t i = 0; i < names.count; i++) {
        const char *name = names.list[i];
        const size_t stem = strcspn(name, ".");

        if (exact && stem != strlen(wanted)) {
            continue;
        }
        if (!same_process(name, place->file)) { /* those of one process follow each other */
            snprintf(list_p + strlen(list_p), size - strlen(list_p), " %.*s", (int)stem, name);
            matching++;
        } else if (life_of(name) < life_of(place->file)) {
            continue;
        }
        snprintf(place->file, sizeof(place->file), "%.255s", name);
    }
    words_fini(&names);
    return matching;
}

/* How many processes are meant; place has the log of the last. */
static unsigned
match(struct place *place, const char *wanted, char *list_p, size_t size)
{
    const unsigned exact = scan(place, wanted, true, list_p, size);
    const unsigned matching = exact > 0 ? exact : scan(place, wanted, false, list_p, size);

    snprintf(place->path, sizeof(place->path), "%.3800s/%s", place->directory, place->file);
    return matching;
}

static int
find_log(struct place *place, const char *wanted)
{
    char list[1024];
    const unsigned matching = match(place, wanted, list, sizeof(list));

    if (matching == 1) {
        return 0;
    }
    if (matching == 0) {
        scan(place, "", false, list, sizeof(list));
        fprintf(stderr,
                "psd_run: %s has no log of %.64s; it has:%s (with --log_mode=nodes a log is on the "
                "machine of the process)\n",
                place->directory, wanted, list[0] != '\0' ? list : " none");
    } else {
        fprintf(stderr, "psd_run: which one?%s\n", list);
    }
    return WATCH_CODE_CANNOT_START;
}

/* -------------------------------------------------------------------------- which directory --- */

/*
 * The newest directory of logs under `out` that has one of the process: a job that could not start
 * leaves one without. Names sort by time. Returns false when there is no directory at all.
 */
static bool
newest_directory(const char *out, const char *wanted, struct place *place)
{
    struct words names;
    char list[1024];
    size_t at;

    list_names(out, "poseidon_log_", "", &names);
    for (at = names.count; at > 0; at--) {
        snprintf(place->directory, sizeof(place->directory), "%.3800s/%.200s", out,
                 names.list[at - 1]);
        if (match(place, wanted, list, sizeof(list)) > 0) {
            break;
        }
    }
    if (names.count > 0 && at != names.count) { /* the newest has none */
        char newest[PATH_MAX_BYTES];

        snprintf(newest, sizeof(newest), "%.3800s/%.200s", out, names.list[names.count - 1]);
        if (at == 0) {
            memcpy(place->directory, newest, sizeof(newest));
        } else {
            fprintf(stderr, "psd_run: %s, which is newer, has no log of %.64s\n", newest, wanted);
        }
    }
    words_fini(&names);
    return place->directory[0] != '\0';
}

/* The only job that runs and was started in this directory; *count_p: how many were. */
static void
find_job_of_here(struct place *place, size_t *count_p)
{
    struct words names = {0};
    char here[PATH_MAX_BYTES] = "";

    *count_p = 0;
    jobs_list(&names, NULL);
    for (size_t i = 0; i < names.count && getcwd(here, sizeof(here)) != NULL; i++) {
        struct place job = {0};

        snprintf(job.job, sizeof(job.job), "%.63s", names.list[i]);
        if (ask_directory(&job) && strcmp(job.started_in, here) == 0) {
            *place = job;
            (*count_p)++;
        }
    }
    words_fini(&names);
}

/* Without the name of a job: one that runs and was started here; else the newest logs here; else
 * the only job that runs. It is said which, for the user did not. */
static bool
choose_unnamed(const char *wanted, struct place *place, int *code_p)
{
    size_t count;

    find_job_of_here(place, &count);
    place->unnamed = true;
    if (count == 0 && newest_directory("./logs", wanted, place)) {
        return true;
    }
    if (count != 1) {
        *place = (struct place){.unnamed = true};
        if (!verb_choose_job(NULL, VERB_LOGS, place->job, code_p) || !ask_directory(place)) {
            return false;
        }
    }
    return true;
}

static void
name_job(const struct place *place)
{
    if (place->job[0] != '\0') {
        fprintf(stderr, "psd_run: this is of job %s, which runs: %s\n", place->job, place->path);
    } else {
        fprintf(stderr, "psd_run: this is of a job that has ended: %s\n", place->path);
    }
}

static bool
choose(const char *job, const char *out, const char *wanted, struct place *place, int *code_p)
{
    if (job == NULL && out == NULL) {
        return choose_unnamed(wanted, place, code_p);
    }
    if (out == NULL) {
        return verb_choose_job(job, VERB_LOGS, place->job, code_p) && ask_directory(place);
    }
    if (!newest_directory(out, wanted, place)) {
        fprintf(stderr, "psd_run: %s has no logs\n", out);
        *code_p = WATCH_CODE_CANNOT_START;
        return false;
    }
    return true;
}

/* --------------------------------------------------------------------------------- contents --- */

/* "30s", "10m", "2h", "1d", or seconds. Returns milliseconds; -1: not understood. */
static int64_t
parse_age(const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    const double unit = strcmp(end, "h") == 0                     ? 3600e3
                        : strcmp(end, "m") == 0                   ? 60e3
                        : strcmp(end, "d") == 0                   ? 86400e3
                        : end[0] == '\0' || strcmp(end, "s") == 0 ? 1e3
                                                                  : -1;

    return end == text || unit < 0 || value < 0 ? -1 : (int64_t)(value * unit);
}

/* The file of times that belongs to a log: worker0.1.log has .times/worker0.1. */
static FILE *
open_times(const struct place *place)
{
    const size_t bytes = strlen(place->file) - 4;
    const bool first = memchr(place->file, '.', bytes) == NULL;
    char path[PATH_MAX_BYTES];

    snprintf(path, sizeof(path), "%.3700s/.times/%.*s%s", place->directory, (int)bytes, place->file,
             first ? ".0" : "");
    return fopen(path, "re");
}

/* Where what was printed after a moment begins. */
static long
offset_since(const struct place *place, int64_t since_ms)
{
    FILE *file = open_times(place);
    long long ms;
    long long offset;
    long long found = -1;

    while (file != NULL && fscanf(file, "%lld %lld", &ms, &offset) == 2) {
        if (ms >= since_ms) {
            found = offset;
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return (long)found;
}

/* Copies lines; with times, each has the time at which it was printed in front. */
struct copier {
    bool times;
    bool at_start;
    FILE *stamps;
    long long next_ms;
    long long next_offset; /* from here on, next_ms is the time */
    long long now_ms;
    long long offset;
};

static void
advance(struct copier *copier)
{
    while (copier->stamps != NULL && copier->offset >= copier->next_offset) {
        copier->now_ms = copier->next_ms;
        if (fscanf(copier->stamps, "%lld %lld", &copier->next_ms, &copier->next_offset) != 2) {
            clearerr(copier->stamps);
            copier->next_offset = copier->offset + 1; /* look again later */
            copier->next_ms = copier->now_ms;
            return;
        }
    }
}

static void
copy(struct copier *copier, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (copier->times && copier->at_start) {
            time_t seconds;
            struct tm parts;
            char stamp[32];

            advance(copier);
            seconds = (time_t)(copier->now_ms / 1000);
            localtime_r(&seconds, &parts);
            strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &parts);
            printf("%s.%03lld ", stamp, copier->now_ms % 1000);
        }
        putchar(bytes[i]);
        copier->at_start = bytes[i] == '\n';
        copier->offset++;
    }
    fflush(stdout);
}

/* A job is over when nobody answers for it. */
static bool
is_over(const struct place *place)
{
    char *answer = NULL;
    const bool gone =
        place->job[0] == '\0' || jobs_ask(place->job, "hello\n", &answer, NULL) == PSD_ERR_REFUSED;

    free(answer);
    return gone;
}

static int
print_log(const struct place *place, const struct verb_options *options, long offset)
{
    struct copier copier = {.times = options->times, .at_start = true, .offset = offset};
    const int fd = open(place->path, O_RDONLY | O_CLOEXEC);
    char bytes[65536];
    bool last = false;

    if (fd < 0 || lseek(fd, offset, SEEK_SET) < 0) {
        fprintf(stderr, "psd_run: cannot read %s\n", place->path);
        return WATCH_CODE_CANNOT_START;
    }
    copier.stamps = options->times ? open_times(place) : NULL;
    for (;;) {
        const ssize_t count = read(fd, bytes, sizeof(bytes));

        if (count > 0) {
            copy(&copier, bytes, (size_t)count);
        } else if (count < 0 || !options->follow || last) {
            break;
        } else {
            last = is_over(place); /* one more look, for what came before it ended */
            poll(NULL, 0, last ? 0 : FOLLOW_MS);
        }
    }
    if (copier.stamps != NULL) {
        fclose(copier.stamps);
    }
    close(fd);
    return 0;
}

int
verb_logs(int argc, char *const *argv)
{
    struct verb_options options = {0};
    struct place place = {0};
    const char *first = NULL;
    const char *second = NULL;
    const char *wanted;
    long offset = 0;
    int code = WATCH_CODE_CANNOT_START;

    if (!verb_parse(argc, argv, VERB_LOGS, &options, &first, &second, &code)) {
        return code;
    }
    if (first == NULL || (options.since != NULL && parse_age(options.since) < 0)) {
        fprintf(stderr, "psd_run: logs: %s\nsee psd_run logs -h\n",
                first == NULL ? "of which process? worker0, server0, master"
                              : "--since wants a time like 30s, 10m or 2h");
        return WATCH_CODE_USAGE;
    }
    wanted = second != NULL ? second : first;
    if (!choose(second != NULL ? first : NULL, options.out, wanted, &place, &code)) {
        return code;
    }
    code = find_log(&place, wanted);
    if (code != 0) {
        return code;
    }
    if (place.unnamed) {
        name_job(&place);
    }
    if (options.since != NULL) {
        offset = offset_since(&place, (int64_t)wall_clock_ms() - parse_age(options.since));
        if (offset < 0) {
            struct stat info = {0};

            stat(place.path, &info); /* nothing is that young: begin at the end */
            offset = (long)info.st_size;
        }
    }
    return print_log(&place, &options, offset);
}
