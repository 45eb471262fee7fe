/*
 * setup.c - the machine of an agent.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/fail.h"
#include "launch/agent/hook.h"
#include "launch/agent/scratch.h"
#include "launch/system/close_fd.h"
#include "launch/system/make_path.h"
#include "launch/system/reach.h"
#include "launch/text/command.h"
#include "launch/text/memory.h"
#include "launch/text/variables.h"

enum { PATH_BYTES = 4096 };

static const struct setup nowhere = {
    .secret_fd = -1, .log_directory = -1, .listener = -1, .scratch = {.lock = -1}};

/* The orders that are followed, one key each. `value` stands behind the '='. */
struct work {
    struct setup *setup;
    struct words *answers;
    struct command command; /* being collected */
    long command_index;     /* -1: none */
    bool contained;         /* its program need not be here */
    bool elsewhere;         /* --sync could bring what is missing */
    const char *logs_token; /* NULL: none */
};

/* Ranks of a job step or of MPI are those of agents: a library in a worker would believe them. */
static bool
is_rank_of_another(const char *variable)
{
    static const char *const prefixes[] = {
        "PMI_",          "PMIX_",           "OMPI_",
        "SLURM_STEP_",   "SLURM_NTASKS",    "SLURM_TASKS_PER_NODE=",
        "SLURM_PROCID=", "SLURM_LOCALID=",  "SLURM_NODEID=",
        "SLURM_GTIDS=",  "SLURM_TASK_PID=", "SLURM_NPROCS="};

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void
set_workers_environment(struct setup *setup, char *const *environment)
{
    for (; *environment != NULL; environment++) {
        if (!is_rank_of_another(*environment)) {
            variables_set(&setup->worker_environment, *environment);
        }
    }
    variables_unset(&setup->worker_environment, "PSD_LOG_DIR"); /* of a job around this one */
    variables_unset(&setup->worker_environment, "PSD_NOTE_FD");
    variables_unset(&setup->worker_environment, "PSD_SCRATCH");
    variables_unset(&setup->worker_environment, "PSD_MASTER_FILE");
}

void
setup_init(struct setup *setup, char *const *environment)
{
    *setup = nowhere;
    variables_set_all(&setup->service_environment, environment);
    variables_unset(&setup->service_environment, "PSD_MASTER_FILE");
    set_workers_environment(setup, environment);
}

void
setup_fini(struct setup *setup)
{
    words_fini(&setup->service_environment);
    words_fini(&setup->worker_environment);
    free(setup->hook_directory);
    free(setup->master_file);
    ports_fini(&setup->ports);
    close_fd(&setup->listener);
    close_fd(&setup->log_directory);
    scratch_destroy(&setup->scratch);
    *setup = nowhere;
}

void
setup_take_secret(struct setup *setup, int secret_fd)
{
    struct words *both[] = {&setup->service_environment, &setup->worker_environment};

    setup->secret_fd = secret_fd;
    for (size_t i = 0; i < 2; i++) {
        variables_unset(both[i], "PSD_SECRET_FILE");
        variables_unset(both[i], "PSD_INSECURE");
        variables_set_number(both[i], "PSD_SECRET_FD", (uint32_t)secret_fd);
    }
}

char *
setup_find(const char *program, bool worker, char *const *environment)
{
    const char *search = variables_get(environment, "PATH");
    char beside[PATH_BYTES];
    const ssize_t bytes = readlink("/proc/self/exe", beside, sizeof(beside) - 64);
    char *found = NULL;
    char *slash;

    if (!worker && bytes > 0) { /* a build tree runs its own daemons */
        beside[bytes] = '\0';
        slash = strrchr(beside, '/');
        if (slash != NULL) {
            snprintf(slash + 1, 64, "%s", program);
            found = command_find(beside, "");
        }
    }
    return found != NULL ? found : command_find(program, search);
}

static void
problem(struct work *work, const char *what, const char *value, const char *why)
{
    words_add_format(work->answers, "problem=%s%s: %s", what, value, why);
}

/* ------------------------------------------------------------------------ one order each --- */

static void
take_workdir(struct work *work, const char *value)
{
    if (chdir(value) != 0) {
        problem(work, "workdir ", value, strerror(errno));
    }
}

static void
take_cwd(struct work *work, const char *value)
{
    char here[PATH_BYTES] = "?";

    if (chdir(value) != 0) {
        words_add_format(work->answers, "note=no directory %s: works in %s", value,
                         getcwd(here, sizeof(here)) != NULL ? here : "?");
    }
}

static void
take_elsewhere(struct work *work, const char *value)
{
    (void)value;
    work->elsewhere = true;
}

/* What `source VENV/bin/activate` would do. */
static void
take_virtualenv(struct work *work, const char *value)
{
    struct words *variables = &work->setup->worker_environment;
    const char *path = variables_get(variables->list, "PATH");
    char python[PATH_BYTES];
    char *joined;

    snprintf(python, sizeof(python), "%s/bin/python", value);
    if (access(python, X_OK) != 0) {
        problem(work, "virtualenv ", value, "no bin/python there");
        return;
    }
    joined = memory_format("%s/bin%s%s", value, path != NULL ? ":" : "", path != NULL ? path : "");
    variables_set_pair(variables, "PATH", joined);
    free(joined);
    variables_unset(variables, "PYTHONHOME");
    variables_set_pair(variables, "VIRTUAL_ENV", value);
}

static void
take_env(struct work *work, const char *value)
{
    variables_set(&work->setup->worker_environment, value);
}

static void
take_logs_token(struct work *work, const char *value)
{
    work->logs_token = value;
}

/* Its name can be guessed: somebody may have made it to read, or to change, what we log. Once it is
 * open, nobody can put another one in its place. Returns -1 if it is not ours. */
static int
open_own_directory(const char *path)
{
    const int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;

    if (fd >= 0 && (fstat(fd, &info) != 0 || info.st_uid != geteuid())) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Whoever sees the launcher's own directory leaves the writing to it, if the launcher writes. */
static void
take_logs(struct work *work, const char *value)
{
    char path[PATH_BYTES];

    if (work->logs_token != NULL) {
        snprintf(path, sizeof(path), "%s/%s", value, work->logs_token);
        if (access(path, F_OK) == 0) {
            return;
        }
    }
    snprintf(path, sizeof(path), "%s", value);
    if (make_path(path, NULL) != 0) {
        words_add_format(work->answers, "problem=log directory %s: %s; -o DIR chooses another",
                         path, strerror(errno));
        return;
    }
    work->setup->log_directory = open_own_directory(path);
    if (work->setup->log_directory < 0) {
        problem(work, "log directory ", path,
                "it is a link, or somebody else made it; -o DIR chooses another");
    }
}

static void
take_listen(struct work *work, const char *value)
{
    struct psd_error why = {0};
    uint16_t port;

    work->setup->listener = reach_listen(value, &port, &why);
    if (work->setup->listener < 0) {
        words_add_format(work->answers, "problem=%s", why.text);
    } else {
        words_add_format(work->answers, "port=%u", port);
    }
}

static void
take_deal_gpus(struct work *work, const char *value)
{
    (void)value;
    work->setup->deals_gpus = true;
}

/* Several workers that each use all cores are slower than one: they get their share. */
static void
take_threads(struct work *work, const char *value)
{
    struct words *variables = &work->setup->worker_environment;

    if (variables_get(variables->list, "OMP_NUM_THREADS") == NULL) {
        variables_set_pair(variables, "OMP_NUM_THREADS", value);
        words_add_format(work->answers,
                         "note=OMP_NUM_THREADS=%s for each worker: nobody has set it", value);
    }
}

static psd_status
make_scratch(struct setup *setup, struct psd_error *err)
{
    const char *base = variables_get(setup->worker_environment.list, "TMPDIR");

    if (setup->scratch.lock >= 0) {
        return PSD_OK;
    }
    return scratch_create(&setup->scratch, base != NULL && base[0] == '/' ? base : "/tmp", err);
}

/* Workers do without one: then every worker writes what the script writes, and says so. */
static void
give_scratch(struct setup *setup)
{
    if (make_scratch(setup, NULL) == PSD_OK) {
        variables_set_pair(&setup->worker_environment, "PSD_SCRATCH", setup->scratch.path);
    }
}

/* In a folder of its own, which is all that a server sees of the file system. Without one the job goes on,
 * as long as the master stays where it is. */
static void
take_master_file(struct work *work, const char *value)
{
    struct setup *setup = work->setup;
    struct psd_error why = {0};
    char folder[SCRATCH_PATH_BYTES + 16];

    (void)value;
    if (make_scratch(setup, &why) == PSD_OK) {
        snprintf(folder, sizeof(folder), "%s/master", setup->scratch.path);
        if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
            psi_fail_errno(&why, PSD_ERR_IO, "make %s", folder);
        }
    }
    if (why.status != PSD_OK) {
        words_add_format(work->answers,
                         "note=processes here will not learn it if the master moves: %s", why.text);
        return;
    }
    free(setup->master_file);
    setup->master_file = memory_format("%s/address", folder);
    variables_set_pair(&setup->service_environment, "PSD_MASTER_FILE", setup->master_file);
    variables_set_pair(&setup->worker_environment, "PSD_MASTER_FILE", setup->master_file);
}

/* Returns whether the hook is here. */
static bool
enter_hook(struct setup *setup)
{
    setup->hook_directory = hook_find();
    if (setup->hook_directory != NULL) {
        give_scratch(setup);
    }
    return setup->hook_directory != NULL;
}

static void
take_automatic(struct work *work, const char *value)
{
    (void)value;
    if (!enter_hook(work->setup)) {
        words_add(work->answers,
                  "note=Python workers are not distributed automatically: " HOOK_MISSING);
    }
}

static void
take_automatic_asked(struct work *work, const char *value)
{
    if (!enter_hook(work->setup)) {
        problem(work, "--auto ", value, HOOK_MISSING);
    }
}

static void
take_ports(struct work *work, const char *value)
{
    struct ports *ports = &work->setup->ports;
    struct psd_error why = {0};
    char address[64] = "";
    unsigned count = 0;
    unsigned wish = 0;

    if (sscanf(value, "%u %63s %u", &count, address, &wish) < 2 ||
        ports_reserve(ports, address, count, (uint16_t)wish, &why) != PSD_OK) {
        words_add_format(work->answers, "problem=%s", why.text);
        return;
    }
    for (size_t i = 0; i < ports->count; i++) {
        words_add_format(work->answers, "worker_port=%u", ports->list[i].number);
    }
}

static void
take_daemon(struct work *work, const char *value)
{
    char *path = setup_find(value, false, work->setup->service_environment.list);
    char directory[PATH_BYTES] = "";
    const ssize_t bytes = readlink("/proc/self/exe", directory, sizeof(directory) - 1);

    if (path != NULL) {
        free(path);
        return;
    }
    directory[bytes > 0 ? bytes : 0] = '\0';
    if (strrchr(directory, '/') != NULL) {
        *strrchr(directory, '/') = '\0';
    }
    words_add_format(work->answers,
                     "problem=%s: neither in %s nor in PATH; install Poseidon there whole", value,
                     directory);
}

/* A relative path says little without the directory that it was looked for in. */
static void
take_test(struct work *work, const char *value)
{
    const bool relative = value[0] != '/';
    const char *advice = "";
    char here[PATH_BYTES] = "";
    int code;

    if (access(value, R_OK) == 0) {
        return;
    }
    code = errno;
    if (relative && getcwd(here, sizeof(here)) == NULL) {
        here[0] = '\0';
    }
    if (work->elsewhere) {
        advice = relative ? "; --workdir DIR says where it is, --sync DIR ships your files there"
                          : "; copy it there, or ship your files with --sync DIR";
    }
    words_add_format(work->answers, "problem=%s: %s%s%s%s", value, strerror(code),
                     here[0] != '\0' ? " in " : "", here, advice);
}

/* For a path that command_find() did not take. */
static void
tell_why_not_found(const char *program, char *text_p, size_t size)
{
    char here[PATH_BYTES];
    struct stat info;

    if (getcwd(here, sizeof(here)) == NULL) {
        snprintf(here, sizeof(here), "this directory");
    }
    if (strchr(program, '/') == NULL) {
        snprintf(text_p, size, "no such program in PATH");
        if (access(program, X_OK) == 0 && stat(program, &info) == 0 && S_ISREG(info.st_mode)) {
            snprintf(text_p, size, "no such program in PATH; for the one in %s write ./%s", here,
                     program);
        }
    } else if (stat(program, &info) != 0) {
        snprintf(text_p, size, "no such program%s%s", program[0] != '/' ? " in " : "",
                 program[0] != '/' ? here : "");
    } else if (S_ISDIR(info.st_mode)) {
        snprintf(text_p, size, "is a directory");
    } else {
        snprintf(text_p, size, "not executable; run: chmod +x %s", program);
    }
}

static void
report_not_found(struct work *work, const char *what, const char *program)
{
    char why[2 * PATH_BYTES];

    tell_why_not_found(program, why, sizeof(why));
    problem(work, what, program, why);
}

/* A command is complete: is its program here, and does it know the flags? */
static void
finish_command(struct work *work)
{
    struct command *command = &work->command;
    const char *own = variables_get(command->environment.list, "PATH");
    const char *search =
        own != NULL ? own : variables_get(work->setup->worker_environment.list, "PATH");
    const char *file = NULL;
    char *path;

    if (work->command_index < 0 || command->argv.count == 0) {
        return;
    }
    path = command_find(command->argv.list[0], search);
    if (path == NULL && !work->contained && strchr(command->argv.list[0], '{') == NULL) {
        report_not_found(work, "", command->argv.list[0]);
    } else {
        const bool knows = command_knows_flags(command, search, &file);

        words_add_format(work->answers, "flags=%ld %d %s", work->command_index, knows, file);
    }
    free(path);
    command_fini(command);
    work->command_index = -1;
}

static void
take_command(struct work *work, const char *value)
{
    finish_command(work);
    work->command_index = strtol(value, NULL, 10);
}

static void
take_contained(struct work *work, const char *value)
{
    work->contained = true;
    take_command(work, value);
}

static void
take_program(struct work *work, const char *value)
{
    char *path = command_find(value, variables_get(work->setup->worker_environment.list, "PATH"));

    if (path == NULL) {
        report_not_found(work, "image: ", value);
    }
    free(path);
}

static void
take_word(struct work *work, const char *value)
{
    command_take(&work->command, value);
}

static const struct {
    const char *key;
    void (*take)(struct work *work, const char *value);
} table[] = {
    {"workdir", take_workdir},       {"cwd", take_cwd},
    {"elsewhere", take_elsewhere},   {"env", take_env},
    {"virtualenv", take_virtualenv}, {"threads", take_threads},
    {"ports", take_ports},           {"listen", take_listen},
    {"daemon", take_daemon},         {"test", take_test},
    {"program", take_program},       {"command", take_command},
    {"contained", take_contained},   {"word", take_word},
    {"logs_token", take_logs_token}, {"logs", take_logs},
    {"automatic", take_automatic},   {"automatic_asked", take_automatic_asked},
    {"deal_gpus", take_deal_gpus},   {"master_file", take_master_file},
};

void
setup_follow(struct setup *setup, const struct words *orders, struct words *answers)
{
    struct work work = {.setup = setup, .answers = answers, .command_index = -1};

    for (size_t i = 0; i < orders->count; i++) {
        const size_t bytes = strcspn(orders->list[i], "=");
        size_t k = 0;

        while (
            k < sizeof(table) / sizeof(table[0]) &&
            (strncmp(table[k].key, orders->list[i], bytes) != 0 || table[k].key[bytes] != '\0')) {
            k++;
        }
        if (k == sizeof(table) / sizeof(table[0]) || orders->list[i][bytes] != '=') {
            words_add_format(answers, "problem=psd_run here does not know %.64s", orders->list[i]);
        } else {
            table[k].take(&work, orders->list[i] + bytes + 1);
        }
    }
    finish_command(&work);
    command_fini(&work.command);
}
