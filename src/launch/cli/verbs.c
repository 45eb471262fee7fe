/*
 * verbs.c - show, page, stop and list. logs.c has logs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/verbs.h"

#include <jansson.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "config/options.h"
#include "launch/cli/page_by_hand.h"
#include "launch/cli/redundancy_table.h"
#include "launch/cli/show.h"
#include "launch/cli/table.h"
#include "launch/cli/verb_args.h"
#include "launch/link/jobs.h"
#include "launch/rules/watch.h"

enum { STOP_MS_MAX = 20000, STOP_POLL_MS = 50, COMMAND_SHOWN = 30 };

/* ---------------------------------------------------------------------------------- tables --- */

static const char *
text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

static long long
number_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

/* "2 minutes ago" */
static void
say_age(const char *moment, char *text_p, size_t size)
{
    struct tm parts = {.tm_isdst = -1};
    long seconds;

    text_p[0] = '\0';
    if (strptime(moment, "%Y-%m-%dT%H:%M:%S", &parts) == NULL) {
        return;
    }
    seconds = (long)(time(NULL) - mktime(&parts));
    if (seconds < 2) {
        snprintf(text_p, size, "now");
    } else if (seconds < 120) {
        snprintf(text_p, size, "%ld seconds ago", seconds);
    } else if (seconds < 7200) {
        snprintf(text_p, size, "%ld minutes ago", seconds / 60);
    } else if (seconds < 172800) {
        snprintf(text_p, size, "%ld hours ago", seconds / 3600);
    } else {
        snprintf(text_p, size, "%ld days ago", seconds / 86400);
    }
}

static void
cut_command(const char *command, bool whole, char *text_p, size_t size)
{
    if (whole || strlen(command) <= COMMAND_SHOWN) {
        snprintf(text_p, size, "%s", command);
    } else {
        snprintf(text_p, size, "%.*s...", COMMAND_SHOWN, command);
    }
}

/* whole: everything, however wide the window is. */
static void
print_table(const struct table *table, const char *const *spare, bool whole)
{
    if (whole) {
        table_print(table, stdout);
    } else {
        table_print_within(table, stdout, spare);
    }
}

static void
add_machines(struct table *table, const json_t *job)
{
    static const char *const heads[] = {"MACHINE", "ROLE", "CORES", "ADDRESS", "STATUS"};
    const json_t *machine;
    size_t i;

    table_begin(table, heads, 5);
    json_array_foreach(json_object_get(job, "machines"), i, machine)
    {
        char role[64];

        const long long workers = number_of(machine, "workers");
        const long long servers = number_of(machine, "servers");

        snprintf(role, sizeof(role), "%s%lld worker%s, %lld server%s",
                 json_is_true(json_object_get(machine, "master")) ? "master, " : "", workers,
                 workers == 1 ? "" : "s", servers, servers == 1 ? "" : "s");
        table_cell(table, "%s", text_of(machine, "name"));
        table_cell(table, "%s", role);
        table_cell(table, "%lld", number_of(machine, "cores"));
        table_cell(table, "%s", text_of(machine, "address"));
        table_cell(table, "%s", text_of(machine, "state"));
    }
}

/* done(0), failed(3), failed(signal 9), left(0), running, "running, restarted 2x", scheduled */
static void
say_state(const json_t *process, char *text_p, size_t size)
{
    const json_t *code = json_object_get(process, "code");
    const json_t *number = json_object_get(process, "signal");
    const char *state = text_of(process, "state");
    const long long restarts = number_of(process, "restarts");

    if (strcmp(state, "running") == 0 && restarts > 0) {
        snprintf(text_p, size, "%s, restarted %lldx", state, restarts);
    } else if (json_is_integer(number)) {
        snprintf(text_p, size, "%s(signal %lld)", state, number_of(process, "signal"));
    } else if (json_is_integer(code)) {
        snprintf(text_p, size, "%s(%lld)", state, number_of(process, "code"));
    } else {
        snprintf(text_p, size, "%s", state);
    }
}

static void
add_process(struct table *table, const json_t *process, bool whole)
{
    const bool worker = strcmp(text_of(process, "role"), "worker") == 0;
    char command[4096];
    char state[64];
    char age[48];

    cut_command(text_of(process, "command"), whole, command, sizeof(command));
    say_state(process, state, sizeof(state));
    say_age(text_of(process, "started"), age, sizeof(age));
    table_cell(table, "%s", text_of(process, "name"));
    table_cell(table, "%s", text_of(process, "machine"));
    table_cell(table, "%s", command);
    table_cell(table, "%s", text_of(process, "hostname"));
    if (number_of(process, "pid") > 0 && strcmp(text_of(process, "state"), "running") == 0) {
        table_cell(table, "%lld", number_of(process, "pid"));
    } else {
        table_cell(table, "-");
    }
    table_cell(table, "%s", state);
    table_cell(table, "%s", age);
    if (worker && json_is_integer(json_object_get(process, "step"))) {
        table_cell(table, "%lld", number_of(process, "step"));
        table_cell(table, "%.1f", json_real_value(json_object_get(process, "steps_per_s")));
    } else {
        table_cell(table, "-");
        table_cell(table, "-");
    }
    if (worker && json_object_get(process, "value_name") != NULL) {
        table_cell(table, "%s=%.6g", text_of(process, "value_name"),
                   json_real_value(json_object_get(process, "value")));
    } else {
        table_cell(table, "-");
    }
    table_cell(table, "%s",
               text_of(process, "address")[0] != '\0' ? text_of(process, "address") : "-");
}

/* Of sparse tables that memory does not hold. */
static void
print_rows(const json_t *processes)
{
    const json_t *process;
    size_t i;

    json_array_foreach(processes, i, process)
    {
        if (json_object_get(process, "rows_on_disk") != NULL) {
            printf("\n%s: %lld rows in memory, %lld on the disk (%.1f MiB)\n",
                   text_of(process, "name"), number_of(process, "rows_in_memory"),
                   number_of(process, "rows_on_disk"),
                   (double)number_of(process, "bytes_on_disk") / (1 << 20));
        }
    }
}

static void
print_job(const json_t *job, bool whole)
{
    static const char *const heads[] = {"PROCESS", "MACHINE", "COMMAND", "HOSTNAME",
                                        "PID",     "STATUS",  "CREATED", "STEP",
                                        "STEPS/S", "VALUE",   "ADDRESS"};
    /* Whoever looks at a narrow window wants to know who runs, where, and how far it is. */
    static const char *const spare[] = {"HOSTNAME", "COMMAND", "ADDRESS", "CREATED", "VALUE", NULL};
    const char *logs = text_of(job, "logs");
    struct table table = {0};
    const json_t *process;
    size_t i;

    logs += strncmp(logs, "./", 2) == 0 ? 2 : 0;
    printf("job %s, %s; logs in %s%s%s\n\n", text_of(job, "name"), text_of(job, "state"),
           logs[0] == '/' ? "" : text_of(job, "directory"), logs[0] == '/' ? "" : "/", logs);
    add_machines(&table, job);
    table_print(&table, stdout);
    printf("\n");
    table_begin(&table, heads, sizeof(heads) / sizeof(heads[0]));
    json_array_foreach(json_object_get(job, "processes"), i, process)
    {
        add_process(&table, process, whole);
    }
    print_table(&table, spare, whole);
    table_fini(&table);
    if (number_of(job, "readers") > 0) {
        printf("\n%lld reader%s\n", number_of(job, "readers"),
               number_of(job, "readers") == 1 ? "" : "s");
    }
    redundancy_table_print(job);
    print_rows(json_object_get(job, "processes"));
}

/* ------------------------------------------------------------------------------------ show --- */

static int
show_once(const char *name, const struct verb_options *options)
{
    char *answer = NULL;
    json_t *job;

    answer = verb_ask(name, options->json ? "feed\n" : "show\n");
    if (answer == NULL) {
        return WATCH_CODE_CANNOT_START;
    }
    job = json_loads(answer, 0, NULL);
    if (job == NULL) {
        fprintf(stderr,
                "psd_run: the answer of job %s ends after %zu bytes, and is no JSON: we read too "
                "slowly, or its psd_run is of another version; ask again\n",
                name, strlen(answer));
    } else if (options->json) {
        printf("%s\n", answer);
    } else {
        print_job(job, options->no_trunc);
    }
    free(answer);
    json_decref(job);
    return job != NULL ? 0 : WATCH_CODE_CANNOT_START;
}

static void
use_secret(const struct verb_options *options)
{
    if (options->secret_file != NULL) {
        setenv("PSD_SECRET_FILE", options->secret_file, 1);
    }
}

int
verb_show(int argc, char *const *argv)
{
    struct verb_options options = {0};
    char name[JOBS_NAME_BYTES];
    int code;
    const char *rest = NULL;

    if (!verb_parse(argc, argv, VERB_SHOW, &options, &rest, NULL, &code)) {
        return code;
    }
    if (options.master != NULL) {
        use_secret(&options);
        return show_job(options.master, options.json, options.watch);
    }
    if (!verb_choose_job(rest, VERB_SHOW, name, &code)) {
        return code;
    }
    code = show_once(name, &options);
    while (options.watch && code == 0) {
        poll(NULL, 0, SHOW_WATCH_MS);
        show_clear();
        code = show_once(name, &options);
        fflush(stdout);
    }
    return options.watch && code == WATCH_CODE_CANNOT_START ? 0 : code; /* it ended meanwhile */
}

/* ------------------------------------------------------------------------------------ page --- */

int
verb_page(int argc, char *const *argv)
{
    struct verb_options options = {0};
    char name[JOBS_NAME_BYTES];
    const char *rest = NULL;
    char *answer = NULL;
    int code;

    if (!verb_parse(argc, argv, VERB_PAGE, &options, &rest, NULL, &code)) {
        return code;
    }
    if (options.master != NULL) {
        use_secret(&options);
        return page_by_hand(options.master);
    }
    if (!verb_choose_job(rest, VERB_PAGE, name, &code)) {
        return code;
    }
    /* Elsewhere than on a terminal others may read it. */
    answer = verb_ask(name, isatty(STDOUT_FILENO) ? "page\n" : "page file\n");
    if (answer == NULL) {
        return WATCH_CODE_CANNOT_START;
    }
    code = strncmp(answer, "http", 4) == 0 || strncmp(answer, "watch ", 6) == 0
               ? 0
               : WATCH_CODE_CANNOT_START;
    fputs(code == 0 ? "" : "psd_run: ", stderr);
    fputs(answer, code == 0 ? stdout : stderr);
    free(answer);
    return code;
}

/* ------------------------------------------------------------------------------ stop, list --- */

bool
verb_end_job(const char *name, bool now, const char *by)
{
    struct psd_error err = {0};
    char *answer = NULL;
    char line[400];

    if (by != NULL) {
        snprintf(line, sizeof(line), "stop for %.380s\n", by);
    } else {
        snprintf(line, sizeof(line), now ? "stop now\n" : "stop\n");
    }
    if (jobs_ask(name, line, &answer, &err) == PSD_ERR_REFUSED) {
        return true; /* it is gone */
    }
    free(answer);
    for (int waited = 0; waited < STOP_MS_MAX; waited += STOP_POLL_MS) {
        if (jobs_ask(name, "hello\n", &answer, &err) == PSD_ERR_REFUSED) {
            return true;
        }
        free(answer);
        answer = NULL;
        poll(NULL, 0, STOP_POLL_MS);
    }
    return false;
}

/* Nobody else is let through to a job, so the name is that of its owner: who, and by which process. */
static const char *
who_stops(char *text_p, size_t size)
{
    const struct passwd *user = getpwuid(geteuid());

    if (user != NULL) {
        snprintf(text_p, size, "psd_run stop of %.60s (pid %d)", user->pw_name, (int)getpid());
    } else {
        snprintf(text_p, size, "psd_run stop of user %u (pid %d)", geteuid(), (int)getpid());
    }
    return text_p;
}

int
verb_stop(int argc, char *const *argv)
{
    struct verb_options options = {0};
    char name[JOBS_NAME_BYTES];
    char by[128];
    const char *rest = NULL;
    int code;

    if (!verb_parse(argc, argv, VERB_STOP, &options, &rest, NULL, &code) ||
        !verb_choose_job(rest, VERB_STOP, name, &code)) {
        return code;
    }
    if (!verb_end_job(name, options.now, options.now ? NULL : who_stops(by, sizeof(by)))) {
        fprintf(
            stderr,
            "psd_run: job %s has not ended within %d s; to kill it, run: psd_run stop --now %s\n",
            name, STOP_MS_MAX / 1000, name);
        return 1;
    }
    printf("job %s is stopped\n", name);
    return 0;
}

static void
add_job(struct table *table, json_t *all, const char *name, bool whole)
{
    char *answer = NULL;
    json_t *job;
    char command[4096];
    char age[48];

    if (jobs_ask(name, "show\n", &answer, NULL) != PSD_OK) {
        return; /* it ended while we looked */
    }
    job = json_loads(answer, 0, NULL);
    free(answer);
    if (job == NULL) {
        return;
    }
    cut_command(text_of(job, "command"), whole, command, sizeof(command));
    say_age(text_of(job, "began"), age, sizeof(age));
    table_cell(table, "%s", name);
    table_cell(table, "%lld", number_of(job, "pid"));
    table_cell(table, "%s", text_of(job, "state"));
    table_cell(table, "%zu", json_array_size(json_object_get(job, "machines")));
    table_cell(table, "%zu", json_array_size(json_object_get(job, "processes")));
    table_cell(table, "%s", age);
    table_cell(table, "%s", command);
    json_array_append_new(all, job);
}

int
verb_list(int argc, char *const *argv)
{
    static const char *const heads[] = {"JOB",       "PID",     "STATUS", "MACHINES",
                                        "PROCESSES", "CREATED", "COMMAND"};
    static const char *const spare[] = {"MACHINES", "PROCESSES", "CREATED", NULL};
    struct verb_options options = {0};
    struct psd_error err = {0};
    struct words names = {0};
    struct table table = {0};
    json_t *all = json_array();
    int code = 0;

    if (!verb_parse(argc, argv, VERB_LIST, &options, NULL, NULL, &code)) {
        json_decref(all);
        return code;
    }
    if (jobs_list(&names, &err) != PSD_OK) {
        fprintf(stderr, "psd_run: %s\n", err.text);
        code = WATCH_CODE_CANNOT_START;
    }
    table_begin(&table, heads, 7);
    for (size_t i = 0; i < names.count; i++) {
        add_job(&table, all, names.list[i], options.no_trunc);
    }
    if (code == 0 && options.json) {
        json_dumpf(all, stdout, JSON_INDENT(2));
        printf("\n");
    } else if (code == 0 && names.count == 0) {
        printf("no job of yours runs on this machine\n");
    } else if (code == 0) {
        print_table(&table, spare, options.no_trunc);
    }
    table_fini(&table);
    words_fini(&names);
    json_decref(all);
    return code;
}
