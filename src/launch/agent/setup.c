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
#include "launch/system/make_path.h"
#include "launch/system/reach.h"
#include "launch/text/command.h"
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
            variables_set(&setup->worker_environment, *environment, NULL);
        }
    }
    variables_unset(&setup->worker_environment, "PSD_LOG_DIR"); /* of a job around this one */
    variables_unset(&setup->worker_environment, "PSD_NOTE_FD");
    variables_unset(&setup->worker_environment, "PSD_SCRATCH");
}

void
setup_init(struct setup *setup, char *const *environment)
{
    *setup = nowhere;
    variables_set_all(&setup->service_environment, environment, NULL);
    set_workers_environment(setup, environment);
}

void
setup_fini(struct setup *setup)
{
    words_fini(&setup->service_environment);
    words_fini(&setup->worker_environment);
    free(setup->hook_directory);
    ports_fini(&setup->ports);
    if (setup->listener >= 0) {
        close(setup->listener);
    }
    if (setup->log_directory >= 0) {
        close(setup->log_directory);
    }
    scratch_destroy(&setup->scratch);
    *setup = nowhere;
}

psd_status
setup_take_secret(struct setup *setup, int secret_fd, struct psd_error *err)
{
    struct words *both[] = {&setup->service_environment, &setup->worker_environment};
    char number[16];
    psd_status status = PSD_OK;

    setup->secret_fd = secret_fd;
    snprintf(number, sizeof(number), "%d", secret_fd);
    for (size_t i = 0; i < 2 && status == PSD_OK; i++) {
        variables_unset(both[i], "PSD_SECRET_FILE");
        variables_unset(both[i], "PSD_INSECURE");
        status = variables_set_pair(both[i], "PSD_SECRET_FD", number, err);
    }
    return status;
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

static psd_status
problem(struct work *work, struct psd_error *err, const char *what, const char *value,
        const char *why)
{
    return words_add_format(work->answers, err, "problem=%s%s: %s", what, value, why);
}

/* ------------------------------------------------------------------------ one order each --- */

static psd_status
take_workdir(struct work *work, const char *value, struct psd_error *err)
{
    return chdir(value) == 0 ? PSD_OK : problem(work, err, "workdir ", value, strerror(errno));
}

static psd_status
take_cwd(struct work *work, const char *value, struct psd_error *err)
{
    char here[PATH_BYTES] = "?";

    if (chdir(value) == 0) {
        return PSD_OK;
    }
    return words_add_format(work->answers, err, "note=no directory %s: works in %s", value,
                            getcwd(here, sizeof(here)) != NULL ? here : "?");
}

static psd_status
take_elsewhere(struct work *work, const char *value, struct psd_error *err)
{
    (void)value;
    (void)err;
    work->elsewhere = true;
    return PSD_OK;
}

/* What `source VENV/bin/activate` would do. */
static psd_status
take_virtualenv(struct work *work, const char *value, struct psd_error *err)
{
    struct words *variables = &work->setup->worker_environment;
    const char *path = variables_get(variables->list, "PATH");
    char python[PATH_BYTES];
    char *joined;
    psd_status status;

    snprintf(python, sizeof(python), "%s/bin/python", value);
    if (access(python, X_OK) != 0) {
        return problem(work, err, "virtualenv ", value, "no bin/python there");
    }
    if (asprintf(&joined, "%s/bin%s%s", value, path != NULL ? ":" : "", path != NULL ? path : "") <
        0) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "virtualenv: no memory");
    }
    status = variables_set_pair(variables, "PATH", joined, err);
    free(joined);
    variables_unset(variables, "PYTHONHOME");
    return status == PSD_OK ? variables_set_pair(variables, "VIRTUAL_ENV", value, err) : status;
}

static psd_status
take_env(struct work *work, const char *value, struct psd_error *err)
{
    return variables_set(&work->setup->worker_environment, value, err);
}

static psd_status
take_logs_token(struct work *work, const char *value, struct psd_error *err)
{
    (void)err;
    work->logs_token = value;
    return PSD_OK;
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
static psd_status
take_logs(struct work *work, const char *value, struct psd_error *err)
{
    char path[PATH_BYTES];

    if (work->logs_token != NULL) {
        snprintf(path, sizeof(path), "%s/%s", value, work->logs_token);
        if (access(path, F_OK) == 0) {
            return PSD_OK;
        }
    }
    snprintf(path, sizeof(path), "%s", value);
    if (make_path(path, NULL) != 0) {
        return words_add_format(work->answers, err,
                                "problem=log directory %s: %s; -o DIR chooses another", path,
                                strerror(errno));
    }
    work->setup->log_directory = open_own_directory(path);
    return work->setup->log_directory >= 0
               ? PSD_OK
               : problem(work, err, "log directory ", path,
                         "it is a link, or somebody else made it; -o DIR chooses another");
}

static psd_status
take_listen(struct work *work, const char *value, struct psd_error *err)
{
    struct psd_error why = {0};
    uint16_t port;

    work->setup->listener = reach_listen(value, &port, &why);
    if (work->setup->listener < 0) {
        return words_add_format(work->answers, err, "problem=%s", why.text);
    }
    return words_add_format(work->answers, err, "port=%u", port);
}

static psd_status
take_deal_gpus(struct work *work, const char *value, struct psd_error *err)
{
    (void)value;
    (void)err;
    work->setup->deals_gpus = true;
    return PSD_OK;
}

/* Several workers that each use all cores are slower than one: they get their share. */
static psd_status
take_threads(struct work *work, const char *value, struct psd_error *err)
{
    struct words *variables = &work->setup->worker_environment;
    psd_status status;

    if (variables_get(variables->list, "OMP_NUM_THREADS") != NULL) {
        return PSD_OK;
    }
    status = variables_set_pair(variables, "OMP_NUM_THREADS", value, err);
    return status == PSD_OK
               ? words_add_format(work->answers, err,
                                  "note=OMP_NUM_THREADS=%s for each worker: nobody has set it",
                                  value)
               : status;
}

/* Workers do without one: then every worker writes what the script writes, and says so. */
static psd_status
give_scratch(struct setup *setup, struct psd_error *err)
{
    const char *base = variables_get(setup->worker_environment.list, "TMPDIR");

    if (setup->scratch.lock >= 0 ||
        scratch_create(&setup->scratch, base != NULL && base[0] == '/' ? base : "/tmp", NULL) !=
            PSD_OK) {
        return PSD_OK;
    }
    return variables_set_pair(&setup->worker_environment, "PSD_SCRATCH", setup->scratch.path, err);
}

static psd_status
take_automatic(struct work *work, const char *value, struct psd_error *err)
{
    (void)value;
    work->setup->hook_directory = hook_find();
    return work->setup->hook_directory != NULL
               ? give_scratch(work->setup, err)
               : words_add(work->answers,
                           "note=Python workers are not distributed automatically: " HOOK_MISSING,
                           err);
}

static psd_status
take_automatic_asked(struct work *work, const char *value, struct psd_error *err)
{
    work->setup->hook_directory = hook_find();
    return work->setup->hook_directory != NULL ? give_scratch(work->setup, err)
                                               : problem(work, err, "--auto ", value, HOOK_MISSING);
}

static psd_status
take_ports(struct work *work, const char *value, struct psd_error *err)
{
    struct ports *ports = &work->setup->ports;
    struct psd_error why = {0};
    char address[64] = "";
    unsigned count = 0;
    unsigned wish = 0;
    psd_status status = PSD_OK;

    if (sscanf(value, "%u %63s %u", &count, address, &wish) < 2 ||
        ports_reserve(ports, address, count, (uint16_t)wish, &why) != PSD_OK) {
        return words_add_format(work->answers, err, "problem=%s", why.text);
    }
    for (size_t i = 0; i < ports->count && status == PSD_OK; i++) {
        status = words_add_format(work->answers, err, "worker_port=%u", ports->list[i].number);
    }
    return status;
}

static psd_status
take_daemon(struct work *work, const char *value, struct psd_error *err)
{
    char *path = setup_find(value, false, work->setup->service_environment.list);
    char directory[PATH_BYTES] = "";
    const ssize_t bytes = readlink("/proc/self/exe", directory, sizeof(directory) - 1);

    if (path != NULL) {
        free(path);
        return PSD_OK;
    }
    directory[bytes > 0 ? bytes : 0] = '\0';
    if (strrchr(directory, '/') != NULL) {
        *strrchr(directory, '/') = '\0';
    }
    return words_add_format(work->answers, err,
                            "problem=%s: neither in %s nor in PATH; install Poseidon there whole",
                            value, directory);
}

/* A relative path says little without the directory that it was looked for in. */
static psd_status
take_test(struct work *work, const char *value, struct psd_error *err)
{
    const bool relative = value[0] != '/';
    const char *advice = "";
    char here[PATH_BYTES] = "";
    int code;

    if (access(value, R_OK) == 0) {
        return PSD_OK;
    }
    code = errno;
    if (relative && getcwd(here, sizeof(here)) == NULL) {
        here[0] = '\0';
    }
    if (work->elsewhere) {
        advice = relative ? "; --workdir DIR says where it is, --sync DIR ships your files there"
                          : "; copy it there, or ship your files with --sync DIR";
    }
    return words_add_format(work->answers, err, "problem=%s: %s%s%s%s", value, strerror(code),
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

static psd_status
report_not_found(struct work *work, const char *what, const char *program, struct psd_error *err)
{
    char why[2 * PATH_BYTES];

    tell_why_not_found(program, why, sizeof(why));
    return problem(work, err, what, program, why);
}

/* A command is complete: is its program here, and does it know the flags? */
static psd_status
finish_command(struct work *work, struct psd_error *err)
{
    struct command *command = &work->command;
    const char *own = variables_get(command->environment.list, "PATH");
    const char *search =
        own != NULL ? own : variables_get(work->setup->worker_environment.list, "PATH");
    const char *file = NULL;
    psd_status status = PSD_OK;
    char *path;

    if (work->command_index < 0 || command->argv.count == 0) {
        return PSD_OK;
    }
    path = command_find(command->argv.list[0], search);
    if (path == NULL && !work->contained && strchr(command->argv.list[0], '{') == NULL) {
        status = report_not_found(work, "", command->argv.list[0], err);
    } else {
        const bool knows = command_knows_flags(command, search, &file);

        status = words_add_format(work->answers, err, "flags=%ld %d %s", work->command_index, knows,
                                  file);
    }
    free(path);
    command_fini(command);
    work->command_index = -1;
    return status;
}

static psd_status
take_command(struct work *work, const char *value, struct psd_error *err)
{
    const psd_status status = finish_command(work, err);

    work->command_index = strtol(value, NULL, 10);
    return status;
}

static psd_status
take_contained(struct work *work, const char *value, struct psd_error *err)
{
    work->contained = true;
    return take_command(work, value, err);
}

static psd_status
take_program(struct work *work, const char *value, struct psd_error *err)
{
    char *path = command_find(value, variables_get(work->setup->worker_environment.list, "PATH"));
    const bool found = path != NULL;

    free(path);
    return found ? PSD_OK : report_not_found(work, "image: ", value, err);
}

static psd_status
take_word(struct work *work, const char *value, struct psd_error *err)
{
    return command_take(&work->command, value, err);
}

static const struct {
    const char *key;
    psd_status (*take)(struct work *work, const char *value, struct psd_error *err);
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
    {"deal_gpus", take_deal_gpus},
};

psd_status
setup_follow(struct setup *setup, const struct words *orders, struct words *answers,
             struct psd_error *err)
{
    struct work work = {.setup = setup, .answers = answers, .command_index = -1};
    psd_status status = PSD_OK;

    for (size_t i = 0; i < orders->count && status == PSD_OK; i++) {
        const size_t bytes = strcspn(orders->list[i], "=");
        size_t k = 0;

        while (
            k < sizeof(table) / sizeof(table[0]) &&
            (strncmp(table[k].key, orders->list[i], bytes) != 0 || table[k].key[bytes] != '\0')) {
            k++;
        }
        if (k == sizeof(table) / sizeof(table[0]) || orders->list[i][bytes] != '=') {
            status = words_add_format(answers, err, "problem=psd_run here does not know %.64s",
                                      orders->list[i]);
        } else {
            status = table[k].take(&work, orders->list[i] + bytes + 1, err);
        }
    }
    if (status == PSD_OK) {
        status = finish_command(&work, err);
    }
    command_fini(&work.command);
    return status;
}
