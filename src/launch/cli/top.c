/*
 * top.c - `psd_run top`: the processes of a job on one screen, again and again, sorted as one likes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/fail.h"
#include "launch/cli/show.h"
#include "launch/cli/table.h"
#include "launch/cli/verb_args.h"
#include "launch/cli/verbs.h"
#include "launch/link/jobs.h"
#include "launch/rules/watch.h"
#include "launch/system/terminal.h"

enum { REFRESH_MS = 1000, HEAD_LINES = 7, ROWS_WITHOUT_TERMINAL = 1000 };

/* A column, by the member of a process that it shows. */
static const struct column {
    const char *head;
    const char *key;
    enum { TEXT, WHOLE, SHORT, DECIMAL, BYTES } kind;
    char letter; /* that sorts by it; 0: none does */
} columns[] = {
    {"PROCESS", "name", TEXT, 'p'},
    {"HOST", "host", TEXT, 'h'},
    {"STATE", "state", TEXT, 0},
    {"STEP", "step", WHOLE, 's'},
    {"LAG", "lag", WHOLE, 'l'},
    {"STEPS/S", "rate", SHORT, 0},
    {"LOSS", "loss", DECIMAL, 'o'},
    {"CPU", "cpu", SHORT, 'c'},
    {"MEMORY", "memory_bytes", BYTES, 'm'},
    {"IN", "bytes_in", BYTES, 'i'},
    {"OUT", "bytes_out", BYTES, 'u'},
};

enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

struct top {
    size_t sorted_by; /* a column */
    bool down;        /* the largest first */
};

/* ---- the processes ------------------------------------------------------------------------- */

static const json_t *
value_of(const json_t *process, const struct column *column)
{
    if (strcmp(column->key, "loss") == 0) {
        return json_object_get(json_object_get(process, "scalars"), "loss");
    }
    return json_object_get(process, column->key);
}

/* Of the sort in progress: qsort() has no room for it. */
static const struct top *sorting;

static int
compare(const void *a, const void *b)
{
    const struct column *column = &columns[sorting->sorted_by];
    const json_t *one = value_of(*(const json_t *const *)a, column);
    const json_t *other = value_of(*(const json_t *const *)b, column);
    int order;

    if (column->kind == TEXT) {
        order = strcmp(json_is_string(one) ? json_string_value(one) : "",
                       json_is_string(other) ? json_string_value(other) : "");
    } else {
        const double x = json_is_number(one) ? json_number_value(one) : -1;
        const double y = json_is_number(other) ? json_number_value(other) : -1;

        order = (x > y) - (x < y);
    }
    return sorting->down ? -order : order;
}

static void
add_bytes(struct table *table, double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;

    while (bytes >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1000;
        unit++;
    }
    table_cell(table, unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

static void
add_number(struct table *table, const struct column *column, double value)
{
    if (column->kind == DECIMAL) {
        table_cell(table, "%.5g", value);
    } else {
        table_cell(table, "%.*f", column->kind == SHORT ? 2 : 0, value);
    }
}

static void
add_cell(struct table *table, const json_t *value, const struct column *column)
{
    if (value == NULL || json_is_null(value)) {
        table_cell(table, "-");
    } else if (column->kind == TEXT) {
        table_cell(table, "%.40s", json_string_value(value));
    } else if (column->kind == BYTES) {
        add_bytes(table, json_number_value(value));
    } else {
        add_number(table, column, json_number_value(value));
    }
}

static void
print_processes(const struct top *top, const json_t *processes, size_t rows)
{
    const size_t count = json_array_size(processes);
    const json_t **sorted = calloc(count + 1, sizeof(*sorted));
    const char *heads[COLUMNS];
    struct table table = {0};

    if (sorted == NULL) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        sorted[i] = json_array_get(processes, i);
    }
    sorting = top;
    qsort((void *)sorted, count, sizeof(*sorted), compare);
    for (size_t i = 0; i < COLUMNS; i++) {
        heads[i] = columns[i].head;
    }
    table_begin(&table, heads, COLUMNS);
    for (size_t i = 0; i < count && i < rows; i++) {
        for (size_t j = 0; j < COLUMNS; j++) {
            add_cell(&table, value_of(sorted[i], &columns[j]), &columns[j]);
        }
    }
    table_print(&table, stdout);
    table_fini(&table);
    free((void *)sorted);
    if (count > rows) {
        printf("and %zu more\n", count - rows);
    }
}

/* ---- the screen ---------------------------------------------------------------------------- */

static const char *
text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

static void
print_screen(const struct top *top, const json_t *feed, size_t rows, bool keys)
{
    const json_t *job = json_object_get(feed, "job");
    const json_t *cause = json_object_get(feed, "cause");

    printf("job %s, %s, %.0f s; step %lld, %.1f steps/s\n", text_of(job, "name"),
           text_of(job, "phase"), json_number_value(json_object_get(job, "elapsed_ms")) / 1000,
           (long long)json_integer_value(json_object_get(job, "step")),
           json_number_value(json_object_get(job, "rate")));
    printf("%s\n\n", json_is_object(cause) ? text_of(cause, "text") : text_of(feed, "sentence"));
    print_processes(top, json_object_get(feed, "processes"), rows);
    if (keys) {
        printf("\np process  h host  s step  l lag  o loss  c cpu  m memory  i in  u out\n"
               "sorted by %s%s; the same key again: the other way; q quits",
               columns[top->sorted_by].head, top->down ? ", largest first" : "");
    }
    fflush(stdout);
}

/* The feed of a job that runs; NULL: it does not any more, and err says why. */
static json_t *
ask(const char *name, struct psd_error *err)
{
    char *answer = NULL;
    json_t *job;
    json_t *feed;

    if (jobs_ask(name, "feed\n", &answer, err) != PSD_OK) {
        return NULL;
    }
    job = json_loads(answer, 0, NULL);
    feed = json_incref(json_object_get(job, "feed"));
    if (feed == NULL) {
        (void)psi_fail(
            err, PSD_ERR_IO,
            "the answer of job %s, of %zu bytes, has no feed: we read too slowly, or its "
            "psd_run is of another version; ask again",
            name, strlen(answer));
    }
    free(answer);
    json_decref(job);
    return feed;
}

/* False: no more. */
static bool
handle_key(struct top *top, char key)
{
    for (size_t i = 0; i < COLUMNS; i++) {
        if (columns[i].letter != 0 && columns[i].letter == key) {
            top->down = top->sorted_by == i ? !top->down : columns[i].kind != TEXT;
            top->sorted_by = i;
        }
    }
    return key != 'q' && key != 3 && key != 4; /* Ctrl-C, Ctrl-D */
}

static size_t
rows_of_terminal(void)
{
    const size_t rows = terminal_rows(STDOUT_FILENO);

    return rows > HEAD_LINES + 2 ? rows - HEAD_LINES : 20;
}

/* Until a key or the end of the job. */
static void
follow(const char *name, struct top *top)
{
    bool goes_on = true;

    while (goes_on) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        struct psd_error err;
        json_t *feed = ask(name, &err);
        char key;

        if (feed == NULL) {
            return;
        }
        show_clear();
        print_screen(top, feed, rows_of_terminal(), true);
        json_decref(feed);
        if (poll(&input, 1, REFRESH_MS) > 0) {
            goes_on = read(STDIN_FILENO, &key, 1) == 1 && handle_key(top, key);
        }
    }
}

static int
follow_on_terminal(const char *name, struct top *top)
{
    struct termios before;
    struct termios raw;

    if (tcgetattr(STDIN_FILENO, &before) != 0) {
        return WATCH_CODE_CANNOT_START;
    }
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    printf("\033[?7l"); /* what is too wide ends at the edge: one screen is one screen */
    follow(name, top);
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
    printf("\033[?7h\n");
    return 0;
}

int
verb_top(int argc, char *const *argv)
{
    struct verb_options options = {0};
    struct top top = {0};
    struct psd_error err = {0};
    char name[JOBS_NAME_BYTES];
    const char *rest = NULL;
    json_t *feed;
    int code;

    if (!verb_parse(argc, argv, VERB_TOP, &options, &rest, NULL, &code) ||
        !verb_choose_job(rest, VERB_TOP, name, &code)) {
        return code;
    }
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
        return follow_on_terminal(name, &top);
    }
    feed = ask(name, &err);
    if (!json_is_object(feed)) {
        fprintf(stderr, "psd_run: %s\n",
                feed == NULL ? err.text
                             : "nothing is told of this job: it was started with --unwatched");
        json_decref(feed);
        return WATCH_CODE_CANNOT_START;
    }
    print_screen(&top, feed, ROWS_WITHOUT_TERMINAL, false);
    json_decref(feed);
    return 0;
}
