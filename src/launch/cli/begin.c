/*
 * begin.c - a job from its command line to its exit code.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/begin.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/wait.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "config/environment.h"
#include "launch/cli/again.h"
#include "launch/cli/begin_page.h"
#include "launch/cli/dry_run.h"
#include "launch/cli/print_cluster.h"
#include "launch/cli/refuse.h"
#include "launch/cli/verbs.h"
#include "launch/link/jobs.h"
#include "launch/link/secret.h"
#include "launch/multi/multi_start.h"
#include "launch/prepare/prepare.h"
#include "launch/prepare/what_runs.h"
#include "launch/rules/watch_restart.h"
#include "launch/run/end_text.h"
#include "launch/run/run.h"
#include "launch/tell/runlog.h"
#include "launch/text/mask.h"

enum {
    COMMAND_BYTES = 4096,
    SIGNALLED = 128,
    PORT_TRIES_MAX = 3, /* of a job whose workers find their ports taken */
    NEAR = 2,           /* letters that make a name another one */
};

/* -------------------------------------------------------------------------------- variables --- */

/* Variables that are not settings. */
static const char *const other_variables[] = {
    "PSD_MASTER_ADDRESS", "PSD_RANK",        "PSD_WORLD",       "PSD_WORLD_SIZE",
    "PSD_ROLE",           "PSD_JOB_ID",      "PSD_ADDR",        "PSD_RESTART_COUNT",
    "PSD_NUM_WORKERS",    "PSD_NUM_SERVERS", "PSD_LOCAL_RANK",  "PSD_LOCAL_SIZE",
    "PSD_NODE_RANK",      "PSD_NUM_NODES",   "PSD_SECRET_FILE", "PSD_SECRET_FD",
    "PSD_INSECURE",       "PSD_FORCE_TLS",   "PSD_PORT",        "PSD_PEERS",
    "PSD_HOSTS",          "PSD_LOG_DIR",     "PSD_AUTO",        "PSD_NOTE_FD",
    "PSD_ADVERTISE",      "PSD_SCRATCH",     "PSD_MASTER_FILE",
};

/* kept: for the name, which outlives this. */
static void
try_knob(struct psi_nearest *nearest, const char *name, char kept[PSI_VARIABLE_BYTES])
{
    char variable[PSI_VARIABLE_BYTES];
    const char *before = nearest->name;

    psi_variable_name(name, variable);
    psi_nearest_try(nearest, variable);
    if (nearest->name != before) {
        memcpy(kept, variable, sizeof(variable));
        nearest->name = kept;
    }
}

/* A variable that is nearly one of ours was meant to be it. */
static void
warn_of_near_misses(void)
{
    for (char *const *at = environ; *at != NULL; at++) {
        char name[64] = "";
        char kept[PSI_VARIABLE_BYTES] = "";
        struct psi_nearest nearest = {.word = name};

        if (strncmp(*at, "PSD_", 4) != 0) {
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*at, "="), *at);
        for (size_t i = 0; i < sizeof(other_variables) / sizeof(other_variables[0]); i++) {
            psi_nearest_try(&nearest, other_variables[i]);
        }
        for (size_t i = 0; i < PSI_KNOBS; i++) {
            try_knob(&nearest, psi_knobs()[i].name, kept);
        }
        if (nearest.name != NULL && nearest.distance > 0 && nearest.distance <= NEAR) {
            fprintf(stderr,
                    "psd_run: the variable %s is set, but psd_run knows none of that name; did you "
                    "mean %s?\n",
                    name, nearest.name);
        }
    }
}

static void
warn_of_overwritten(const struct plan *plan)
{
    char names[512];

    plan_overwritten(plan, names, sizeof(names));
    if (names[0] != '\0' && psi_environment("PSD_PEERS") == NULL) { /* else a job around this did */
        fprintf(stderr,
                "psd_run: you have set %s, but workers get the job's own value; to give them "
                "yours, add --keep_env\n",
                names);
    }
}

/* ------------------------------------------------------------------------------------- name --- */

static void
mask_list(char *const *list, char text_p[COMMAND_BYTES])
{
    struct words words = {0};

    for (; *list != NULL; list++) {
        words_add(&words, *list);
    }
    mask_words(&words, text_p, COMMAND_BYTES);
    words_fini(&words);
}

/* What the workers run, as it was given. */
static void
describe_command(const struct launch_options *options, const struct plan *plan,
                 char text_p[COMMAND_BYTES])
{
    struct words words = {0};

    if (options->argv != NULL) {
        mask_list(options->argv, text_p);
        return;
    }
    if (options->command == NULL || words_split(options->command, &words, NULL) != PSD_OK) {
        words_add_all(&words, &plan->commands[0].environment);
        words_add_all(&words, &plan->commands[0].argv);
    }
    mask_words(&words, text_p, COMMAND_BYTES);
    words_fini(&words);
}

/*
 * Makes room for a job of that name: one that runs something else is ended. Returns false when
 * there is nothing to start: *code_p.
 */
static bool
replace(const char *name, const char *what, int *code_p)
{
    char here[4096] = "?";
    char differs[96];
    char by[380];
    char *theirs = NULL;

    if (jobs_ask(name, "what\n", &theirs, NULL) != PSD_OK) {
        return true; /* there is none */
    }
    what_runs_differ(what, theirs, differs, sizeof(differs));
    free(theirs);
    if (differs[0] == '\0') {
        printf("job %s runs already, with this very command; psd_run logs -f %s worker0 follows "
               "it\n",
               name, name);
        *code_p = 0;
        return false;
    }
    fprintf(stderr, "psd_run: job %s runs and is replaced; what differs: %s\n", name, differs);
    if (getcwd(here, sizeof(here)) == NULL) {
        here[0] = '\0';
    }
    snprintf(by, sizeof(by), "psd_run run (pid %d in %.200s), which replaces it; what differs: %s",
             (int)getpid(), here, differs);
    if (!verb_end_job(name, false, by)) {
        fprintf(stderr, "psd_run: job %s does not end; to kill it, run: psd_run stop --now %s\n",
                name, name);
        *code_p = WATCH_CODE_CANNOT_START;
        return false;
    }
    return true;
}

/* Takes a name among the jobs of this user. Returns false when there is nothing to start: *code_p.
 */
static bool
take_name(const struct launch_options *options, const struct plan *plan, const char *what,
          struct jobs_entry *entry, int *code_p)
{
    char wanted[JOBS_NAME_BYTES];
    struct psd_error err = {0};
    const bool exact = options->name != NULL || options->replace;

    if (options->name != NULL) {
        if (strlen(options->name) >= 48 || strpbrk(options->name, "/ .\t\n") != NULL ||
            options->name[0] == '\0' || options->name[0] == '-') {
            psi_fail(&err, PSD_ERR_INVALID,
                     "--name %.64s: use letters, digits, '-' and '_', at most 47 of them",
                     options->name);
            *code_p = refuse(&err);
            return false;
        }
        snprintf(wanted, sizeof(wanted), "%s", options->name);
    } else {
        jobs_name_of(plan->commands[0].argv.list, wanted);
    }
    if (options->replace && !replace(wanted, what, code_p)) {
        return false;
    }
    if (jobs_enter(wanted, exact, entry, &err) != PSD_OK) {
        if (err.status == PSD_ERR_STATE) {
            *code_p = refuse(&err);
            return false;
        }
        fprintf(stderr, "psd_run: %s; the job cannot be shown or stopped by name\n", err.text);
        snprintf(entry->name, sizeof(entry->name), "%s", wanted);
    }
    return true;
}

/* ---------------------------------------------------------------------------------- restarts ---
 */

/* Options that mean nothing without another, or against it. */
static psd_status
check_options(const struct launch_options *options, struct psd_error *err)
{
    if (options->emit == NULL && (options->setup != NULL || options->nodes > 0)) {
        return psi_fail(err, PSD_ERR_INVALID, "--%s works only with --emit sbatch",
                        options->setup != NULL ? "setup" : "nodes");
    }
    if (options->emit == NULL && (options->cpus_per_worker > 0 || options->memory_per_worker > 0)) {
        return psi_fail(err, PSD_ERR_INVALID, "--%s_per_worker works only with --emit",
                        options->cpus_per_worker > 0 ? "cpus" : "memory");
    }
    if (options->show != NULL && strcmp(options->show, "all") != 0 &&
        strcmp(options->show, "none") != 0 &&
        strspn(options->show, "0123456789,-") != strlen(options->show)) {
        return psi_fail(err, PSD_ERR_INVALID, "--show=%.64s: must be all, none or ranks like 0,2-5",
                        options->show);
    }
    if (options->detach && (options->check || options->dry_run)) {
        return psi_fail(err, PSD_ERR_INVALID, "--detach and --%s contradict each other",
                        options->check ? "check" : "dry_run");
    }
    if (options->check && options->dry_run) {
        return psi_fail(err, PSD_ERR_INVALID, "--check and --dry_run contradict each other");
    }
    return PSD_OK;
}

static bool
is_group(const struct launch_options *options)
{
    return options->restart_scope == LAUNCH_SCOPE_GROUP &&
           options->restart != LAUNCH_RESTART_NOT_SAID && options->restart != LAUNCH_RESTART_NEVER;
}

/* Whether a job that ended so is begun anew. */
static bool
wants_restart(const struct launch_options *options, int code, uint32_t attempt)
{
    if (!is_group(options) || attempt >= options->max_restarts || code == 0 ||
        code == WATCH_CODE_USAGE || code == WATCH_CODE_CANNOT_START || code == SIGNALLED + SIGINT ||
        code == SIGNALLED + SIGTERM || code == SIGNALLED + SIGHUP) {
        return false;
    }
    return options->restart != LAUNCH_RESTART_EXIT_CODE || code >= SIGNALLED;
}

static void
begin_anew(struct multi_start *multi, const char *why)
{
    if (multi != NULL) {
        multi_start_again(multi, why);
    }
}

/* What begins anew goes on from its checkpoints, if it has any. */
static bool
go_on(const struct launch_options *options, struct multi_start *multi, struct plan *plan)
{
    if (multi != NULL) {
        multi->goes_on = true;
    }
    return again_from_checkpoint(
        options, multi != NULL && multi->prepared_anew ? &multi->prepared.plan : plan);
}

/* together: NULL, or the others with which this psd_run makes up the job. */
static int
run_attempts(const struct launch_options *options, struct multi_start *multi, struct plan *plan,
             struct run_args *args)
{
    unsigned port_tries = 1;
    bool port_taken = false;
    uint32_t hasty = 0;
    char when[32];
    int code;

    args->port_taken_p = &port_taken;
    for (;;) {
        const uint64_t begin_ms = psi_monotonic_ms() + args->delay_ms;

        code = multi != NULL ? multi_start_attempt(multi, args) : run_job(args);
        if (multi != NULL && multi_start_was_left(multi, code)) {
            args->attempt++;
            fprintf(stderr, "psd_run: the job starts again when all are back\n");
            if (!go_on(options, multi, plan)) {
                multi_start_over(multi, WATCH_CODE_CANNOT_START);
                return WATCH_CODE_CANNOT_START;
            }
            begin_anew(multi, "somebody was lost without whom it cannot go on");
            continue;
        }
        if (port_taken && port_tries < PORT_TRIES_MAX) {
            port_tries++;
            args->attempt++;
            fprintf(stderr, "psd_run: another program took the port of a worker: the job starts "
                            "again with other ports\n");
            begin_anew(multi, "somebody took the port of a worker");
            continue;
        }
        if (!wants_restart(options, code, args->attempt) || !go_on(options, multi, plan)) {
            if (multi != NULL) {
                multi_start_over(multi, code);
            }
            return code;
        }
        args->attempt++;
        args->delay_ms = watch_restart_delay_ms(options->restart_delay_ms,
                                                psi_monotonic_ms() - begin_ms, &hasty);
        end_text_delay(args->delay_ms, when, sizeof(when));
        begin_anew(multi, "it failed");
        fprintf(stderr, "psd_run: the whole job starts again: restart %u of %u, %s\n",
                args->attempt, options->max_restarts, when);
    }
}

/* -------------------------------------------------------------------------------- background ---
 */

/* What the one behind said before it gave up. */
static void
repeat_console(const char *directory)
{
    char line[1024];
    char path[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof(path), "%.*s/console.log", PATH_MAX - 16, directory);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        fputs(line, stderr);
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* In front: waits for the word of the one behind, "started DIRECTORY". Returns the exit code. */
static int
wait_for_word(int fd, pid_t pid, const char *name)
{
    static const char started[] = "started ";
    char line[PATH_MAX + sizeof(started)] = "";
    const char *directory;
    size_t used = 0;
    ssize_t count;
    int status = 0;

    while (used < sizeof(line) - 1 && memchr(line, '\0', used) == NULL &&
           (count = read(fd, line + used, sizeof(line) - 1 - used)) > 0) {
        used += (size_t)count;
    }
    directory = strchr(line, ' ') != NULL ? strchr(line, ' ') + 1 : "";
    if (strncmp(line, started, sizeof(started) - 1) == 0) {
        printf("job %s runs in the background (pid %d); logs in %s\n"
               "    psd_run show %s\n    psd_run page %s\n    psd_run logs -f %s worker0\n"
               "    psd_run stop %s\n",
               name, (int)pid, directory, name, name, name, name);
        return 0;
    }
    waitpid(pid, &status, 0);
    if (directory[0] != '\0') {
        repeat_console(directory);
        fprintf(stderr, "psd_run: the job did not start\n");
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : SIGNALLED + WTERMSIG(status);
}

/* Goes into the background. Returns true behind; in front: *code_p. */
static bool
step_back(const char *name, int *fd_p, int *code_p)
{
    int pipes[2];
    pid_t pid;
    int nothing;

    fflush(stdout);
    if (pipe2(pipes, O_CLOEXEC) != 0 || (pid = fork()) < 0) {
        fprintf(stderr, "psd_run: --detach: %s\n", strerror(errno));
        *code_p = WATCH_CODE_CANNOT_START;
        return false;
    }
    if (pid > 0) {
        close(pipes[1]);
        *code_p = wait_for_word(pipes[0], pid, name);
        return false;
    }
    close(pipes[0]);
    setsid();
    signal(SIGHUP, SIG_IGN);
    nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    *fd_p = pipes[1];
    return true;
}

/* ------------------------------------------------------------------------------------- begin ---
 */

static void
fill_args(const struct launch_options *options, const struct prepared *prepared,
          struct run_args *args)
{
    args->environment = environ;
    args->plan = &prepared->plan;
    args->layout = &prepared->layout;
    args->watch = prepared->watch;
    args->begins_anew = options->restart_scope == LAUNCH_SCOPE_GROUP;
    args->shell = prepare_shell_rules(prepared);
    args->requeues = prepared->requeues;
    args->interface = options->interface;
    args->out = options->out;
    args->check = options->check;
    args->result_regex = options->result_regex;
    args->tensorboard = options->tensorboard;
    args->unwatched = options->unwatched;
    args->show = options->show;
    args->logs_on_nodes =
        options->log_mode == LAUNCH_LOGS_NODES || options->log_mode == LAUNCH_LOGS_BOTH;
    args->logs_here = options->log_mode != LAUNCH_LOGS_NODES;
    args->sync = options->sync;
    args->tf_config_dir = options->tf_config_dir;
}

/* The job has its name: runs it, perhaps in the background. */
static int
run_named(const struct launch_options *options, struct multi_start *multi, struct plan *plan,
          struct run_args *args, struct jobs_entry *entry)
{
    struct psd_error err = {0};
    char *directory = NULL;
    struct page_args page;
    struct shown shown = {0};
    uint64_t saved = 0;
    bool has_page;
    int code = 0;

    if (begin_page(options, &page, &has_page, &err) != PSD_OK) {
        jobs_leave(entry);
        return refuse(&err);
    }
    args->page = has_page ? &page : NULL;
    args->shown = &shown;
    args->job = entry->name;
    args->listener = entry->listener;
    args->entry_path = entry->listener >= 0 ? entry->path : NULL;
    args->directory_p = &directory;
    if (options->detach && !step_back(entry->name, &args->detach_fd, &code)) {
        entry->listener = -1; /* the one behind has it */
        return code;
    }
    args->saved_p = &saved;
    code = run_attempts(options, multi, plan, args);
    shown_end(&shown);
    jobs_leave(entry);
    again_ask(code, saved);
    free(directory);
    return code;
}

/* A mistake on the command line is everybody's: those that join need not wait for rank 0 in vain.
 */
static psd_status
check_joining(const struct launch_options *options, const struct prepare_tasks *tasks,
              struct psd_error *err)
{
    struct prepared prepared;
    const psd_status status = prepare_job(options, environ, tasks, &prepared, err);

    if (status == PSD_OK) {
        prepare_fini(&prepared);
    }
    return status;
}

static int
begin(const struct launch_options *options, char *const *argv, struct multi_start *multi)
{
    struct psd_error err = {0};
    struct prepared prepared;
    struct jobs_entry entry = {.listener = -1};
    struct run_args args = {.runlog = "./poseidon_run.log", .listener = -1, .detach_fd = -1};
    char arguments[COMMAND_BYTES];
    char command[COMMAND_BYTES];
    struct prepare_tasks tasks;
    char *what;
    int code = 0;

    warn_of_near_misses();
    if (check_options(options, &err) != PSD_OK) {
        return refuse(&err);
    }
    if (multi != NULL) {
        tasks = (struct prepare_tasks){
            .list = multi->tasks, .count = multi->task_count, .may_return = multi->ops->returns};
    }
    if (multi != NULL && multi->rank != 0 && check_joining(options, &tasks, &err) != PSD_OK) {
        return refuse(&err);
    }
    args.secret_fd = multi != NULL ? multi_start_secret(multi, &err)
                                   : launch_secret_offer(options->secret_file, &err);
    args.secret_file = options->secret_file;
    args.environment = environ;
    if (args.secret_fd < 0) {
        return refuse(&err);
    }
    if (options->print_cluster) {
        code = print_cluster(options, &args, &err);
        return err.status == PSD_OK ? code : refuse(&err);
    }
    if (multi != NULL && multi->rank != 0) {
        return multi_start_join(multi, args.secret_fd);
    }
    if (prepare_job(options, environ, multi != NULL ? &tasks : NULL, &prepared, &err) != PSD_OK) {
        return refuse(&err);
    }
    if ((again_was_requeued() || (multi != NULL && multi->requeues > 0)) &&
        options->resume == NULL && !go_on(options, multi, &prepared.plan)) {
        prepare_fini(&prepared);
        return WATCH_CODE_CANNOT_START;
    }
    warn_of_overwritten(&prepared.plan);
    if (prepared.note[0] != '\0') {
        fprintf(stderr, "psd_run: %s\n", prepared.note);
    }
    fill_args(options, &prepared, &args);
    what = what_runs(options, &prepared);
    describe_command(options, &prepared.plan, command);
    mask_list(argv + 1, arguments);
    args.command = command;
    args.arguments = arguments;
    if (options->dry_run) {
        code = dry_run(&prepared, options->interface, &err) == PSD_OK ? 0 : refuse(&err);
    } else if (options->check) {
        args.job = "check";
        code = run_job(&args);
    } else if (take_name(options, &prepared.plan, what != NULL ? what : "", &entry, &code)) {
        args.what = what;
        code = run_named(options, multi, &prepared.plan, &args, &entry);
    }
    free(what);
    prepare_fini(&prepared);
    return code;
}

int
begin_job(const struct launch_options *options, char *const *argv)
{
    struct psd_error err = {0};
    struct multi_start multi;
    int code;

    if (!multi_start_wanted(options)) {
        return begin(options, argv, NULL);
    }
    if (multi_start_open(&multi, options, &err) != PSD_OK) {
        return refuse(&err);
    }
    code = begin(multi.options, argv, &multi);
    multi_start_close(&multi);
    return code;
}
