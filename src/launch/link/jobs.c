/*
 * jobs.c - the jobs that run here for this user.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/link/jobs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/fail.h"
#include "config/settings.h"
#include "launch/system/close_fd.h"

enum {
    SAME_NAME_MAX = 1000,
    ANSWER_MS = 5000,
    AGAIN_MS = 10,
    ANSWER_BYTES_MAX = 64 << 20,
    BACKLOG = 16,
    TRIES = 256, /* to enter a directory that others take away */
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

/* Connects to a job. Returns the socket, or -1 with errno; EAGAIN: too many wait there already. */
static int
connect_to(const struct sockaddr_un *address, int flags)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    const struct timeval limit = {.tv_sec = ANSWER_MS / 1000};

    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* connect() heeds it too */
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0) {
        const int code = errno;

        close(fd);
        errno = code;
        return -1;
    }
    return fd;
}

static bool
is_alive(const struct sockaddr_un *address)
{
    int fd = connect_to(address, SOCK_NONBLOCK);
    const bool alive = fd >= 0 || errno == EAGAIN;

    close_fd(&fd);
    return alive;
}

/*
 * Takes away the socket of a job that was killed. The caller holds the lock: between the question
 * and the removal nobody else puts a socket there.
 */
static void
clear_dead(const struct sockaddr_un *address)
{
    if (!is_alive(address) && errno == ECONNREFUSED) {
        unlink(address->sun_path);
    }
}

/*
 * Sockets get and lose their names under this lock alone; it ends with its holder. Returns a
 * descriptor for unlock(), or -1 with errno: EWOULDBLOCK when somebody holds it and does not let
 * go, ENOENT when the directory is gone.
 */
static int
lock(const char *directory)
{
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat info;
    int code;

    for (int waited_ms = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; waited_ms += AGAIN_MS) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || waited_ms >= ANSWER_MS) {
            code = errno;
            close(fd);
            errno = code;
            return -1;
        }
        poll(NULL, 0, AGAIN_MS);
    }
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_nlink == 0) {
        close(fd); /* the last job left, and took the directory along */
        errno = ENOENT;
        return -1;
    }
    return fd;
}

/* Others may be leaving, and take the directory along: then it is made again. */
static psd_status
find_and_lock(char directory_p[JOBS_PATH_BYTES], int *locked_p, struct psd_error *err)
{
    for (unsigned i = 0; i < TRIES; i++) {
        psd_status status;

        errno = 0;
        status = find_directory(directory_p, err);
        if (status != PSD_OK && errno != ENOENT) {
            return status;
        }
        *locked_p = status == PSD_OK ? lock(directory_p) : -1;
        if (*locked_p >= 0) {
            return PSD_OK;
        }
        if (errno != ENOENT) {
            break;
        }
    }
    return psi_fail_errno(err, PSD_ERR_IO,
                          "lock %s, which another psd_run may hold (one that is stopped?)",
                          directory_p);
}

/* The directory goes with the last job. */
static void
unlock(const char *directory, int locked)
{
    if (locked >= 0) {
        rmdir(directory); /* fails while there are others */
        close(locked);
    }
}

/*
 * Returns a listening socket, or -1 with errno: EEXIST when the name is taken. Whoever finds a
 * socket under its name finds somebody who listens: it gets the name last.
 */
static int
listen_at(const char *directory, const struct sockaddr_un *address)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un newborn = {.sun_family = AF_UNIX};
    bool named;
    int code;

    snprintf(newborn.sun_path, sizeof(newborn.sun_path), "%.100s/new", directory);
    unlink(newborn.sun_path); /* of one that was killed here; we hold the lock */
    named = fd >= 0 && bind(fd, (const struct sockaddr *)&newborn, sizeof(newborn)) == 0 &&
            listen(fd, BACKLOG) == 0 && link(newborn.sun_path, address->sun_path) == 0;
    code = errno;
    unlink(newborn.sun_path);
    if (!named && fd >= 0) {
        close(fd);
    }
    errno = code;
    return named ? fd : -1;
}

/* The i-th choice of a name; false when it is too long. */
static bool
choose_name(const char *directory, const char *wanted, unsigned i, char name_p[JOBS_NAME_BYTES],
            struct sockaddr_un *address_p)
{
    if (i == 1) {
        snprintf(name_p, JOBS_NAME_BYTES, "%s", wanted);
    } else {
        snprintf(name_p, JOBS_NAME_BYTES, "%.50s-%u", wanted, i);
    }
    return fill_address(directory, name_p, address_p);
}

/* The caller holds the lock. */
static psd_status
enter_locked(const char *directory, const char *wanted, bool exact, struct jobs_entry *entry_p,
             struct psd_error *err)
{
    struct sockaddr_un address;
    char name[JOBS_NAME_BYTES];
    struct stat info;

    for (unsigned i = 1; i < SAME_NAME_MAX; i++) {
        if (!choose_name(directory, wanted, i, name, &address)) {
            return psi_fail(err, PSD_ERR_INVALID, "%s: the name is too long for a job", wanted);
        }
        clear_dead(&address);
        entry_p->listener = listen_at(directory, &address);
        if (entry_p->listener >= 0 && lstat(address.sun_path, &info) == 0) {
            snprintf(entry_p->name, sizeof(entry_p->name), "%s", name);
            snprintf(entry_p->path, sizeof(entry_p->path), "%s", address.sun_path);
            entry_p->device = info.st_dev;
            entry_p->inode = info.st_ino;
            return PSD_OK;
        }
        if (errno != EEXIST) {
            return psi_fail_errno(err, PSD_ERR_IO, "listen at %s", address.sun_path);
        }
        if (exact) {
            break;
        }
    }
    return psi_fail(err, PSD_ERR_STATE,
                    "a job named %s runs already: psd_run stop %s ends it, psd_run run replaces it",
                    wanted, wanted);
}

psd_status
jobs_enter(const char *wanted, bool exact, struct jobs_entry *entry_p, struct psd_error *err)
{
    char directory[JOBS_PATH_BYTES];
    psd_status status;
    int locked;

    *entry_p = (struct jobs_entry){.listener = -1};
    status = find_and_lock(directory, &locked, err);
    if (status != PSD_OK) {
        return status;
    }
    status = enter_locked(directory, wanted, exact, entry_p, err);
    unlock(directory, locked);
    return status;
}

void
jobs_forget(const char *path)
{
    const char *slash = strrchr(path, '/');
    char directory[JOBS_PATH_BYTES];
    int locked;

    if (slash != NULL) {
        snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
        locked = lock(directory);
        unlink(path);
        unlock(directory, locked);
    }
}

void
jobs_leave(struct jobs_entry *entry)
{
    char directory[JOBS_PATH_BYTES];
    struct stat info;
    int locked;

    if (entry->listener < 0) {
        return;
    }
    snprintf(directory, sizeof(directory), "%.*s", (int)(strrchr(entry->path, '/') - entry->path),
             entry->path);
    locked = lock(directory);
    /* If somebody took ours away, the name may be another job's by now. */
    if (locked >= 0 && lstat(entry->path, &info) == 0 && info.st_dev == entry->device &&
        info.st_ino == entry->inode) {
        unlink(entry->path);
    }
    unlock(directory, locked);
    close(entry->listener);
    entry->listener = -1;
}

/* The names of all that answer; the dead are cleared away. The caller holds the lock. */
static void
list_directory(DIR *stream, const char *directory, struct words *names_p)
{
    struct sockaddr_un address;
    struct dirent *item;

    while ((item = readdir(stream)) != NULL) {
        char *dot = strrchr(item->d_name, '.');

        if (dot == NULL || strcmp(dot, ending) != 0) {
            continue;
        }
        *dot = '\0';
        if (!fill_address(directory, item->d_name, &address)) {
            continue;
        }
        if (is_alive(&address)) {
            words_add(names_p, item->d_name);
        } else {
            clear_dead(&address);
        }
    }
}

psd_status
jobs_list(struct words *names_p, struct psd_error *err)
{
    char directory[JOBS_PATH_BYTES];
    DIR *stream;
    int locked;
    psd_status status = find_and_lock(directory, &locked, err);

    if (status != PSD_OK) {
        return status;
    }
    stream = opendir(directory);
    if (stream != NULL) {
        list_directory(stream, directory, names_p);
        closedir(stream);
    }
    unlock(directory, locked);
    return PSD_OK;
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
    fd = fill_address(directory, name, &address) ? connect_to(&address, 0) : -1;
    if (fd < 0) {
        return psi_fail(err, PSD_ERR_REFUSED, "no job of yours named %s runs on this machine",
                        name);
    }
    *answer_p = NULL;
    if (write(fd, line, strlen(line)) == (ssize_t)strlen(line)) {
        *answer_p = read_all(fd);
    }
    close(fd);
    return *answer_p != NULL
               ? PSD_OK
               : psi_fail(err, PSD_ERR_IO, "job %s does not answer: is its psd_run stopped?", name);
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
