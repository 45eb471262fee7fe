/*
 * ssh.c - how a machine is reached.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/ssh.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fail.h"

enum { ANSWER_BYTES = 64 << 10 };

static const char default_user[] = "ubuntu";
static const char nobody[] = "psd-not-said";

/* ------------------------------------------------------------------------------ ssh_config --- */

/* The file that the options put in the place of ~/.ssh/config, or NULL. */
static const char *
other_config(const struct words *options)
{
    for (size_t i = 0; options != NULL && i < options->count; i++) {
        if (strncmp(options->list[i], "-F", 2) == 0) {
            return options->list[i][2] != '\0' ? options->list[i] + 2 : options->list[i + 1];
        }
    }
    return NULL;
}

/*
 * The user's configuration and the system's, with a user of our own behind them: if `ssh -G` names
 * that one, nobody else was configured. Returns a descriptor, or -1.
 */
static int
write_probe_config(const struct ssh_target *target)
{
    const char *other = other_config(target->options);
    const int fd = memfd_create("ssh_config", 0);

    if (fd < 0) {
        return -1;
    }
    if (other != NULL) {
        dprintf(fd, "Include %s\n", other);
    } else {
        dprintf(fd, "Include ~/.ssh/config\nInclude /etc/ssh/ssh_config\n");
    }
    dprintf(fd, "Host *\n    User %s\n", nobody);
    return fd;
}

/* Runs `ssh -G` and reads what it prints. Returns false when there is no answer. */
static bool
ask(const struct ssh_target *target, char *text_p, size_t size)
{
    const int config = write_probe_config(target);
    size_t used = 0;
    int pipes[2];
    int status = -1;
    pid_t pid;

    if (config < 0 || pipe2(pipes, O_CLOEXEC) != 0) {
        return false;
    }
    pid = fork();
    if (pid == 0) {
        const int nothing = open("/dev/null", O_RDWR);

        dup2(config, STDIN_FILENO); /* ssh closes all others at once */
        dup2(pipes[1], STDOUT_FILENO);
        dup2(nothing, STDERR_FILENO);
        execlp("ssh", "ssh", "-G", "-F", "/proc/self/fd/0", "--", target->host, (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    close(config);
    while (pid > 0 && used < size - 1) {
        const ssize_t count = read(pipes[0], text_p + used, size - 1 - used);

        if (count <= 0) {
            break;
        }
        used += (size_t)count;
    }
    text_p[used] = '\0';
    close(pipes[0]);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* The value of a line "key value". */
static bool
find_line(const char *text, const char *key, char *value_p, size_t size)
{
    const size_t bytes = strlen(key);

    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, bytes) == 0 && line[bytes] == ' ') {
            snprintf(value_p, size, "%.*s", (int)strcspn(line + bytes + 1, "\n"), line + bytes + 1);
            return true;
        }
    }
    return false;
}

void
ssh_ask_defaults(const struct ssh_target *target, struct ssh_defaults *defaults_p)
{
    char *text = malloc(ANSWER_BYTES);
    char value[128];

    *defaults_p = (struct ssh_defaults){.strict = false};
    if (text != NULL && ask(target, text, ANSWER_BYTES)) {
        if (find_line(text, "user", value, sizeof(value)) && strcmp(value, nobody) != 0) {
            snprintf(defaults_p->user, sizeof(defaults_p->user), "%.64s", value);
        }
        defaults_p->strict = find_line(text, "stricthostkeychecking", value, sizeof(value)) &&
                             (strcmp(value, "true") == 0 || strcmp(value, "yes") == 0);
    }
    free(text);
}

/* --------------------------------------------------------------------------- command line --- */

/* Where everybody has psd_run in the same place, it needs no PATH. */
static psd_status
add_remote_command(struct words *argv, const char *program, struct psd_error *err)
{
    if (strpbrk(program, "'\\!\n") != NULL) { /* what a login shell might take for its own */
        return words_add(argv, "exec psd_run --agent", err);
    }
    return words_add_format(
        argv, err, "exec sh -c 'p=\"%s\"; [ -x \"$p\" ] || p=psd_run; exec \"$p\" --agent'",
        program);
}

psd_status
ssh_arguments(const struct ssh_target *target, const struct ssh_defaults *defaults,
              struct words *argv_p, struct psd_error *err)
{
    static const char *const always[] = {"ssh", "-T",
                                         "-o",  "BatchMode=yes",
                                         "-o",  "ConnectTimeout=10",
                                         "-o",  "ServerAliveInterval=5",
                                         "-o",  "ServerAliveCountMax=3"};
    struct words argv = {0};
    psd_status status = PSD_OK;

    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]) && status == PSD_OK; i++) {
        status = words_add(&argv, always[i], err);
    }
    if (status == PSD_OK && !defaults->strict) {
        status = words_add(&argv, "-oStrictHostKeyChecking=accept-new", err);
    }
    if (status == PSD_OK && target->pem_file != NULL) {
        status = words_add(&argv, "-i", err);
        status = status == PSD_OK ? words_add(&argv, target->pem_file, err) : status;
        status = status == PSD_OK ? words_add(&argv, "-oIdentitiesOnly=yes", err) : status;
    }
    if (status == PSD_OK && target->port != 0) {
        status = words_add_format(&argv, err, "-p%u", target->port);
    }
    if (status == PSD_OK && (target->user[0] != '\0' || defaults->user[0] == '\0')) {
        status = words_add_format(&argv, err, "-l%s",
                                  target->user[0] != '\0' ? target->user : default_user);
    }
    for (size_t i = 0; target->options != NULL && i < target->options->count && status == PSD_OK;
         i++) {
        status = words_add(&argv, target->options->list[i], err);
    }
    status = status == PSD_OK ? words_add(&argv, "--", err) : status;
    status = status == PSD_OK ? words_add(&argv, target->host, err) : status;
    status = status == PSD_OK ? add_remote_command(&argv, target->program, err) : status;
    if (status != PSD_OK) {
        words_fini(&argv);
        return status;
    }
    *argv_p = argv;
    return PSD_OK;
}

psd_status
ssh_check_key(const char *pem_file, struct psd_error *err)
{
    const struct passwd *entry = getpwuid(getuid());
    char path[4096];
    struct stat info;

    snprintf(path, sizeof(path), "%s%s",
             pem_file[0] == '~' && pem_file[1] == '/' && entry != NULL ? entry->pw_dir : "",
             pem_file[0] == '~' && pem_file[1] == '/' ? pem_file + 1 : pem_file);
    if (stat(path, &info) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "pem_file %s", pem_file);
    }
    if (!S_ISREG(info.st_mode)) {
        return psi_fail(err, PSD_ERR_IO, "pem_file %s: not a file", pem_file);
    }
    if ((info.st_mode & 077) != 0) {
        return psi_fail(err, PSD_ERR_IO,
                        "pem_file %s: mode %04o; ssh refuses a key that others may read; run: "
                        "chmod 600 %s",
                        pem_file, (unsigned)info.st_mode & 07777, pem_file);
    }
    if (access(path, R_OK) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "pem_file %s", pem_file);
    }
    return PSD_OK;
}

/* --------------------------------------------------------------------------------- failures --- */

bool
ssh_may_try_again(const char *complaint)
{
    static const char *const passing[] = {"kex_exchange_identification",
                                          "Connection closed by remote host",
                                          "Connection reset by peer", "Exceeded MaxStartups"};

    if (strstr(complaint, "timed out") != NULL) {
        return false; /* that took long enough */
    }
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) {
        if (strstr(complaint, passing[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* What ssh says about every login. */
static bool
is_warning(const char *line)
{
    return strncmp(line, "Warning: Permanently added", 26) == 0 || strncmp(line, "**", 2) == 0 ||
           strncmp(line, "Connection to ", 14) == 0;
}

void
ssh_last_words(const char *complaint, char *text_p, size_t size)
{
    text_p[0] = '\0';
    for (const char *line = complaint; *line != '\0';) {
        const size_t bytes = strcspn(line, "\r\n");

        if (bytes > 0 && !is_warning(line)) {
            snprintf(text_p, size, "%.*s", (int)bytes, line);
        }
        line += bytes;
        line += strspn(line, "\r\n");
    }
}

/* What a person can do about it. */
static void
advise(const struct ssh_target *target, const char *login, const char *complaint, int status,
       char *text_p, size_t size)
{
    char port[16] = "";

    if (target->port != 0) {
        snprintf(port, sizeof(port), " -p %u", target->port);
    }
    if (strstr(complaint, "REMOTE HOST IDENTIFICATION HAS CHANGED") != NULL ||
        strstr(complaint, "Host key verification failed") != NULL) {
        snprintf(text_p, size,
                 "its host key is not the one that is known: if the machine was set up anew, run: "
                 "ssh-keygen -R %s",
                 target->host);
    } else if (strstr(complaint, "Permission denied") != NULL) {
        snprintf(text_p, size,
                 "no key was accepted (tried: %s); to install one, run: ssh-copy-id%s%s%s %s%s",
                 target->pem_file != NULL ? target->pem_file : "those of ~/.ssh and the ssh agent",
                 target->pem_file != NULL ? " -i " : "",
                 target->pem_file != NULL ? target->pem_file : "", port, login, "");
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        snprintf(text_p, size,
                 "psd_run is not there: install Poseidon on that machine, in its PATH or as %s",
                 target->program);
    } else {
        snprintf(text_p, size, "to see for yourself, run: ssh%s %s true", port, login);
    }
}

void
ssh_explain(const struct ssh_target *target, const struct ssh_defaults *defaults,
            const char *complaint, int status, char *text_p, size_t size)
{
    const char *user = target->user[0] != '\0'     ? target->user
                       : defaults->user[0] != '\0' ? defaults->user
                                                   : default_user;
    char login[384];
    char said[256];
    char advice[512];

    snprintf(login, sizeof(login), "%s@%s", user, target->host);
    ssh_last_words(complaint, said, sizeof(said));
    if (said[0] == '\0' && status != -1 && WIFSIGNALED(status)) {
        snprintf(said, sizeof(said), "ssh was killed by signal %d", WTERMSIG(status));
    } else if (said[0] == '\0') {
        snprintf(said, sizeof(said), "ssh said nothing, code %d",
                 status != -1 ? WEXITSTATUS(status) : -1);
    }
    advise(target, login, complaint, status == -1 ? 0 : status, advice, sizeof(advice));
    snprintf(text_p, size, "%s (ssh %s%s%s): %s; %s", target->host, login,
             target->pem_file != NULL ? " with " : "",
             target->pem_file != NULL ? target->pem_file : "", said, advice);
}
