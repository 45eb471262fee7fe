/*
 * earlier_test.c - generations that refer to earlier ones: what did not change is not written again, and
 * every kept generation is whole, whatever was removed and wherever a crash came.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/earlier.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/needed.h"
#include "checkpoint/outline.h"
#include "checkpoint/part.h"
#include "checkpoint/read.h"
#include "checkpoint/saved_bed.h"
#include "checkpoint/write.h"

static bool
is_there(const char *path, const char *name)
{
    char file[300];

    snprintf(file, sizeof(file), "%s/%s", path, name);
    return access(file, F_OK) == 0;
}

enum { STEPS = 20 };

/* ------------------------------------------------------------------------------ a disk that fails --- */

/* Fails the fail_at-th call that changes anything, and all after it: a crash there. */
struct crash {
    unsigned calls;
    unsigned fail_at; /* 0: never */
    bool torn;        /* half of a write comes before */
    uint64_t written; /* bytes */
};

static bool
is_over(struct crash *crash)
{
    crash->calls++;
    if (crash->fail_at != 0 && crash->calls >= crash->fail_at) {
        errno = EIO;
        return true;
    }
    return false;
}

static int
crash_open(void *self, int directory, const char *name, int flags)
{
    return (flags & O_CREAT) != 0 && is_over(self)
               ? -1
               : psi_disk_system.open(NULL, directory, name, flags);
}

static int
crash_reserve(void *self, int fd, uint64_t bytes)
{
    return is_over(self) ? -1 : psi_disk_system.reserve(NULL, fd, bytes);
}

static ssize_t
crash_write(void *self, int fd, const void *data, size_t bytes, uint64_t offset)
{
    struct crash *crash = self;

    if (is_over(crash)) {
        if (crash->torn && crash->calls == crash->fail_at && bytes > 1) {
            (void)psi_disk_system.write(NULL, fd, data, bytes / 2, offset);
        }
        errno = EIO;
        return -1;
    }
    crash->written += bytes;
    return psi_disk_system.write(NULL, fd, data, bytes, offset);
}

static ssize_t
crash_read(void *self, int fd, void *data, size_t bytes, uint64_t offset)
{
    (void)self;
    return psi_disk_system.read(NULL, fd, data, bytes, offset);
}

static int
crash_sync(void *self, int fd)
{
    (void)fd;
    return is_over(self) ? -1 : 0; /* quicker; the order is checkpoint_test.c's */
}

static int
crash_rename(void *self, int directory, const char *from, const char *to)
{
    return is_over(self) ? -1 : psi_disk_system.rename(NULL, directory, from, to);
}

static int
crash_remove(void *self, int directory, const char *name)
{
    return is_over(self) ? -1 : psi_disk_system.remove(NULL, directory, name);
}

static struct psi_disk
disk_of(struct crash *crash)
{
    return (struct psi_disk){.self = crash,
                             .open = crash_open,
                             .reserve = crash_reserve,
                             .write = crash_write,
                             .read = crash_read,
                             .sync = crash_sync,
                             .sync_directory = crash_sync,
                             .rename = crash_rename,
                             .remove = crash_remove};
}

/* ----------------------------------------------------------------------------------- tests --- */

/* If this fails, what did not change is written again, or a generation that refers to others has other
 * values than there were. */
static void
test_what_did_not_change_is_not_written_again(void **state)
{
    struct server_pair pair;
    uint64_t newest;
    struct crash crash = {0};
    const struct psi_disk disk = disk_of(&crash);
    uint64_t first;

    pair_init(&pair, *state);
    go_to(&pair, 1);
    assert_int_equal(save_step(&pair, &disk, 1), PSD_OK);
    first = crash.written;
    crash.written = 0;
    go_to(&pair, 2);
    go_to(&pair, 3); /* pieces 0 and 1 */
    assert_int_equal(save_step(&pair, &disk, 3), PSD_OK);
    assert_true(is_there(*state, "params-2.changes") && !is_there(*state, "params-2.safetensors"));
    assert_true(is_there(*state, "state-2.safetensors"));
    assert_true(crash.written > 2 * PIECE && crash.written < first);
    assert_int_equal(count_whole(*state, &newest), 2);
    assert_int_equal(newest, 3);
    pair_fini(&pair);
}

/* One that is older than this is whole without it. */
static void
expect_independent(const char *path, uint64_t base)
{
    struct psi_checkpoint *checkpoint;

    while (base-- > 1) {
        if (psi_checkpoint_open_one(&psi_disk_system, path, base, true, &checkpoint, NULL) ==
            PSD_OK) {
            psi_checkpoint_destroy(checkpoint);
            return;
        }
    }
    fail_msg("all need the same file");
}

/* If this fails, a generation that is kept lacks what it refers to, or those that nobody needs stay. One
 * damaged file must not take all that is kept along. */
static void
test_what_is_referred_to_stays(void **state)
{
    struct server_pair pair;
    struct psi_directory directory;
    uint64_t newest;

    pair_init(&pair, *state);
    assert_int_equal(psi_directory_open(&directory, &psi_disk_system, *state, NULL), PSD_OK);
    for (uint64_t step = 1; step <= STEPS; step++) {
        go_to(&pair, step);
        pair.writes_all = step % 8 == 1;
        assert_int_equal(save_step(&pair, &psi_disk_system, step), PSD_OK);
        assert_true(count_whole(*state, &newest) >= (step > 1 ? 2 : 1));
        assert_int_equal(newest, step);
        if (step > 9) {
            expect_independent(*state, psi_needed_base(&directory, step));
        }
    }
    assert_false(is_there(*state, "manifest-1.json"));
    psi_directory_close(&directory);
    pair_fini(&pair);
}

static const char *const second[] = {"params-2.changes", "state-2.safetensors", "manifest-2.json"};

/* If this fails, a flipped bit or a missing end of a file that is referred to, or that refers, is not
 * found. */
static void
test_damage_is_found_wherever_it_is(void **state)
{
    struct server_pair pair;
    uint64_t newest;

    pair_init(&pair, *state);
    go_to(&pair, 1);
    assert_int_equal(save_step(&pair, &psi_disk_system, 1), PSD_OK);
    go_to(&pair, 2);
    assert_int_equal(save_step(&pair, &psi_disk_system, 2), PSD_OK);
    for (unsigned i = 0; i < sizeof(second) / sizeof(second[0]); i++) {
        char file[300];
        uint8_t bytes[4096];
        ssize_t count;
        int fd;

        snprintf(file, sizeof(file), "%s/%s", (const char *)*state, second[i]);
        fd = open(file, O_RDWR | O_CLOEXEC);
        count = pread(fd, bytes, sizeof(bytes), 0);
        assert_true(count > 0 && count < (ssize_t)sizeof(bytes));
        for (ssize_t bit = 0; bit < count * 8; bit++) {
            const uint8_t flipped = bytes[bit / 8] ^ (uint8_t)(1u << bit % 8);

            assert_int_equal(pwrite(fd, &flipped, 1, bit / 8), 1);
            (void)count_whole(*state, &newest);
            assert_int_equal(newest, 1);
            assert_int_equal(pwrite(fd, &bytes[bit / 8], 1, bit / 8), 1);
        }
        for (ssize_t length = 0; length < count; length++) {
            assert_int_equal(ftruncate(fd, length), 0);
            (void)count_whole(*state, &newest);
            assert_int_equal(newest, 1);
            assert_int_equal(pwrite(fd, bytes, (size_t)count, 0), count);
        }
        close(fd);
        (void)count_whole(*state, &newest);
        assert_int_equal(newest, 2);
    }
    pair_fini(&pair);
}

/* If this fails, damage to what others refer to counts for one generation, and the others are loaded with
 * it. */
static void
test_damage_to_a_base_is_found_in_all_that_need_it(void **state)
{
    struct server_pair pair;
    char file[300];
    uint64_t newest;
    struct stat stat;
    uint8_t byte;
    int fd;

    pair_init(&pair, *state);
    for (uint64_t step = 1; step <= 4; step++) {
        go_to(&pair, step);
        assert_int_equal(save_step(&pair, &psi_disk_system, step), PSD_OK);
    }
    assert_int_equal(count_whole(*state, &newest), 4); /* 4, 3, and 1 and 2, to which they refer */
    snprintf(file, sizeof(file), "%s/params-1.safetensors", (const char *)*state);
    fd = open(file, O_RDWR | O_CLOEXEC);
    assert_int_equal(fstat(fd, &stat), 0);
    assert_int_equal(pread(fd, &byte, 1, stat.st_size - 1), 1);
    byte ^= 8;
    assert_int_equal(pwrite(fd, &byte, 1, stat.st_size - 1), 1); /* piece 5: as at step 1 */
    close(fd);
    assert_int_equal(count_whole(*state, &newest), 0);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(count_whole(*state, &newest), 0);
    pair.writes_all = true;
    go_to(&pair, 5);
    assert_int_equal(save_step(&pair, &psi_disk_system, 5), PSD_OK);
    assert_int_equal(count_whole(*state, &newest), 1);
    pair_fini(&pair);
}

/* If this fails, a crash leaves fewer than the generations that there were, or one that is not whole
 * counts; or no job can go on writing after it. */
static void
test_crash_at_every_call(void **state)
{
    for (unsigned torn = 0; torn < 2; torn++) {
        bool crashed = true;

        for (unsigned at = 1; crashed; at++) {
            struct crash crash = {.torn = torn == 1};
            const struct psi_disk disk = disk_of(&crash);
            struct server_pair pair;
            uint64_t newest;

            pair_init(&pair, *state);
            for (uint64_t step = 1; step <= 4; step++) {
                go_to(&pair, step);
                assert_int_equal(save_step(&pair, &disk, step), PSD_OK);
            }
            go_to(&pair, 5);
            crash.fail_at = crash.calls + at;
            (void)save_step(&pair, &disk, 5);
            crashed = crash.calls >= crash.fail_at;
            assert_true(count_whole(*state, &newest) >= 2);
            assert_true(newest == 4 || newest == 5);
            crash.fail_at = 0;
            go_to(&pair, 6); /* the same servers, or others */
            if (at % 2 == 0) {
                psi_earlier_fini(&pair.earlier[1]);
            }
            assert_int_equal(save_step(&pair, &psi_disk_system, 6), PSD_OK);
            assert_true(count_whole(*state, &newest) >= 2);
            assert_int_equal(newest, 6);
            pair_fini(&pair);
            clear_directory(*state);
        }
    }
}

/* If this fails, a generation that was given up is referred to, or a file that is written into anew has
 * bytes where it refers elsewhere. */
static void
test_only_what_was_committed_is_referred_to(void **state)
{
    struct psi_earlier earlier = {0};
    const struct psi_part_order first = {.token = 1, .generation = 1};
    const struct psi_part_order given_up = {.token = 2, .generation = 2, .after = 1};
    const struct psi_part_order next = {.token = 3, .generation = 2, .after = 1};
    const struct psi_part_order other = {.token = 5, .generation = 4, .after = 4};

    (void)state;
    psi_earlier_begin(&earlier, &first);
    psi_earlier_add(&earlier, PSI_CHECKPOINT_PARAMS, (struct psi_piece){64, 1, 10, 77});
    assert_null(psi_earlier_find(&earlier, PSI_CHECKPOINT_PARAMS, 64, 10, 77));
    psi_earlier_begin(&earlier, &given_up);
    assert_non_null(psi_earlier_find(&earlier, PSI_CHECKPOINT_PARAMS, 64, 10, 77));
    assert_null(psi_earlier_find(&earlier, PSI_CHECKPOINT_STATE, 64, 10, 77));
    assert_null(psi_earlier_find(&earlier, PSI_CHECKPOINT_PARAMS, 64, 11, 77));
    psi_earlier_add(&earlier, PSI_CHECKPOINT_PARAMS, (struct psi_piece){64, 2, 10, 78});
    psi_earlier_begin(&earlier, &given_up); /* a later step, the same files */
    assert_null(psi_earlier_find(&earlier, PSI_CHECKPOINT_PARAMS, 64, 10, 77));
    psi_earlier_begin(&earlier, &next);
    assert_non_null(psi_earlier_find(&earlier, PSI_CHECKPOINT_PARAMS, 64, 10, 77));
    assert_null(psi_earlier_find(&earlier, PSI_CHECKPOINT_PARAMS, 64, 10, 78));
    psi_earlier_begin(&earlier, &other); /* somebody else's was committed */
    assert_null(psi_earlier_find(&earlier, PSI_CHECKPOINT_PARAMS, 64, 10, 77));
    psi_earlier_fini(&earlier);
}

/* If this fails, other bytes with the same checksum are taken for those of before. */
static void
test_equal_checksums_are_not_enough(void **state)
{
    struct server_pair pair;
    struct psi_outline outline = outline_of(2);
    struct psi_manifest_file sums = {0};
    const struct psi_checkpoint_shared shared = {.token = 9, .kept = 2, .refers = true};
    struct psi_part_order order = {.token = 9, .generation = 2, .after = 1};
    struct psi_checkpoint_writer *writer;
    struct psi_part_writer part;
    const uint64_t at = outline.begin[0][PSI_PART_VALUE];
    uint32_t checksum;

    pair_init(&pair, *state);
    go_to(&pair, 1);
    assert_int_equal(save_step(&pair, &psi_disk_system, 1), PSD_OK);
    change_piece(&pair, 0, 2);
    memcpy(order.bytes, outline.bytes, sizeof(order.bytes));
    assert_true(psi_manifest_file_init(&sums, outline.bytes[0]));
    checksum = psi_manifest_file_add(&sums, at, pair.values[0], PIECE);
    psi_manifest_file_fini(&sums);
    psi_earlier_add(&pair.earlier[0], PSI_CHECKPOINT_PARAMS,
                    (struct psi_piece){at, 1, PIECE, checksum}); /* as if it were the same */
    pair.earlier[0].next[0].list[0] = pair.earlier[0].next[0].list[3];
    pair.earlier[0].next[0].count = 1;
    psi_earlier_begin(&pair.earlier[0], &order);
    assert_non_null(psi_earlier_find(&pair.earlier[0], PSI_CHECKPOINT_PARAMS, at, PIECE, checksum));
    assert_int_equal(psi_checkpoint_writer_share(&psi_disk_system, *state, outline.bytes, &shared,
                                                 &writer, NULL),
                     PSD_OK);
    assert_int_equal(
        psi_part_writer_init(&part, &psi_disk_system, *state, &order, &pair.earlier[0], NULL),
        PSD_OK);
    assert_int_equal(psi_part_write(&part, PSI_CHECKPOINT_PARAMS, at, pair.values[0], PIECE, NULL),
                     PSD_OK);
    assert_int_equal(part.referred[PSI_CHECKPOINT_PARAMS].count, 0);
    psi_part_writer_fini(&part);
    psi_checkpoint_writer_destroy(writer);
    psi_outline_fini(&outline);
    pair_fini(&pair);
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_what_did_not_change_is_not_written_again),
        IN_DIRECTORY(test_what_is_referred_to_stays),
        IN_DIRECTORY(test_damage_is_found_wherever_it_is),
        IN_DIRECTORY(test_damage_to_a_base_is_found_in_all_that_need_it),
        IN_DIRECTORY(test_crash_at_every_call),
        IN_DIRECTORY(test_equal_checksums_are_not_enough),
        cmocka_unit_test(test_only_what_was_committed_is_referred_to),
    };

    return cmocka_run_group_tests_name("checkpoint_earlier", tests, NULL, NULL);
}
