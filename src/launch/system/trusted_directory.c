/*
 * trusted_directory.c - opens a directory step by step, looking at who owns each step.
 *
 * Every step is opened from the one before and never through a link that was not looked at, so that
 * nobody can exchange what was found good.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/trusted_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/fail.h"
#include "launch/system/close_fd.h"

enum { PATH_BYTES = 4096, LINKS_MAX = 40 };

struct walk {
    const char *path;      /* as asked for */
    int fd;                /* where we are */
    struct stat here;      /* ... and what that is */
    char rest[PATH_BYTES]; /* of the way */
    char name[256];        /* of where we are, for messages */
    unsigned links;        /* followed so far */
};

static const char *
user_name(uid_t user)
{
    const struct passwd *entry = getpwuid(user);

    return entry != NULL ? entry->pw_name : "unknown";
}

/* Whether the user is alone in the group. */
static bool
is_private_group(gid_t group)
{
    const struct passwd *user = getpwuid(geteuid());
    const struct group *entry;

    if (user == NULL || user->pw_gid != group) {
        return false;
    }
    entry = getgrgid(group);
    if (entry == NULL || strcmp(entry->gr_name, user->pw_name) != 0) {
        return false;
    }
    for (char *const *member = entry->gr_mem; *member != NULL; member++) {
        if (strcmp(*member, user->pw_name) != 0) {
            return false;
        }
    }
    return true;
}

static bool
anybody_writes(const struct stat *info)
{
    return (info->st_mode & S_IWOTH) != 0;
}

/* Something that we are about to enter, or a link that we are about to follow. */
static psd_status
check_owner(const struct walk *walk, const char *name, const struct stat *info,
            struct psd_error *err)
{
    if (!anybody_writes(&walk->here) || info->st_uid == 0 || info->st_uid == geteuid()) {
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_REFUSED,
                    "%s: %s in it belongs to user %u (%s), and stands where everybody may write: "
                    "what is below could be anybody's; take a directory of your own",
                    walk->path, name, (unsigned)info->st_uid, user_name(info->st_uid));
}

/* A directory on the way. */
static psd_status
check_step(const struct walk *walk, struct psd_error *err)
{
    if (anybody_writes(&walk->here) && (walk->here.st_mode & S_ISVTX) == 0) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "%s: everybody may rename what is in %s (mode %04o, no sticky bit): take "
                        "another directory, or let its owner run: chmod +t",
                        walk->path, walk->name, (unsigned)walk->here.st_mode & 07777);
    }
    return PSD_OK;
}

/* The end of the way. */
static psd_status
check_end(const struct walk *walk, struct psd_error *err)
{
    const struct stat *info = &walk->here;

    if (info->st_uid != geteuid()) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "%s belongs to user %u (%s), this is user %u: its files could be "
                        "anybody's; take a directory of your own",
                        walk->path, (unsigned)info->st_uid, user_name(info->st_uid),
                        (unsigned)geteuid());
    }
    if (anybody_writes(info) ||
        ((info->st_mode & S_IWGRP) != 0 && !is_private_group(info->st_gid))) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "%s: others may write to it (mode %04o): its files could be anybody's; "
                        "look at them, then run: chmod go-w %s",
                        walk->path, (unsigned)info->st_mode & 07777, walk->path);
    }
    return PSD_OK;
}

/* Goes to a directory relative to where we are. */
static psd_status
enter(struct walk *walk, const char *name, struct psd_error *err)
{
    int fd = openat(walk->fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;
    psd_status status;

    if (fd < 0 || fstat(fd, &info) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "%s: %s", walk->path, name);
    } else {
        status = check_owner(walk, name, &info, err);
    }
    if (status != PSD_OK) {
        close_fd(&fd);
        return status;
    }
    close_fd(&walk->fd);
    walk->fd = fd;
    walk->here = info;
    snprintf(walk->name, sizeof(walk->name), "%.255s", name);
    return PSD_OK;
}

/* Puts what a link says in front of the rest of the way. */
static psd_status
follow(struct walk *walk, const char *name, struct psd_error *err)
{
    char target[PATH_BYTES];
    char whole[2 * PATH_BYTES];
    const ssize_t bytes = readlinkat(walk->fd, name, target, sizeof(target));

    if (bytes < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "%s: %s", walk->path, name);
    }
    snprintf(whole, sizeof(whole), "%.*s/%s", (int)bytes, target, walk->rest);
    if (++walk->links > LINKS_MAX || strlen(whole) >= sizeof(walk->rest)) {
        return psi_fail(err, PSD_ERR_IO, "%s: too many links, or too long", walk->path);
    }
    memcpy(walk->rest, whole, strlen(whole) + 1);
    return target[0] == '/' ? enter(walk, "/", err) : PSD_OK;
}

static bool
is_last(const struct walk *walk)
{
    return walk->rest[strspn(walk->rest, "/")] == '\0';
}

/* Takes the next name of the way out of it. Returns false at the end. */
static bool
next_name(struct walk *walk, char name_p[PATH_BYTES])
{
    const size_t slashes = strspn(walk->rest, "/");
    const size_t bytes = strcspn(walk->rest + slashes, "/");

    memcpy(name_p, walk->rest + slashes, bytes);
    name_p[bytes] = '\0';
    memmove(walk->rest, walk->rest + slashes + bytes, strlen(walk->rest + slashes + bytes) + 1);
    return bytes > 0;
}

static psd_status
step(struct walk *walk, const char *name, struct psd_error *err)
{
    struct stat info;
    psd_status status = check_step(walk, err);

    if (status != PSD_OK) {
        return status;
    }
    if (fstatat(walk->fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0 &&
        (errno != ENOENT || (mkdirat(walk->fd, name, 0755) != 0 && errno != EEXIST) ||
         fstatat(walk->fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0)) {
        return psi_fail_errno(err, PSD_ERR_IO, "make %s", walk->path);
    }
    if (!S_ISLNK(info.st_mode)) {
        return enter(walk, name, err);
    }
    if (is_last(walk)) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "%s is a link: whoever made it chose where the files go; take the "
                        "directory itself",
                        walk->path);
    }
    status = check_owner(walk, name, &info, err);
    return status == PSD_OK ? follow(walk, name, err) : status;
}

psd_status
trusted_directory_open(const char *path, int *fd_p, struct psd_error *err)
{
    struct walk walk = {.path = path, .fd = -1};
    char name[PATH_BYTES];
    psd_status status;

    if (path[0] != '/' || strlen(path) >= sizeof(walk.rest)) {
        return psi_fail(err, PSD_ERR_INVALID, "%.200s: not an absolute path, or too long", path);
    }
    snprintf(walk.rest, sizeof(walk.rest), "%s", path);
    status = enter(&walk, "/", err);
    while (status == PSD_OK && next_name(&walk, name)) {
        status = step(&walk, name, err);
    }
    status = status == PSD_OK ? check_end(&walk, err) : status;
    if (status != PSD_OK) {
        close_fd(&walk.fd);
        return status;
    }
    *fd_p = walk.fd;
    return PSD_OK;
}
