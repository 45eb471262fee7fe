/*
 * filters.c - processes that stand between a worker and its pipes, as /proc shows them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/filters.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "launch/system/close_fd.h"
#include "launch/text/mask.h"
#include "launch/text/words.h"

enum { NAMED_MAX = 3, COMMAND_BYTES = 80, COMMAND_READ_BYTES = 1024 };

void
filters_pipes_fini(struct filters_pipes *pipes)
{
    free(pipes->inodes);
    *pipes = (struct filters_pipes){0};
}

void
filters_pipes_add(struct filters_pipes *pipes, int fd)
{
    struct stat info;
    ino_t *inodes;

    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) {
        return;
    }
    inodes = realloc(pipes->inodes, (pipes->count + 1) * sizeof(*inodes));
    if (inodes != NULL) {
        pipes->inodes = inodes;
        pipes->inodes[pipes->count++] = info.st_ino;
    }
}

/* What a process has under a descriptor, if that is a pipe. 0: it is not, or nobody may look. */
static ino_t
pipe_of(pid_t pid, const char *fd)
{
    char path[64];
    struct stat info;

    snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", (int)pid, fd);
    return stat(path, &info) == 0 && S_ISFIFO(info.st_mode) ? info.st_ino : 0;
}

/* The three that a filter has. */
struct ends {
    pid_t pid;
    ino_t in;
    ino_t out;
    ino_t err;
    bool filters;
};

static bool
is_one_of(ino_t inode, const struct filters_pipes *pipes)
{
    for (size_t i = 0; i < pipes->count; i++) {
        if (inode == pipes->inodes[i]) {
            return true;
        }
    }
    return false;
}

/* Whether what a process prints goes into one of the pipes, at once or through another filter. */
static bool
leads_to(const struct ends *ends, const struct filters_pipes *pipes, const struct ends *all,
         size_t count)
{
    if (is_one_of(ends->out, pipes) || is_one_of(ends->err, pipes)) {
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        if (all[i].filters && all[i].in != 0 &&
            (all[i].in == ends->out || all[i].in == ends->err)) {
            return true;
        }
    }
    return false;
}

/* From the pipes backwards: as many passes as the longest chain has members. */
static void
mark(struct ends *all, size_t count, const struct filters_pipes *pipes)
{
    bool changed = true;

    while (changed) {
        changed = false;
        for (size_t i = 0; i < count; i++) {
            if (!all[i].filters && all[i].in != 0 && !is_one_of(all[i].in, pipes) &&
                leads_to(&all[i], pipes, all, count)) {
                all[i].filters = true;
                changed = true;
            }
        }
    }
}

void
filters_find(pid_t root, const struct tree_pids *leaders, const struct filters_pipes *pipes,
             struct tree_pids *found)
{
    struct tree_pids pids = {0};
    struct ends *all;

    tree_list(&(struct tree_pick){.root = root}, &pids);
    all = calloc(pids.count + 1, sizeof(*all));
    for (size_t i = 0; all != NULL && i < pids.count; i++) {
        const pid_t pid = pids.list[i];

        all[i] = (struct ends){.pid = pid};
        if (!tree_pids_have(leaders, pid)) {
            all[i].in = pipe_of(pid, "0");
            all[i].out = pipe_of(pid, "1");
            all[i].err = pipe_of(pid, "2");
        }
    }
    if (all != NULL) {
        mark(all, pids.count, pipes);
    }
    for (size_t i = 0; all != NULL && i < pids.count; i++) {
        if (all[i].filters) {
            tree_pids_add(found, all[i].pid);
        }
    }
    free(all);
    tree_pids_fini(&pids);
}

static bool
holds(pid_t pid, const struct filters_pipes *pipes)
{
    char path[32];
    struct dirent *item;
    bool found = false;
    DIR *directory;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    directory = opendir(path);
    while (directory != NULL && !found && (item = readdir(directory)) != NULL) {
        found = is_one_of(pipe_of(pid, item->d_name), pipes);
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return found;
}

void
filters_find_holders(pid_t root, const struct filters_pipes *pipes, struct tree_pids *found)
{
    struct tree_pids pids = {0};

    tree_list(&(struct tree_pick){.root = root}, &pids);
    for (size_t i = 0; i < pids.count; i++) {
        if (holds(pids.list[i], pipes)) {
            tree_pids_add(found, pids.list[i]);
        }
    }
    tree_pids_fini(&pids);
}

/* Its command line, without passwords. */
static void
read_command(pid_t pid, char text_p[COMMAND_BYTES])
{
    char bytes[COMMAND_READ_BYTES + 1] = "";
    struct words words = {0};
    char path[32];
    ssize_t count;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    count = fd >= 0 ? read(fd, bytes, COMMAND_READ_BYTES) : 0;
    close_fd(&fd);
    for (const char *at = bytes; at < bytes + count; at += strlen(at) + 1) {
        words_add(&words, at);
    }
    mask_words(&words, text_p, COMMAND_BYTES);
    words_fini(&words);
    for (char *c = text_p; *c != '\0'; c++) {
        *c = *c >= 0x20 && *c < 0x7f ? *c : ' ';
    }
}

void
filters_describe(const struct tree_pids *pids, char *text_p, size_t size)
{
    size_t used = 0;

    text_p[0] = '\0';
    for (size_t i = 0; i < pids->count && i < NAMED_MAX && used < size; i++) {
        char command[COMMAND_BYTES];

        read_command(pids->list[i], command);
        used += (size_t)snprintf(text_p + used, size - used, "%spid %d (%s)", i > 0 ? ", " : "",
                                 (int)pids->list[i], command[0] != '\0' ? command : "?");
    }
    if (pids->count > NAMED_MAX && used < size) {
        snprintf(text_p + used, size - used, " and %zu more", pids->count - NAMED_MAX);
    }
}
