/*
 * sync_test.c - the mark tells of whole archives alone; tar holds nobody up; nothing is written
 * through a link, and nothing that others could have prepared is used.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "launch/link/sync.h"
#include "launch/link/unpack.h"

static char base[] = "/tmp/psd_sync_XXXXXX";
static char source[64];
static char copy[64];

static int
make_base(void **state)
{
    (void)state;
    if (mkdtemp(base) == NULL) {
        return -1;
    }
    snprintf(source, sizeof(source), "%s/source", base);
    snprintf(copy, sizeof(copy), "%s/copy", base);
    return mkdir(source, 0755);
}

static int
remove_base(void **state)
{
    char command[96];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", base);
    return system(command);
}

static void
write_file(const char *directory, const char *name, const char *text, mode_t mode)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fchmod(fileno(file), mode), 0);
    fclose(file);
}

static bool
has(const char *directory, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

/* Asks whether the copy wants what the source holds now. */
static bool
offer(struct sync *sync_p, struct unpack *unpack)
{
    char *list[] = {copy, sync_p->digest, NULL};
    const struct words words = {.list = list, .count = 2};
    uint32_t wanted = 0;

    unpack_init(unpack);
    assert_int_equal(sync_pack(source, sync_p, NULL), PSD_OK);
    assert_int_equal(unpack_begin(unpack, &words, &wanted, NULL), PSD_OK);
    return wanted > 0;
}

/* What the agent does until there is news. */
static enum unpack_state
turn(struct unpack *unpack, struct psd_error *err)
{
    enum unpack_state state = UNPACK_GOES_ON;

    while (state == UNPACK_GOES_ON) {
        struct pollfd room = {.fd = unpack_fd(unpack), .events = POLLOUT};
        uint32_t more;
        int status;
        pid_t pid;

        poll(&room, 1, 10);
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            unpack_died(unpack, pid, status);
        }
        state = unpack_step(unpack, &more, err);
    }
    return state;
}

/* Gives some bytes of an archive, and its end. */
static enum unpack_state
give(struct unpack *unpack, const char *bytes, size_t count, struct psd_error *err)
{
    const struct link_message part = {.kind = LINK_FILES, .data = bytes, .bytes = (uint32_t)count};
    const struct link_message end = {.kind = LINK_FILES};

    assert_int_equal(unpack_take(unpack, &part, err), PSD_OK);
    assert_int_equal(unpack_take(unpack, &end, err), PSD_OK);
    return turn(unpack, err);
}

static void
expect_shipped(void)
{
    struct sync sync;
    struct unpack unpack;

    assert_true(offer(&sync, &unpack));
    assert_int_equal(give(&unpack, sync.bytes, sync.count, NULL), UNPACK_DONE);
    assert_true(has(copy, ".psd_sync"));
    sync_fini(&sync);
}

/* If this fails, a half of two versions passes for the first one, and is never mended. */
static void
test_broken_off(void **state)
{
    struct sync sync;
    struct unpack unpack;

    (void)state;
    write_file(source, "train.py", "one", 0644);
    expect_shipped();
    assert_false(offer(&sync, &unpack));
    sync_fini(&sync);
    write_file(source, "train.py", "two!", 0644);
    assert_true(offer(&sync, &unpack));
    assert_false(has(copy, ".psd_sync"));
    assert_int_equal(give(&unpack, sync.bytes, sync.count / 2, NULL), UNPACK_FAILED);
    assert_false(has(copy, ".psd_sync"));
    sync_fini(&sync);
    expect_shipped();
}

/* Begins to unpack with a program of that text instead of tar. */
static void
begin_with(struct unpack *unpack, const char *program)
{
    char *path = strdup(getenv("PATH"));
    char *longer = malloc(strlen(path) + sizeof(base) + 2);
    char digest[SYNC_DIGEST_BYTES] = "other";
    char *list[] = {copy, digest, NULL};
    const struct words words = {.list = list, .count = 2};
    uint32_t wanted = 0;

    write_file(base, "tar", program, 0755);
    sprintf(longer, "%s:%s", base, path);
    setenv("PATH", longer, 1);
    unpack_init(unpack);
    assert_int_equal(unpack_begin(unpack, &words, &wanted, NULL), PSD_OK);
    setenv("PATH", path, 1);
    assert_true(wanted > 0);
    free(longer);
    free(path);
}

/* If this fails, the agent is lost, and with it the machine, when a disk hangs. */
static void
test_tar_that_hangs(void **state)
{
    char *bytes = calloc(1, 1 << 20);
    const struct link_message late = {.kind = LINK_FILES, .data = "x", .bytes = 1};
    struct psd_error err = {0};
    struct unpack unpack;

    (void)state;
    begin_with(&unpack, "#!/bin/sh\nexec sleep 1000\n");
    unpack.stall_ms = 50;
    assert_int_equal(give(&unpack, bytes, 1 << 20, &err), UNPACK_FAILED);
    assert_non_null(strstr(err.text, copy));
    assert_int_equal(unpack_take(&unpack, &late, &err),
                     PSD_OK);          /* said once, the rest is dropped */
    while (waitpid(-1, NULL, 0) > 0) { /* it was killed: this ends */
    }
    unpack_fini(&unpack);
    free(bytes);
}

/* If this fails, a network disk that pauses for some seconds fails the job. */
static void
test_tar_that_is_slow(void **state)
{
    struct psd_error err = {0};
    struct unpack unpack;
    const struct link_message part = {.kind = LINK_FILES, .data = base, .bytes = sizeof(base)};
    const struct link_message end = {.kind = LINK_FILES};
    uint32_t more;

    (void)state;
    begin_with(&unpack, "#!/bin/sh\nexec cat >/dev/null\n");
    assert_int_equal(unpack_take(&unpack, &part, &err), PSD_OK);
    assert_int_equal(unpack_take(&unpack, &end, &err), PSD_OK);
    assert_int_equal(kill(unpack.pid, SIGSTOP), 0);
    unpack.moved_ms -= 60000; /* a minute later */
    assert_int_equal(unpack_step(&unpack, &more, &err), UNPACK_GOES_ON);
    assert_int_equal(kill(unpack.pid, SIGCONT), 0);
    assert_int_equal(turn(&unpack, &err), UNPACK_FAILED); /* it is not what was announced */
    assert_int_equal(err.status, PSD_ERR_CORRUPT);
    unpack_fini(&unpack);
}

/* If this fails, nobody learns why files could not be unpacked. */
static void
test_tar_says_why(void **state)
{
    struct psd_error err = {0};
    struct unpack unpack;

    (void)state;
    begin_with(&unpack, "#!/bin/sh\necho 'tar: x: No space left on device' >&2\n"
                        "echo 'tar: Exiting with failure status' >&2\nexit 2\n");
    assert_int_equal(give(&unpack, base, sizeof(base), &err), UNPACK_FAILED);
    assert_non_null(strstr(err.text, "x: No space left on device"));
    unpack_fini(&unpack);
}

/* If this fails, a repository that somebody cloned overwrites any file of theirs. */
static void
test_mark_that_is_a_link(void **state)
{
    struct sync sync;
    char link[96];
    char target[96];
    struct stat info;

    (void)state;
    write_file(base, "precious", "precious", 0644);
    snprintf(link, sizeof(link), "%s/.psd_sync", source);
    snprintf(target, sizeof(target), "%s/precious", base);
    unlink(link);
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(sync_pack(source, &sync, NULL), PSD_OK);
    sync_fini(&sync);
    assert_int_equal(stat(target, &info), 0);
    assert_int_equal(info.st_size, strlen("precious"));
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISREG(info.st_mode));
}

/* What the other end says to a directory. */
static psd_status
ask(const char *directory, struct psd_error *err)
{
    struct unpack unpack;
    struct sync sync;
    uint32_t wanted = 0;
    char *list[] = {(char *)(uintptr_t)directory, sync.digest, NULL};
    const struct words words = {.list = list, .count = 2};
    psd_status status;

    assert_int_equal(sync_pack(source, &sync, NULL), PSD_OK);
    unpack_init(&unpack);
    status = unpack_begin(&unpack, &words, &wanted, err);
    unpack_fini(&unpack);
    while (waitpid(-1, NULL, 0) > 0) {
    }
    sync_fini(&sync);
    return status;
}

/* A directory as somebody else could have left it, with a mark that fits. */
static void
prepare(const char *name, mode_t mode, char path_p[64])
{
    struct sync sync;
    char line[SYNC_DIGEST_BYTES + 1];

    assert_int_equal(sync_pack(source, &sync, NULL), PSD_OK);
    snprintf(line, sizeof(line), "%s\n", sync.digest);
    sync_fini(&sync);
    snprintf(path_p, 64, "%s/%s", base, name);
    assert_int_equal(mkdir(path_p, 0755), 0);
    write_file(path_p, ".psd_sync", line, 0644);
    assert_int_equal(chmod(path_p, mode), 0);
}

/* If this fails, whoever makes the directory first, in /tmp or on scratch, has their files run. */
static void
test_directory_of_others(void **state)
{
    struct psd_error err = {0};
    char path[64];
    char below[96];

    (void)state;
    prepare("open", 0777, path);
    assert_int_equal(ask(path, &err), PSD_ERR_REFUSED);
    assert_non_null(strstr(err.text, "others may write to it"));
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(ask(path, &err), PSD_OK);

    snprintf(below, sizeof(below), "%s/link", base);
    assert_int_equal(symlink(path, below), 0);
    assert_int_equal(ask(below, &err), PSD_ERR_REFUSED);
    assert_non_null(strstr(err.text, "is a link"));

    snprintf(below, sizeof(below), "%s/link/below", base); /* our own link on the way is fine */
    assert_int_equal(ask(below, &err), PSD_OK);

    assert_int_equal(chmod(path, 0777), 0); /* anybody could exchange what is in it */
    assert_int_equal(ask(below, &err), PSD_ERR_REFUSED);
    assert_non_null(strstr(err.text, "rename"));
    assert_int_equal(chmod(path, 01777), 0);
    assert_int_equal(ask(below, &err), PSD_OK);
}

/* If this fails, files are written where another user may change them. It takes root, who alone can
 * give a directory away. */
static void
test_directory_of_another_user(void **state)
{
    struct psd_error err = {0};
    char path[64];
    char below[96];

    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    prepare("theirs", 0755, path);
    assert_int_equal(chown(path, 12345, 12345), 0);
    assert_int_equal(ask(path, &err), PSD_ERR_REFUSED);
    assert_non_null(strstr(err.text, "belongs to user 12345"));

    snprintf(below, sizeof(below), "%s/ours", path); /* whom the site gave the directory above */
    assert_int_equal(ask(below, &err), PSD_OK);
    assert_int_equal(chmod(base, 01777), 0); /* ... or who took the name in a place like /tmp */
    assert_int_equal(ask(below, &err), PSD_ERR_REFUSED);
    assert_non_null(strstr(err.text, "everybody may write"));

    snprintf(below, sizeof(below), "%s/their_link", base);
    assert_int_equal(symlink(source, below), 0);
    assert_int_equal(lchown(below, 12345, 12345), 0);
    snprintf(below, sizeof(below), "%s/their_link/below", base);
    assert_int_equal(ask(below, &err), PSD_ERR_REFUSED);
    assert_int_equal(chmod(base, 0700), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_off),
        cmocka_unit_test(test_tar_that_hangs),
        cmocka_unit_test(test_tar_that_is_slow),
        cmocka_unit_test(test_tar_says_why),
        cmocka_unit_test(test_mark_that_is_a_link),
        cmocka_unit_test(test_directory_of_others),
        cmocka_unit_test(test_directory_of_another_user),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, make_base, remove_base);
}
