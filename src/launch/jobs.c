/*
 * jobs.c - the jobs that run here for this user.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/jobs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/fail.h"
#include "config/settings.h"

enum {
    SAME_NAME_MAX = 1000,
    ANSWER_MS = 5000,
    ANSWER_BYTES_MAX = 64 << 20,
    BACKLOG = 16,
    RUNTIME_BYTES_MAX = 60
};

static const char ending[] = ".sock";

/* ----------------------------------------------------------------------------- the directory ---
 */

/* A directory that somebody else could have made or could write to is not used. */
static psd_status
make_private(const char *path, struct psd_error *err)
{
    struct stat info;

    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return psi_fail_errno(err, PSD_ERR_IO, "make %s", path);
    }
    if (lstat(path, &info) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "look at %s", path);
    }
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
        return psi_fail(err, PSD_ERR_IO,
                        "%s is not a directory of yours alone (mode 0700): psd_run keeps the "
                        "sockets of its jobs there; remove it, or set XDG_RUNTIME_DIR",
                        path);
    }
    return PSD_OK;
}

static psd_status
find_directory(char path_p[JOBS_PATH_BYTES], struct psd_error *err)
{
    const char *runtime = psi_environment("XDG_RUNTIME_DIR");
    struct stat info;

    if (runtime != NULL && strlen(runtime) < RUNTIME_BYTES_MAX && stat(runtime, &info) == 0 &&
        info.st_uid == geteuid()) {
        snprintf(path_p, JOBS_PATH_BYTES, "%s/poseidon", runtime);
    } else {
        snprintf(path_p, JOBS_PATH_BYTES, "/tmp/poseidon-%u", (unsigned)geteuid());
    }
    return make_private(path_p, err);
}

/* ---------------------------------------------------------------------------------- sockets --- */

static bool
fill_address(const char *directory, const char *name, struct sockaddr_un *address_p)
{
    *address_p = (struct sockaddr_un){.sun_family = AF_UNIX};
    return snprintf(address_p->sun_path, sizeof(address_p->sun_path), "%s/%s%s", directory, name,
                    ending) < (int)sizeof(address_p->sun_path);
}

/* Connects to a job. Returns the socket, or -1 with errno. */
static int
connect_to(const struct sockaddr_un *address)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct timeval limit = {.tv_sec = ANSWER_MS / 1000};

    if (fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0) {
        const int code = errno;

        close(fd);
        errno = code;
        return -1;
    }
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    }
    return fd;
}

/* Whether somebody listens there. A socket that nobody listens on any more is removed. */
static bool
is_alive(const struct sockaddr_un *address)
{
    const int fd = connect_to(address);

    if (fd >= 0) {
        close(fd);
        return true;
    }
    if (errno == ECONNREFUSED) {
        unlink(address->sun_path);
    }
    return false;
}

/* Returns a listening socket, or -1 with errno: EADDRINUSE when the name is taken. */
static int
listen_at(const struct sockaddr_un *address)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int code;

    if (fd >= 0 && bind(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 &&
        listen(fd, BACKLOG) == 0) {
        return fd;
    }
    code = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = code;
    return -1;
}

psd_status
jobs_enter(const char *wanted, bool exact, struct jobs_entry *entry_p, struct psd_error *err)
{
    struct sockaddr_un address;
    char directory[JOBS_PATH_BYTES];
    psd_status status = find_directory(directory, err);

    *entry_p = (struct jobs_entry){.listener = -1};
    if (status != PSD_OK) {
        return status;
    }
    for (unsigned i = 1; i < SAME_NAME_MAX; i++) {
        char name[JOBS_NAME_BYTES];

        if (i == 1) {
            snprintf(name, sizeof(name), "%s", wanted);
        } else {
            snprintf(name, sizeof(name), "%.50s-%u", wanted, i);
        }
        if (!fill_address(directory, name, &address)) {
            return psi_fail(err, PSD_ERR_INVALID, "%s: a name too long for a job", wanted);
        }
        if (!is_alive(&address)) {
            entry_p->listener = listen_at(&address);
        }
        if (entry_p->listener >= 0) {
            snprintf(entry_p->name, sizeof(entry_p->name), "%s", name);
            snprintf(entry_p->path, sizeof(entry_p->path), "%s", address.sun_path);
            return PSD_OK;
        }
        if (exact) {
            break;
        }
    }
    return psi_fail(err, PSD_ERR_STATE,
                    "a job named %s runs already: psd_run stop %s ends it, psd_run run replaces it",
                    wanted, wanted);
}

void
jobs_leave(struct jobs_entry *entry)
{
    if (entry->listener >= 0) {
        unlink(entry->path);
        close(entry->listener);
        entry->listener = -1;
    }
}

psd_status
jobs_list(struct words *names_p, struct psd_error *err)
{
    struct sockaddr_un address;
    char directory[JOBS_PATH_BYTES];
    struct dirent *item;
    DIR *stream;
    psd_status status = find_directory(directory, err);

    if (status != PSD_OK) {
        return status;
    }
    stream = opendir(directory);
    while (stream != NULL && status == PSD_OK && (item = readdir(stream)) != NULL) {
        char *dot = strrchr(item->d_name, '.');

        if (dot != NULL && strcmp(dot, ending) == 0) {
            *dot = '\0';
            if (fill_address(directory, item->d_name, &address) && is_alive(&address)) {
                status = words_add(names_p, item->d_name, err);
            }
        }
    }
    if (stream != NULL) {
        closedir(stream);
    }
    return status;
}

/* All that comes until the other side closes. NULL: nothing came, or not all. */
static char *
read_all(int fd)
{
    size_t capacity = 64 << 10;
    size_t used = 0;
    char *text = malloc(capacity);

    while (text != NULL) {
        const ssize_t count = read(fd, text + used, capacity - used - 1);

        if (count < 0) {
            break;
        }
        used += (size_t)count;
        if (count == 0) {
            text[used] = '\0';
            return text;
        }
        if (used + 1 == capacity) {
            char *grown = capacity * 2 > ANSWER_BYTES_MAX ? NULL : realloc(text, capacity * 2);

            if (grown == NULL) {
                break;
            }
            text = grown;
            capacity *= 2;
        }
    }
    free(text);
    return NULL;
}

psd_status
jobs_ask(const char *name, const char *line, char **answer_p, struct psd_error *err)
{
    struct sockaddr_un address;
    char directory[JOBS_PATH_BYTES];
    psd_status status = find_directory(directory, err);
    int fd;

    if (status != PSD_OK) {
        return status;
    }
    fd = fill_address(directory, name, &address) ? connect_to(&address) : -1;
    if (fd < 0) {
        return psi_fail(err, PSD_ERR_REFUSED, "no job of yours named %s runs on this machine",
                        name);
    }
    *answer_p = NULL;
    if (write(fd, line, strlen(line)) == (ssize_t)strlen(line)) {
        *answer_p = read_all(fd);
    }
    close(fd);
    return *answer_p != NULL ? PSD_OK : psi_fail(err, PSD_ERR_IO, "job %s does not answer", name);
}

/* ------------------------------------------------------------------------------------ names --- */

static const char *
base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static bool
is_interpreter(const char *program)
{
    static const char *const known[] = {"python", "sh", "bash", "perl", "env", "ruby", "julia"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strncmp(program, known[i], strlen(known[i])) == 0) {
            return true;
        }
    }
    return false;
}

void
jobs_name_of(char *const *argv, char name_p[JOBS_NAME_BYTES])
{
    const char *source = base_name(argv[0]);
    size_t used = 0;

    for (size_t i = 1; is_interpreter(source) && argv[i] != NULL; i++) {
        if (argv[i][0] != '-' && strchr(argv[i], ' ') == NULL) {
            source = base_name(argv[i]);
            break;
        }
    }
    for (; source[used] != '\0' && source[used] != '.' && used < 32; used++) {
        const unsigned char c = (unsigned char)source[used];

        name_p[used] = isalnum(c) || c == '_' || c == '-' ? (char)c : '_';
    }
    name_p[used] = '\0';
    if (used == 0) {
        snprintf(name_p, JOBS_NAME_BYTES, "job");
    }
}
