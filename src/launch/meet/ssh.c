/*
 * ssh.c - how a machine is reached.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/ssh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fail.h"
#include "launch/meet/remote_script.h"
#include "launch/meet/ssh_key.h"
#include "launch/system/stderr_tail.h"
#include "launch/text/memory.h"

enum { USUAL_PORT = 22 };

static const char default_user[] = "ubuntu";

/* --------------------------------------------------------------------------- command line --- */

/*
 * Where everybody has psd_run in the same place, it needs no PATH. The path is one word in single
 * quotes for the login shell, whichever that is, and never a part of the script.
 */
static void
add_remote_command(struct words *argv, const char *program)
{
    char script[REMOTE_SCRIPT_BYTES];
    char *text;
    char *end;

    if (strpbrk(program, "\\!\n") != NULL) { /* what csh or fish read even in single quotes */
        words_add(argv, "exec psd_run --agent");
        return;
    }
    text = memory_need(malloc(sizeof(script) + 4 * strlen(program) + 32));
    remote_script(program, script);
    end = text + sprintf(text, "exec sh -c '%s' '", script);
    for (; *program != '\0'; program++) {
        end = stpcpy(end, *program == '\'' ? "'\\''" : (char[]){*program, '\0'});
    }
    stpcpy(end, "'");
    words_add(argv, text);
    free(text);
}

/* Of an option that is given twice, ssh takes the first: the user's go before ours. */
psd_status
ssh_arguments(const struct ssh_target *target, const struct ssh_defaults *defaults,
              struct words *argv, struct psd_error *err)
{
    static const char *const always[] = {"-T",
                                         "-o",
                                         "BatchMode=yes",
                                         "-o",
                                         "ConnectTimeout=10",
                                         "-o",
                                         "ServerAliveInterval=5",
                                         "-o",
                                         "ServerAliveCountMax=3"};

    if (defaults->unanswered) {
        return psi_fail(err, PSD_ERR_IO,
                        "ssh -G %s did not say in time what ssh_config has for it; a Match exec "
                        "or a look-up in it may hang, run: ssh -G %s",
                        target->host, target->host);
    }
    words_add(argv, "ssh");
    if (target->options != NULL) {
        words_add_all(argv, target->options);
    }
    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++) {
        words_add(argv, always[i]);
    }
    if (!defaults->strict) {
        words_add(argv, "-oStrictHostKeyChecking=accept-new");
    }
    if (target->pem_file != NULL) {
        words_add(argv, "-i");
        words_add(argv, target->pem_file);
        words_add(argv, "-oIdentitiesOnly=yes");
    }
    if (target->port != 0) {
        words_add_format(argv, "-p%u", target->port);
    }
    if (target->user[0] != '\0' || defaults->user[0] == '\0') {
        words_add_format(argv, "-l%s", target->user[0] != '\0' ? target->user : default_user);
    }
    words_add(argv, "--");
    words_add(argv, target->host);
    add_remote_command(argv, target->program);
    return PSD_OK;
}

psd_status
ssh_check_key(const char *pem_file, struct psd_error *err)
{
    char path[4096];
    struct stat info;

    ssh_key_path(pem_file, path, sizeof(path));
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
ssh_may_try_again(const char *stderr_tail)
{
    static const char *const passing[] = {"kex_exchange_identification",
                                          "Connection closed by remote host",
                                          "Connection reset by peer", "Exceeded MaxStartups"};

    if (strstr(stderr_tail, "timed out") != NULL) {
        return false; /* that took long enough */
    }
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) {
        if (strstr(stderr_tail, passing[i]) != NULL) {
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
ssh_last_words(const char *stderr_tail, char *text_p, size_t size)
{
    stderr_tail_last_line(stderr_tail, is_warning, text_p, size);
}

/* The options of a login, to be pasted: those that psd_run adds for itself alone are left out. */
static void
write_login(FILE *stream, const struct ssh_target *target, bool copy_id)
{
    const struct words *options = target->options;

    if (target->pem_file != NULL) {
        fputs(" -i ", stream);
        words_quote(stream, target->pem_file);
    }
    if (target->port != 0) {
        fprintf(stream, " -p %u", target->port);
    }
    for (size_t i = 0; options != NULL && i < options->count; i++) {
        const char *word = options->list[i];

        if (copy_id && strncmp(word, "-J", 2) == 0) { /* which ssh-copy-id does not know */
            fputs(" -oProxyJump=", stream);
            word += 2;
            if (word[0] == '\0') {
                word = i + 1 < options->count ? options->list[++i] : "";
            }
        } else {
            fputc(' ', stream);
        }
        words_quote(stream, word);
    }
}

/* What stands between two marks of a complaint; "" if either is not there. */
static void
find_between(const char *stderr_tail, const char *before, const char *after, char *text_p,
             size_t size)
{
    const char *begin = strstr(stderr_tail, before);
    const char *end;

    text_p[0] = '\0';
    if (begin == NULL) {
        return;
    }
    begin += strlen(before);
    end = strstr(begin, after);
    if (end != NULL && strcspn(begin, "\r\n") > (size_t)(end - begin)) {
        snprintf(text_p, size, "%.*s", (int)(end - begin), begin);
    }
}

/* ssh says under which name and in which file it looked: aliases and ports are part of it. */
static void
advise_on_changed_key(FILE *stream, const struct ssh_target *target, const char *stderr_tail)
{
    const char *offending = strstr(stderr_tail, "Offending ");
    char name[300];
    char file[512];

    find_between(stderr_tail, "ost key for ", " has changed", name, sizeof(name));
    find_between(offending != NULL ? offending : "", " key in ", ":", file, sizeof(file));
    if (name[0] == '\0') {
        const bool usual = target->port == 0 || target->port == USUAL_PORT;

        snprintf(name, sizeof(name), usual ? "%s" : "[%s]:%u", target->host, target->port);
    }
    fputs("its host key is not the one that is known: if the machine was set up anew, run: "
          "ssh-keygen",
          stream);
    if (file[0] != '\0') {
        fputs(" -f ", stream);
        words_quote(stream, file);
    }
    fputs(" -R ", stream);
    words_quote(stream, name);
}

static void
advise_on_refused_key(FILE *stream, const struct ssh_target *target, const char *login)
{
    const char *flaw = target->pem_file != NULL ? ssh_key_flaw(target->pem_file) : NULL;

    if (flaw != NULL) {
        fprintf(stream, "the key was not used: %s %s", target->pem_file, flaw);
        return;
    }
    fprintf(stream, "no key was accepted (tried: %s); to install one, run: ssh-copy-id",
            target->pem_file != NULL ? target->pem_file : "those of ~/.ssh and the ssh agent");
    write_login(stream, target, true);
    fprintf(stream, " %s", login);
}

/* What a person can do about it. */
static void
advise(FILE *stream, const struct ssh_target *target, const char *login, const char *stderr_tail,
       bool printed, int status)
{
    if (strstr(stderr_tail, "REMOTE HOST IDENTIFICATION HAS CHANGED") != NULL ||
        strstr(stderr_tail, "has changed and you have requested") != NULL) {
        advise_on_changed_key(stream, target, stderr_tail);
    } else if (strstr(stderr_tail, "Host key verification failed") != NULL) {
        fputs("its host key is not known here, and ssh may not learn it by itself; look at it "
              "once, run: ssh",
              stream);
        write_login(stream, target, false);
        fprintf(stream, " %s true", login);
    } else if (strstr(stderr_tail, "Permission denied") != NULL) {
        advise_on_refused_key(stream, target, login);
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        fprintf(stream,
                "psd_run is not there: install Poseidon on that machine, in its PATH or as %s%s",
                target->program,
                remote_script_is_open(target->program)
                    ? ", which must be yours: others may write above it"
                    : "");
    } else if (printed) {
        fputs("its shell must run commands (no nologin, no menu), and its start-up files must not "
              "end it; to see for yourself, run: ssh",
              stream);
        write_login(stream, target, false);
        fprintf(stream, " %s true", login);
    } else {
        fputs("to see for yourself, run: ssh", stream);
        write_login(stream, target, false);
        fprintf(stream, " %s true", login);
    }
}

/* "host2 (ssh ubuntu@host2 with cloud.pem): " */
static void
name_login(FILE *stream, const struct ssh_target *target, const char *login, bool guessed)
{
    fprintf(stream, "%s (ssh %s", target->host, login);
    if (target->pem_file != NULL) {
        fprintf(stream, " with %s", target->pem_file);
    }
    if (guessed) {
        fprintf(stream,
                "; %s because neither \"username\" in the cluster file nor ssh_config "
                "names another user",
                default_user);
    }
    fputs("): ", stream);
}

void
ssh_explain(const struct ssh_target *target, const struct ssh_defaults *defaults,
            const char *stderr_tail, const char *printed, int status, char *text_p, size_t size)
{
    const bool guessed = target->user[0] == '\0' && defaults->user[0] == '\0';
    const char *user = target->user[0] != '\0' ? target->user
                       : guessed               ? default_user
                                               : defaults->user;
    FILE *stream = fmemopen(text_p, size, "w");
    char login[384];
    char said[256];

    text_p[0] = '\0';
    if (stream == NULL) {
        return;
    }
    snprintf(login, sizeof(login), "%s@%s", user, target->host);
    stderr_tail_describe("ssh", stderr_tail, printed, is_warning, status, said, sizeof(said));
    name_login(stream, target, login, guessed);
    fprintf(stream, "%s; ", said);
    advise(stream, target, login, stderr_tail,
           stderr_tail_is_printed(stderr_tail, printed, is_warning), status == -1 ? 0 : status);
    fclose(stream);
    text_p[size - 1] = '\0';
}
