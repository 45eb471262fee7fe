/*
 * ssh_defaults.c - what ssh_config says about machines.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/wait.h>

#include "base/monotonic.h"
#include "launch/meet/ssh.h"
#include "launch/system/close_fd.h"
#include "launch/system/spawn.h"
#include "launch/text/command.h"
#include "launch/text/variables.h"

enum {
    ANSWER_BYTES = 64 << 10,
    ASKED_AT_ONCE = 16,
    ONE_MS = 5000,
    ALL_MS = 20000,
    LOOK_MS = 100 /* how soon a signal is noticed */
};

static const char nobody[] = "psd-not-said";

/* One `ssh -G` under way. */
struct asking {
    pid_t pid;
    int fd; /* of what it prints; -1: it is done, or never ran */
    size_t used;
    char text[ANSWER_BYTES];
};

/* Whether somebody wants psd_run to end; its loop, which is to come, does the rest. */
static bool
is_called_off(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
            sigismember(&pending, SIGHUP) == 1);
}

/* --------------------------------------------------------------------------------- to ask --- */

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
write_config(const struct ssh_target *target)
{
    const char *other = other_config(target->options);
    char *path = other != NULL ? realpath(other, NULL) : NULL; /* Include has another directory */
    const int fd = memfd_create("ssh_config", MFD_CLOEXEC);

    if (fd >= 0) {
        if (path != NULL) {
            dprintf(fd, "Include \"%s\"\n", path);
        } else if (other == NULL) {
            dprintf(fd, "Include ~/.ssh/config\nInclude /etc/ssh/ssh_config\n");
        }
        dprintf(fd, "Host *\n    User %s\n", nobody);
    }
    free(path);
    return fd;
}

/* The options of the user come first, and count; of several -F the last one does. */
static void
write_arguments(const struct ssh_target *target, struct words *argv)
{
    words_add(argv, "ssh");
    if (target->options != NULL) {
        words_add_all(argv, target->options);
    }
    words_add(argv, "-G");
    words_add(argv, "-F");
    words_add(argv, "/proc/self/fd/0");
    words_add(argv, "--");
    words_add(argv, target->host);
}

static void
begin(struct asking *asking, const struct ssh_target *target, const char *ssh)
{
    struct words argv = {0};
    int config = write_config(target);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    int pipes[2] = {-1, -1};

    asking->fd = -1;
    asking->used = 0;
    write_arguments(target, &argv);
    if (config >= 0 && nothing >= 0 && pipe2(pipes, O_CLOEXEC) == 0) {
        const struct spawn_args args = {.path = ssh,
                                        .argv = argv.list,
                                        .environment = environ,
                                        .input_fd = config, /* ssh closes all others at once */
                                        .output_fd = pipes[1],
                                        .error_fd = nothing,
                                        .extra_fd = -1,
                                        .secret_fd = -1,
                                        .note_fd = -1};

        if (spawn_start(&args, &asking->pid) == 0) {
            asking->fd = pipes[0];
            fcntl(asking->fd, F_SETFL, O_NONBLOCK);
        }
    }
    if (asking->fd < 0) {
        close_fd(&pipes[0]);
    }
    close_fd(&pipes[1]);
    close_fd(&config);
    close_fd(&nothing);
    words_fini(&argv);
}

/* ------------------------------------------------------------------------------- to listen --- */

/* Ends it with all that its configuration made it start: they are a session of their own. */
static void
end(struct asking *asking)
{
    kill(-asking->pid, SIGKILL);
    waitpid(asking->pid, NULL, 0);
    close(asking->fd);
    asking->fd = -1;
}

/* Returns true when nothing more comes. */
static bool
hear(struct asking *asking)
{
    const ssize_t count =
        read(asking->fd, asking->text + asking->used, ANSWER_BYTES - 1 - asking->used);

    if (count < 0) {
        return errno != EAGAIN && errno != EINTR;
    }
    asking->used += (size_t)count;
    return count == 0;
}

/* Listens to all, until the deadline or until psd_run is called off. */
static void
hear_all(struct asking *askings, size_t count, int64_t deadline_ms)
{
    struct pollfd polls[ASKED_AT_ONCE];
    size_t open = 1;

    while (open > 0 && (int64_t)psi_monotonic_ms() < deadline_ms && !is_called_off()) {
        open = 0;
        for (size_t i = 0; i < count; i++) {
            polls[i] = (struct pollfd){.fd = askings[i].fd, .events = POLLIN};
        }
        poll(polls, count, LOOK_MS);
        for (size_t i = 0; i < count; i++) {
            if (askings[i].fd >= 0 && polls[i].revents != 0 && hear(&askings[i])) {
                end(&askings[i]);
            }
            open += askings[i].fd >= 0;
        }
    }
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

static void
understand(const char *text, struct ssh_defaults *defaults_p)
{
    char value[128];

    if (find_line(text, "user", value, sizeof(value)) && strcmp(value, nobody) != 0) {
        snprintf(defaults_p->user, sizeof(defaults_p->user), "%.64s", value);
    }
    defaults_p->strict = find_line(text, "stricthostkeychecking", value, sizeof(value)) &&
                         (strcmp(value, "true") == 0 || strcmp(value, "yes") == 0);
}

/* --------------------------------------------------------------------------------- together --- */

/* As many as are asked at once. */
static void
ask_group(const struct ssh_question *questions, size_t count, struct asking *askings,
          const char *ssh, int64_t deadline_ms)
{
    for (size_t i = 0; i < count; i++) {
        begin(&askings[i], questions[i].target, ssh);
    }
    hear_all(askings, count, deadline_ms);
    for (size_t i = 0; i < count; i++) {
        *questions[i].defaults_p = (struct ssh_defaults){.strict = false};
        if (askings[i].fd < 0) {
            askings[i].text[askings[i].used] = '\0';
            understand(askings[i].text, questions[i].defaults_p);
        } else {
            end(&askings[i]);
            questions[i].defaults_p->strict = true;
            questions[i].defaults_p->unanswered = !is_called_off();
        }
    }
}

void
ssh_ask_defaults(const struct ssh_question *questions, size_t count)
{
    struct asking *askings = calloc(ASKED_AT_ONCE, sizeof(*askings));
    char *ssh = command_find("ssh", variables_get(environ, "PATH"));
    const int64_t until_ms = (int64_t)psi_monotonic_ms() + ALL_MS;
    size_t group;

    for (size_t done = 0; done < count; done += group) {
        const int64_t own_ms = (int64_t)psi_monotonic_ms() + ONE_MS;

        group = count - done < ASKED_AT_ONCE ? count - done : ASKED_AT_ONCE;
        if (askings != NULL && ssh != NULL) {
            ask_group(questions + done, group, askings, ssh, own_ms < until_ms ? own_ms : until_ms);
        }
    }
    free(ssh);
    free(askings);
}
