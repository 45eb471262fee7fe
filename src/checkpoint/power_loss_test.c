/*
 * power_loss_test.c - the power goes at any moment while a checkpoint is written: what was not synced is there, is
 * not, or is there in half, in any order.
 *
 * Everything that saving does to the disk is written down. Then disks are made that a machine may have after it lost
 * its power behind any of these calls: bytes and names that were synced by then, and of the others what chance
 * leaves. In each of them there must be two whole generations, and no newer one that is not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/read.h"
#include "checkpoint/saved_bed.h"

enum {
    FDS = 1024,
    NAME_BYTES = 64,
    INODES_MAX = 256,
    FILE_BYTES_MAX = 64 << 10,
    CALLS_MAX = 4096,
    STEPS_BEFORE = 4, /* saved before the power may go */
    STEPS = 7,
    LOSSES = 24, /* disks made for each call; PSD_POWER_LOSSES has another number */
};

/* ------------------------------------------------------------------- a disk that writes down --- */

enum call_kind {
    CALL_CREATE,
    CALL_RESERVE,
    CALL_WRITE,
    CALL_SYNC,
    CALL_RENAME,
    CALL_REMOVE,
    CALL_SYNC_NAMES
};

struct call {
    enum call_kind kind;
    unsigned inode; /* CREATE to SYNC */
    uint64_t offset;
    size_t bytes;
    uint8_t *data;         /* owned; WRITE */
    char name[NAME_BYTES]; /* CREATE, RENAME, REMOVE */
    char to[NAME_BYTES];   /* RENAME */
};

struct name {
    char text[NAME_BYTES]; /* "": free */
    unsigned inode;
};

/* All that was done, and what the names are now. */
struct recorder {
    struct call call[CALLS_MAX];
    unsigned calls;
    unsigned inodes;
    unsigned inode_of[FDS];
    bool is_the_directory[FDS];
    struct name names[INODES_MAX];
};

static struct name *
find_name(struct name *names, const char *text)
{
    for (unsigned i = 0; i < INODES_MAX; i++) {
        if (strcmp(names[i].text, text) == 0) {
            return &names[i];
        }
    }
    return NULL;
}

static struct call *
record(struct recorder *recorder, enum call_kind kind, unsigned inode)
{
    struct call *call = &recorder->call[recorder->calls];

    assert_true(recorder->calls < CALLS_MAX);
    recorder->calls++;
    *call = (struct call){.kind = kind, .inode = inode};
    return call;
}

static void
copy_name(char to[NAME_BYTES], const char *name)
{
    assert_true(strlen(name) < NAME_BYTES);
    strcpy(to, name);
}

static void
apply_name(struct name *names, const struct call *call)
{
    struct name *name =
        call->kind == CALL_CREATE ? find_name(names, "") : find_name(names, call->name);
    struct name *replaced = call->kind == CALL_RENAME ? find_name(names, call->to) : NULL;

    if (name == NULL) {
        return; /* its creation did not get to the disk */
    }
    if (replaced != NULL && replaced != name) {
        replaced->text[0] = '\0';
    }
    if (call->kind == CALL_REMOVE) {
        name->text[0] = '\0';
    } else {
        copy_name(name->text, call->kind == CALL_CREATE ? call->name : call->to);
        name->inode = call->kind == CALL_CREATE ? call->inode : name->inode;
    }
}

static int
record_open(void *self, int directory, const char *name, int flags)
{
    struct recorder *recorder = self;
    const int fd = psi_disk_system.open(NULL, directory, name, flags);

    if (fd < 0) {
        return fd;
    }
    assert_true(fd < FDS);
    recorder->is_the_directory[fd] = (flags & O_DIRECTORY) != 0 && strcmp(name, "..") != 0;
    if ((flags & O_CREAT) != 0) {
        struct call *call = record(recorder, CALL_CREATE, recorder->inodes);

        assert_true(recorder->inodes < INODES_MAX);
        copy_name(call->name, name);
        apply_name(recorder->names, call);
        recorder->inode_of[fd] = recorder->inodes++;
    } else if ((flags & O_DIRECTORY) == 0) {
        const struct name *found = find_name(recorder->names, name);

        assert_non_null(found);
        recorder->inode_of[fd] = found->inode;
    }
    return fd;
}

static int
record_reserve(void *self, int fd, uint64_t bytes)
{
    struct recorder *recorder = self;

    record(recorder, CALL_RESERVE, recorder->inode_of[fd])->bytes = bytes;
    return psi_disk_system.reserve(NULL, fd, bytes);
}

static ssize_t
record_write(void *self, int fd, const void *data, size_t bytes, uint64_t offset)
{
    struct recorder *recorder = self;
    struct call *call = record(recorder, CALL_WRITE, recorder->inode_of[fd]);

    assert_true(offset + bytes <= FILE_BYTES_MAX);
    call->offset = offset;
    call->bytes = bytes;
    call->data = malloc(bytes);
    assert_non_null(call->data);
    memcpy(call->data, data, bytes);
    return psi_disk_system.write(NULL, fd, data, bytes, offset);
}

static ssize_t
record_read(void *self, int fd, void *data, size_t bytes, uint64_t offset)
{
    (void)self;
    return psi_disk_system.read(NULL, fd, data, bytes, offset);
}

static int
record_sync(void *self, int fd)
{
    struct recorder *recorder = self;

    record(recorder, CALL_SYNC, recorder->inode_of[fd]);
    return 0;
}

static int
record_sync_directory(void *self, int fd)
{
    struct recorder *recorder = self;

    if (recorder->is_the_directory[fd]) { /* and not the one above */
        record(recorder, CALL_SYNC_NAMES, 0);
    }
    return 0;
}

static int
record_rename(void *self, int directory, const char *from, const char *to)
{
    struct recorder *recorder = self;
    struct call *call = record(recorder, CALL_RENAME, 0);

    copy_name(call->name, from);
    copy_name(call->to, to);
    apply_name(recorder->names, call);
    return psi_disk_system.rename(NULL, directory, from, to);
}

static int
record_remove(void *self, int directory, const char *name)
{
    struct recorder *recorder = self;
    const int code = psi_disk_system.remove(NULL, directory, name);

    if (code == 0) {
        struct call *call = record(recorder, CALL_REMOVE, 0);

        copy_name(call->name, name);
        apply_name(recorder->names, call);
    }
    return code;
}

static struct psi_disk
disk_of(struct recorder *recorder)
{
    return (struct psi_disk){.self = recorder,
                             .open = record_open,
                             .reserve = record_reserve,
                             .write = record_write,
                             .read = record_read,
                             .sync = record_sync,
                             .sync_directory = record_sync_directory,
                             .rename = record_rename,
                             .remove = record_remove};
}

/* ------------------------------------------------------------------------------ what is left --- */

struct file {
    uint8_t data[FILE_BYTES_MAX];
    size_t bytes;
};

/* What becomes of a call that was not synced. */
enum fate { FATE_LOST, FATE_DONE, FATE_TORN };

/* Of disk 0 nothing is left that was not synced, of disk 1 all of it, of every second one the names as far as some
 * moment, as disks with a journal have them. */
struct loss {
    unsigned number;
    uint64_t random;
    unsigned names_until; /* a call */
};

static uint64_t
draw(struct loss *loss)
{
    loss->random += UINT64_C(0x9e3779b97f4a7c15);
    loss->random ^= loss->random >> 29;
    loss->random *= UINT64_C(0xbf58476d1ce4e5b9);
    return loss->random >> 20;
}

static enum fate
fate_of(struct loss *loss, const struct call *call, unsigned at)
{
    const bool is_name = call->kind >= CALL_RENAME || call->kind == CALL_CREATE;
    const uint64_t number = draw(loss) % 100;

    if (loss->number < 2) {
        return loss->number == 0 ? FATE_LOST : FATE_DONE;
    }
    if (is_name && loss->number % 2 == 0) {
        return at < loss->names_until ? FATE_DONE : FATE_LOST;
    }
    return number < 45 ? FATE_LOST : number < 85 || is_name ? FATE_DONE : FATE_TORN;
}

/* Is it on the disk for sure when the power goes behind so many calls? */
static bool
is_synced(const struct recorder *recorder, unsigned at, unsigned calls)
{
    const struct call *call = &recorder->call[at];
    const bool is_name = call->kind >= CALL_RENAME || call->kind == CALL_CREATE;

    for (unsigned i = at + 1; i < calls; i++) {
        const struct call *later = &recorder->call[i];

        if (is_name ? later->kind == CALL_SYNC_NAMES
                    : later->kind == CALL_SYNC && later->inode == call->inode) {
            return true;
        }
    }
    return false;
}

static void
apply_bytes(struct file *file, const struct call *call, enum fate fate)
{
    const size_t bytes = fate == FATE_TORN ? call->bytes / 2 : call->bytes;
    const size_t end = call->kind == CALL_WRITE ? call->offset + bytes : bytes;

    if (call->kind == CALL_WRITE) {
        memcpy(file->data + call->offset, call->data, bytes);
    }
    file->bytes = end > file->bytes ? end : file->bytes;
}

static void
write_files(const char *path, const struct name *names, const struct file *files)
{
    clear_directory(path);
    for (unsigned i = 0; i < INODES_MAX; i++) {
        char file[300];
        int fd;

        if (names[i].text[0] == '\0') {
            continue;
        }
        snprintf(file, sizeof(file), "%s/%.63s", path, names[i].text);
        fd = open(file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, files[names[i].inode].data, files[names[i].inode].bytes),
                         files[names[i].inode].bytes);
        close(fd);
    }
}

/* A disk as it may be when the power goes behind so many calls. */
static void
make_disk(const struct recorder *recorder, unsigned calls, struct loss *loss, const char *path)
{
    struct file *files = calloc(recorder->inodes, sizeof(*files));
    struct name names[INODES_MAX] = {{{0}, 0}};

    assert_non_null(files);
    for (unsigned at = 0; at < calls; at++) {
        const struct call *call = &recorder->call[at];
        const enum fate fate = is_synced(recorder, at, calls) ? FATE_DONE : fate_of(loss, call, at);

        if (fate == FATE_LOST || call->kind == CALL_SYNC || call->kind == CALL_SYNC_NAMES) {
            continue;
        }
        if (call->kind == CALL_RESERVE || call->kind == CALL_WRITE) {
            apply_bytes(&files[call->inode], call, fate);
        } else {
            apply_name(names, call);
        }
    }
    write_files(path, names, files);
    free(files);
}

/* ------------------------------------------------------------------------------------- tests --- */

struct story {
    struct recorder recorder;
    unsigned saved_at[STEPS + 1]; /* by step: so many calls had been made when it was saved */
};

static struct story *
tell_story(const char *path)
{
    struct story *story = calloc(1, sizeof(*story));
    struct server_pair pair;
    struct psi_disk disk;

    assert_non_null(story);
    disk = disk_of(&story->recorder);
    pair_init(&pair, path);
    for (uint64_t step = 1; step <= STEPS; step++) {
        go_to(&pair, step);
        pair.writes_all = pair.writes_all || step == STEPS;
        assert_int_equal(save_step(&pair, &disk, step), PSD_OK);
        story->saved_at[step] = story->recorder.calls;
    }
    pair_fini(&pair);
    return story;
}

static void
forget(struct story *story)
{
    for (unsigned i = 0; i < story->recorder.calls; i++) {
        free(story->recorder.call[i].data);
    }
    free(story);
}

static unsigned
losses(void)
{
    const char *text = getenv("PSD_POWER_LOSSES");

    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : LOSSES;
}

static int
sync_nothing(void *self, int fd)
{
    (void)self;
    (void)fd;
    return 0;
}

/* Who goes on with that disk can save. */
static void
expect_to_go_on(const char *path)
{
    struct psi_disk quick = psi_disk_system;
    struct server_pair pair;
    uint64_t newest;

    quick.sync = sync_nothing;
    quick.sync_directory = sync_nothing;
    pair_init(&pair, path);
    go_to(&pair, 1);
    assert_int_equal(save_step(&pair, &quick, 1), PSD_OK);
    assert_true(count_whole(path, &newest) >= 2);
    assert_int_equal(newest, 1);
    pair_fini(&pair);
}

/* A generation exists when its manifest does: nobody is told of a newer one that is not whole. */
static void
expect_no_half_generation(const char *path)
{
    struct psi_checkpoint *checkpoint;
    struct psd_error err;

    assert_int_equal(psi_checkpoint_open(&psi_disk_system, path, &checkpoint, &err), PSD_OK);
    assert_string_equal(err.text, "");
    psi_checkpoint_destroy(checkpoint);
}

/* The step that was saved last when so many calls had been made. */
static uint64_t
last_step(const struct story *story, unsigned calls)
{
    uint64_t step = 0;

    while (step < STEPS && story->saved_at[step + 1] <= calls) {
        step++;
    }
    return step;
}

/* If this fails, a machine that loses its power while a checkpoint is written has no intact one, or one that was
 * told to be saved is lost; or the job that goes on there cannot save. */
static void
test_power_lost_at_any_call(void **state)
{
    const char *path = *state;
    char after[] = "/tmp/psd_power_XXXXXX";
    struct story *story = tell_story(path);
    const unsigned begin = story->saved_at[STEPS_BEFORE];
    unsigned disks = 0;

    assert_non_null(mkdtemp(after));
    for (unsigned calls = begin; calls <= story->recorder.calls; calls++) {
        const uint64_t saved = last_step(story, calls);

        for (unsigned number = 0; number < losses(); number++) {
            struct loss loss = {.number = number, .random = UINT64_C(1000003) * calls + number};
            uint64_t newest;

            loss.names_until = begin + (unsigned)(draw(&loss) % (calls - begin + 1));
            make_disk(&story->recorder, calls, &loss, after);
            if (count_whole(after, &newest) < 2 || newest < saved || newest > saved + 1) {
                fail_msg("disk %u after call %u: %u generations are whole, step %u was saved, the "
                         "newest is of %u",
                         number, calls, count_whole(after, &newest), (unsigned)saved,
                         (unsigned)newest);
            }
            expect_no_half_generation(after);
            if (disks++ % 16 == 0) {
                expect_to_go_on(after);
            }
        }
    }
    assert_true(story->recorder.calls - begin > 40);
    clear_directory(after);
    assert_int_equal(rmdir(after), 0);
    forget(story);
}

/* If this fails, these tests see no damage where there is some, and would pass whatever saving does. */
static void
test_damage_is_seen(void **state)
{
    const char *path = *state;
    struct story *story = tell_story(path);
    struct loss nothing = {.number = 0};
    uint64_t newest;

    for (unsigned i = 0; i < story->recorder.calls; i++) {
        if (story->recorder.call[i].kind == CALL_SYNC) {
            story->recorder.call[i].inode = INODES_MAX; /* as if it had never been asked for */
        }
    }
    make_disk(&story->recorder, story->recorder.calls, &nothing, path);
    assert_int_equal(count_whole(path, &newest), 0);
    forget(story);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_power_lost_at_any_call, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(test_damage_is_seen, make_directory, remove_directory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
