/*
 * checkpoint_test.c - saved generations: whole or not there, damaged never loaded.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "checkpoint/read.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/write.h"

enum { PATH_BYTES = 256, FILE_BYTES_MAX = 4096, FILES_OF_TWO_GENERATIONS = 6 };

/* ----------------------------------------------------------------------------- a directory --- */

static int
make_directory(void **state)
{
    char *path = strdup("/tmp/psd-checkpoint-XXXXXX");

    *state = path;
    return path != NULL && mkdtemp(path) != NULL ? 0 : -1;
}

/* Removes every file in a directory and returns how many there were. */
static unsigned
empty_directory(const char *path)
{
    DIR *stream = opendir(path);
    const struct dirent *entry;
    unsigned count = 0;

    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            assert_int_equal(unlinkat(dirfd(stream), entry->d_name, 0), 0);
            count++;
        }
    }
    closedir(stream);
    return count;
}

static int
remove_directory(void **state)
{
    empty_directory(*state);
    rmdir(*state);
    free(*state);
    return 0;
}

static void
join(char file[PATH_BYTES], const char *path, const char *name)
{
    assert_true(snprintf(file, PATH_BYTES, "%s/%s", path, name) < PATH_BYTES);
}

static bool
exists(const char *path, const char *name)
{
    char file[PATH_BYTES];

    join(file, path, name);
    return access(file, F_OK) == 0;
}

static size_t
read_whole(const char *path, const char *name, uint8_t bytes[FILE_BYTES_MAX])
{
    char file[PATH_BYTES];
    ssize_t count;
    int fd;

    join(file, path, name);
    fd = open(file, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    count = read(fd, bytes, FILE_BYTES_MAX);
    assert_true(count > 0 && count < FILE_BYTES_MAX);
    close(fd);
    return (size_t)count;
}

static void
write_whole(const char *path, const char *name, const void *bytes, size_t count)
{
    char file[PATH_BYTES];
    int fd;

    join(file, path, name);
    fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
}

/* ---------------------------------------------------------------------------- a faulty disk --- */

enum { FDS = 1024, NAMES = 3 };

/*
 * Fails the fail_at-th call, once or from then on: the latter is a crash at that point, since
 * nothing reaches the disk any more. Never really syncs, which keeps the tests quick, but remembers
 * what is not synced and whether anything was done in a wrong order.
 */
struct faulty {
    unsigned calls;
    unsigned fail_at; /* 0: never */
    bool sticky;
    bool torn;     /* a failing write leaves half of its bytes */
    size_t io_max; /* bytes moved by one call; 0: any */
    int code;
    bool committed; /* the manifest has its name */
    bool wrong_order;
    bool names_dirty;
    bool bytes_dirty[FDS];
    char created[FDS][32];
};

static bool
fails(struct faulty *faulty)
{
    const unsigned call = ++faulty->calls;

    if (faulty->fail_at != 0 &&
        (call == faulty->fail_at || (faulty->sticky && call > faulty->fail_at))) {
        errno = faulty->code;
        return true;
    }
    return false;
}

static size_t
limited(const struct faulty *faulty, size_t bytes)
{
    return faulty->io_max != 0 && bytes > faulty->io_max ? faulty->io_max : bytes;
}

static int
faulty_open(void *self, int directory, const char *name, int flags)
{
    struct faulty *faulty = self;
    int fd;

    if (fails(faulty)) {
        return -1;
    }
    fd = psi_disk_system.open(NULL, directory, name, flags);
    if (fd >= 0 && (flags & O_CREAT) != 0) {
        assert_true(fd < FDS);
        snprintf(faulty->created[fd], sizeof(faulty->created[fd]), "%s", name);
        faulty->bytes_dirty[fd] = true;
    }
    return fd;
}

static int
faulty_reserve(void *self, int fd, uint64_t bytes)
{
    return fails(self) ? -1 : psi_disk_system.reserve(NULL, fd, bytes);
}

static ssize_t
faulty_write(void *self, int fd, const void *data, size_t bytes, uint64_t offset)
{
    struct faulty *faulty = self;

    if (fails(faulty)) {
        const int code = errno;

        if (faulty->torn) {
            assert_int_equal(psi_disk_system.write(NULL, fd, data, bytes / 2, offset), bytes / 2);
        }
        errno = code;
        return -1;
    }
    faulty->bytes_dirty[fd] = true;
    return psi_disk_system.write(NULL, fd, data, limited(faulty, bytes), offset);
}

static ssize_t
faulty_read(void *self, int fd, void *data, size_t bytes, uint64_t offset)
{
    return fails(self) ? -1 : psi_disk_system.read(NULL, fd, data, limited(self, bytes), offset);
}

static int
faulty_sync(void *self, int fd)
{
    struct faulty *faulty = self;

    if (fails(faulty)) {
        return -1;
    }
    faulty->bytes_dirty[fd] = false;
    return 0;
}

static int
faulty_sync_directory(void *self, int fd)
{
    struct faulty *faulty = self;

    if (fails(faulty)) {
        return -1;
    }
    faulty->names_dirty = false;
    return 0;
}

/* Bytes before their name; data names before the manifest's. */
static int
faulty_rename(void *self, int directory, const char *from, const char *to)
{
    const bool manifest = strncmp(to, "manifest-", 9) == 0;
    struct faulty *faulty = self;

    if (faulty->code != EINTR && fails(faulty)) {
        return -1;
    }
    for (int fd = 0; fd < FDS; fd++) {
        if (strcmp(faulty->created[fd], from) == 0 && faulty->bytes_dirty[fd]) {
            faulty->wrong_order = true;
        }
    }
    faulty->wrong_order |= manifest && faulty->names_dirty;
    faulty->names_dirty = true;
    faulty->committed |= manifest;
    return psi_disk_system.rename(NULL, directory, from, to);
}

/* Committed generations only go when the new one's names are on the disk. */
static int
faulty_remove(void *self, int directory, const char *name)
{
    struct faulty *faulty = self;
    char manifest[64];

    if (faulty->code != EINTR && fails(faulty)) {
        return -1;
    }
    if (name[0] == '.') {
        return psi_disk_system.remove(NULL, directory, name);
    }
    snprintf(manifest, sizeof(manifest), "manifest-%d.json", atoi(strchr(name, '-') + 1));
    if ((!faulty->committed || faulty->names_dirty) &&
        faccessat(directory, manifest, F_OK, 0) == 0) {
        faulty->wrong_order = true;
    }
    return psi_disk_system.remove(NULL, directory, name);
}

static struct psi_disk
faulty_disk(struct faulty *faulty)
{
    return (struct psi_disk){
        .self = faulty,
        .open = faulty_open,
        .reserve = faulty_reserve,
        .write = faulty_write,
        .read = faulty_read,
        .sync = faulty_sync,
        .sync_directory = faulty_sync_directory,
        .rename = faulty_rename,
        .remove = faulty_remove,
    };
}

/* ----------------------------------------------------------------------- a small checkpoint --- */

enum { SMALL_TENSORS = 2 };

static const struct psi_tensor small[PSI_CHECKPOINT_DATA_FILES][SMALL_TENSORS] = {
    {{.name = "a", .dtype = PSD_F32, .dims = 1, .shape = {3}},
     {.name = "b \"\xc3\xa9\"", .dtype = PSD_F64, .dims = 2, .shape = {2, 2}}},
    {{.name = "a.mean", .dtype = PSD_F32, .dims = 1, .shape = {3}},
     {.name = "a.variance", .dtype = PSD_F32, .dims = 1, .shape = {3}}},
};

static const struct psi_manifest_table small_tables[] = {
    {.name = "a", .spec = "f32[3] update adam", .updates = 7, .step = 9},
    {.name = "b \"\xc3\xa9\"", .spec = "f64[2,2] update sgd", .updates = 5, .step = 9},
};

/* The value of a byte: different for every step, file and place. */
static uint8_t
pattern(uint64_t step, unsigned kind, uint64_t at)
{
    return (uint8_t)(step * 101 + kind * 57 + at * 7 + at / 251);
}

/* The file after its head, in two pieces, the last one first. */
static psd_status
write_data(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind, uint64_t step,
           size_t head_bytes, size_t bytes, struct psd_error *err)
{
    const size_t half = bytes / 3;
    uint8_t *data = malloc(bytes);
    psd_status status;

    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = pattern(step, kind, i);
    }
    status = psi_checkpoint_write(writer, kind, head_bytes + half, data + half, bytes - half, err);
    if (status == PSD_OK) {
        status = psi_checkpoint_write(writer, kind, head_bytes, data, half, err);
    }
    free(data);
    return status;
}

/* Saves a generation of these tensors, SMALL_TENSORS per file. */
static psd_status
save_tensors(const struct psi_disk *disk, const char *path, uint64_t step,
             const struct psi_tensor tensors[PSI_CHECKPOINT_DATA_FILES][SMALL_TENSORS],
             struct psd_error *err)
{
    struct psi_tensor lists[PSI_CHECKPOINT_DATA_FILES][SMALL_TENSORS];
    uint8_t *heads[PSI_CHECKPOINT_DATA_FILES];
    size_t head_bytes[PSI_CHECKPOINT_DATA_FILES];
    uint64_t data_bytes[PSI_CHECKPOINT_DATA_FILES];
    uint64_t bytes[PSI_CHECKPOINT_DATA_FILES];
    struct psi_checkpoint_writer *writer = NULL;
    psd_status status;

    memcpy(lists, tensors, sizeof(lists));
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        struct psi_tensors laid_out = {.list = lists[kind], .count = SMALL_TENSORS};

        status = psi_safetensors_layout(&laid_out, step, &heads[kind], &head_bytes[kind], err);
        assert_int_equal(status, PSD_OK);
        data_bytes[kind] = psi_tensors_bytes(&laid_out);
        bytes[kind] = head_bytes[kind] + data_bytes[kind];
    }
    status = psi_checkpoint_writer_create(disk, path, bytes, &writer, err);
    for (unsigned i = 0; i < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; i++) {
        const enum psi_checkpoint_kind kind = (enum psi_checkpoint_kind)i;

        status = psi_checkpoint_write(writer, kind, 0, heads[i], head_bytes[i], err);
        if (status == PSD_OK) {
            status = write_data(writer, kind, step, head_bytes[i], data_bytes[i], err);
        }
    }
    if (status == PSD_OK) {
        status = psi_checkpoint_commit(writer, step, small_tables, SMALL_TENSORS, err);
    }
    psi_checkpoint_writer_destroy(writer);
    free(heads[0]);
    free(heads[1]);
    return status;
}

static psd_status
save_small(struct faulty *faulty, const char *path, uint64_t step, struct psd_error *err)
{
    const struct psi_disk disk = faulty_disk(faulty);

    return save_tensors(&disk, path, step, small, err);
}

static void
save_well(const char *path, uint64_t step)
{
    struct faulty faulty = {0};
    struct psd_error err = {0};

    if (save_small(&faulty, path, step, &err) != PSD_OK) {
        fail_msg("step %llu: %s", (unsigned long long)step, err.text);
    }
    assert_false(faulty.wrong_order);
}

/* Every tensor is what was saved at the step the checkpoint says. */
static void
expect_content(struct psi_checkpoint *checkpoint,
               const struct psi_tensor tensors[PSI_CHECKPOINT_DATA_FILES][SMALL_TENSORS])
{
    struct psd_error err = {0};

    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        const struct psi_tensors *parsed = &checkpoint->tensors[kind];

        assert_int_equal(parsed->count, SMALL_TENSORS);
        assert_int_equal(parsed->data_begin % 64, 0);
        for (unsigned i = 0; i < SMALL_TENSORS; i++) {
            const struct psi_tensor *want = &tensors[kind][i];
            const struct psi_tensor *got = psi_tensors_find(parsed, want->name);
            uint8_t *bytes;

            assert_non_null(got);
            assert_int_equal(got->dtype, want->dtype);
            assert_int_equal(got->dims, want->dims);
            assert_memory_equal(got->shape, want->shape, sizeof(want->shape));
            bytes = malloc(got->end - got->begin);
            assert_non_null(bytes);
            assert_int_equal(psi_checkpoint_read(checkpoint, (enum psi_checkpoint_kind)kind, got, 0,
                                                 got->end - got->begin, bytes, &err),
                             PSD_OK);
            for (uint64_t at = got->begin; at < got->end; at++) {
                if (bytes[at - got->begin] != pattern(checkpoint->manifest.step, kind, at)) {
                    fail_msg("%s: byte %llu", got->name, (unsigned long long)at);
                }
            }
            free(bytes);
        }
    }
}

/* Loads, and finds exactly what was saved at `step`; `blamed` (or nobody) was passed over. */
static void
expect_step(const char *path, uint64_t step, const char *blamed)
{
    struct psi_checkpoint *checkpoint = NULL;
    struct psd_error err = {0};

    if (psi_checkpoint_open(&psi_disk_system, path, &checkpoint, &err) != PSD_OK) {
        fail_msg("expected step %llu: %s", (unsigned long long)step, err.text);
    }
    assert_int_equal(checkpoint->manifest.step, step);
    if (blamed == NULL ? err.text[0] != '\0' : strstr(err.text, blamed) == NULL) {
        fail_msg("expected %s blamed, got: %s", blamed == NULL ? "nobody" : blamed, err.text);
    }
    expect_content(checkpoint, small);
    psi_checkpoint_destroy(checkpoint);
}

/* ------------------------------------------------------------------------------ generations --- */

/* If this fails, what is loaded is not what was saved. */
static void
test_checkpoint_round_trip(void **state)
{
    const struct psi_manifest_table *table;
    struct psi_checkpoint *checkpoint = NULL;
    struct psd_error err = {0};

    save_well(*state, 9);
    expect_step(*state, 9, NULL);
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err), PSD_OK);
    assert_int_equal(checkpoint->manifest.generation, 1);
    table = psi_manifest_table(&checkpoint->manifest, small_tables[1].name);
    assert_non_null(table);
    assert_string_equal(table->spec, small_tables[1].spec);
    assert_int_equal(table->updates, 5);
    assert_int_equal(table->step, 9);
    assert_null(psi_manifest_table(&checkpoint->manifest, "c"));
    psi_checkpoint_destroy(checkpoint);
}

/* If this fails, tables of more than one checksum block come back wrong, or short reads do. */
static void
test_checkpoint_spans_blocks(void **state)
{
    const struct psi_tensor large[PSI_CHECKPOINT_DATA_FILES][SMALL_TENSORS] = {
        {{.name = "x", .dtype = PSD_F32, .dims = 2, .shape = {2, 400000}},
         {.name = "y", .dtype = PSD_BF16, .dims = 1, .shape = {300001}}},
        {{.name = "y.master", .dtype = PSD_F32, .dims = 1, .shape = {300001}},
         {.name = "z.n", .dtype = PSD_F64, .dims = 1, .shape = {1}}},
    };
    struct faulty faulty = {.io_max = 100003};
    const struct psi_disk disk = faulty_disk(&faulty);
    struct psi_checkpoint *checkpoint = NULL;
    struct psd_error err = {0};
    const struct psi_tensor *x;
    uint8_t piece[1000];

    assert_int_equal(save_tensors(&disk, *state, 3, large, &err), PSD_OK);
    assert_int_equal(psi_checkpoint_open(&disk, *state, &checkpoint, &err), PSD_OK);
    assert_int_equal(checkpoint->manifest.files[0].block_count, 4);
    expect_content(checkpoint, large);
    x = psi_tensors_find(&checkpoint->tensors[0], "x");
    assert_non_null(x);
    for (uint64_t first = (1 << 20) - 1500; first < (1 << 20) + 500; first += 250) {
        assert_int_equal(psi_checkpoint_read(checkpoint, PSI_CHECKPOINT_PARAMS, x, first,
                                             sizeof(piece), piece, &err),
                         PSD_OK);
        for (uint64_t i = 0; i < sizeof(piece); i++) {
            assert_int_equal(piece[i], pattern(3, 0, x->begin + first + i));
        }
    }
    psi_checkpoint_destroy(checkpoint);
}

/* If this fails, disks fill up, or the fall-back is gone. */
static void
test_checkpoint_keeps_two_generations(void **state)
{
    for (uint64_t step = 1; step <= 5; step++) {
        save_well(*state, step);
        expect_step(*state, step, NULL);
    }
    assert_true(exists(*state, "manifest-4.json"));
    assert_true(exists(*state, "params-5.safetensors"));
    assert_int_equal(empty_directory(*state), FILES_OF_TWO_GENERATIONS);
}

/* If this fails, a number is used twice, and a damaged file passes for a new one. */
static void
test_checkpoint_numbers_only_grow(void **state)
{
    save_well(*state, 1);
    write_whole(*state, "manifest-41.json", "junk", 4);
    expect_step(*state, 1, "manifest-41.json");
    write_whole(*state, "state-50.safetensors", "junk", 4);
    write_whole(*state, "params-007.safetensors", "not ours", 8);
    write_whole(*state, "manifest-99999999999999999999.json", "not ours", 8);
    save_well(*state, 2);
    assert_true(exists(*state, "manifest-51.json"));
    assert_false(exists(*state, "state-50.safetensors"));
    assert_true(exists(*state, "params-007.safetensors"));
    assert_true(exists(*state, "manifest-99999999999999999999.json"));
    expect_step(*state, 2, NULL);
}

/* If this fails, the same tables give different bytes, and nobody can compare two runs. */
static void
test_checkpoint_bytes_are_reproducible(void **state)
{
    uint8_t first[FILE_BYTES_MAX];
    uint8_t second[FILE_BYTES_MAX];
    size_t bytes;

    save_well(*state, 3);
    bytes = read_whole(*state, "params-1.safetensors", first);
    save_well(*state, 3);
    assert_int_equal(read_whole(*state, "params-2.safetensors", second), bytes);
    assert_memory_equal(first, second, bytes);
}

/* --------------------------------------------------------------------------------- damage --- */

/* The text with its own checksum behind it, into `to`; returns the bytes. */
static size_t
seal(const char *text, char to[FILE_BYTES_MAX])
{
    return (size_t)snprintf(to, FILE_BYTES_MAX, "%s\"crc32c\":\"%08x\"}\n", text,
                            psi_crc32c(0, text, strlen(text)));
}

static const char *const second_generation[] = {"params-2.safetensors", "state-2.safetensors",
                                                "manifest-2.json"};

/* If this fails, a flipped bit reaches the weights. */
static void
test_checkpoint_detects_every_bit_flip(void **state)
{
    save_well(*state, 1);
    save_well(*state, 2);
    for (unsigned i = 0; i < NAMES; i++) {
        uint8_t bytes[FILE_BYTES_MAX];
        const size_t count = read_whole(*state, second_generation[i], bytes);
        char file[PATH_BYTES];
        int fd;

        join(file, *state, second_generation[i]);
        fd = open(file, O_WRONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        for (size_t bit = 0; bit < count * 8; bit++) {
            const uint8_t flipped = bytes[bit / 8] ^ (uint8_t)(1u << bit % 8);

            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)(bit / 8)), 1);
            expect_step(*state, 1, second_generation[i]);
            assert_int_equal(pwrite(fd, &bytes[bit / 8], 1, (off_t)(bit / 8)), 1);
        }
        close(fd);
        expect_step(*state, 2, NULL);
    }
}

/* If this fails, half a file is loaded, or one with something behind it. */
static void
test_checkpoint_refuses_every_other_length(void **state)
{
    save_well(*state, 1);
    save_well(*state, 2);
    for (unsigned i = 0; i < NAMES; i++) {
        uint8_t bytes[FILE_BYTES_MAX];
        const size_t count = read_whole(*state, second_generation[i], bytes);

        bytes[count] = '\n';
        for (size_t length = 0; length <= count + 1; length++) {
            if (length != count) {
                write_whole(*state, second_generation[i], bytes, length);
                expect_step(*state, 1, second_generation[i]);
            }
        }
        write_whole(*state, second_generation[i], bytes, count);
        expect_step(*state, 2, NULL);
    }
}

/* If this fails, a lost data file is fatal, or its generation is believed. */
static void
test_checkpoint_survives_lost_file(void **state)
{
    char file[PATH_BYTES];

    save_well(*state, 1);
    save_well(*state, 2);
    join(file, *state, "state-2.safetensors");
    assert_int_equal(unlink(file), 0);
    expect_step(*state, 1, "state-2.safetensors");
    assert_int_equal(mkfifo(file, 0600), 0);
    expect_step(*state, 1, "not a regular file");
    assert_int_equal(unlink(file), 0);
    join(file, *state, "manifest-2.json");
    assert_int_equal(unlink(file), 0);
    expect_step(*state, 1, NULL);
}

/* If this fails, what rots between the check and the reading reaches the weights. */
static void
test_checkpoint_read_checks_again(void **state)
{
    struct psi_checkpoint *checkpoint = NULL;
    struct psd_error err = {0};
    const struct psi_tensor *tensor;
    uint8_t bytes[12];
    char file[PATH_BYTES];
    int fd;

    save_well(*state, 1);
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err), PSD_OK);
    tensor = psi_tensors_find(&checkpoint->tensors[PSI_CHECKPOINT_PARAMS], "a");
    assert_non_null(tensor);
    join(file, *state, "params-1.safetensors");
    fd = open(file, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    close(fd);
    assert_int_equal(psi_checkpoint_read(checkpoint, PSI_CHECKPOINT_PARAMS, tensor, 0,
                                         sizeof(bytes), bytes, &err),
                     PSD_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "params-1.safetensors"));
    psi_checkpoint_destroy(checkpoint);
}

/* If this fails, the checksum of a whole file is written and never looked at. */
static void
test_checkpoint_checks_whole_file(void **state)
{
    struct psi_checkpoint *checkpoint = NULL;
    struct psd_error err = {0};
    uint8_t bytes[FILE_BYTES_MAX] = {0};
    char sealed[FILE_BYTES_MAX];
    char *digits;
    size_t count;

    save_well(*state, 1);
    count = read_whole(*state, "manifest-1.json", bytes);
    bytes[count - 21] = '\0'; /* without its own checksum */
    digits = strstr((char *)bytes, "\"crc32c\":");
    assert_non_null(digits);
    digits[9] = digits[9] == '1' ? '2' : '1';
    write_whole(*state, "manifest-1.json", sealed, seal((char *)bytes, sealed));
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err),
                     PSD_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "params-1.safetensors: damaged"));
}

/* If this fails, damage everywhere is taken for a fresh start, or a fresh start for damage. */
static void
test_checkpoint_open_tells_none_from_damaged(void **state)
{
    struct psi_checkpoint *checkpoint = NULL;
    struct psd_error err = {0};
    char missing[PATH_BYTES];

    assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, "no checkpoint"));
    join(missing, *state, "missing");
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, missing, &checkpoint, &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, "No such file or directory"));

    save_well(*state, 1);
    save_well(*state, 2);
    write_whole(*state, "params-1.safetensors", "x", 1);
    write_whole(*state, "manifest-2.json", "x", 1);
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err),
                     PSD_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "manifest-2.json"));
    assert_null(checkpoint);
}

/* If this fails, a generation is given up although nothing is wrong with it, or kept with EIO. */
static void
test_checkpoint_open_with_failing_calls(void **state)
{
    static const int codes[] = {EIO, EMFILE, EINTR};

    save_well(*state, 1);
    save_well(*state, 2);
    for (unsigned i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        for (unsigned n = 1;; n++) {
            struct faulty faulty = {.fail_at = n, .code = codes[i]};
            const struct psi_disk disk = faulty_disk(&faulty);
            struct psi_checkpoint *checkpoint = NULL;
            struct psd_error err = {0};
            const psd_status status = psi_checkpoint_open(&disk, *state, &checkpoint, &err);

            if (faulty.calls < n || codes[i] == EINTR) {
                assert_int_equal(status, PSD_OK);
                assert_int_equal(checkpoint->manifest.step, 2);
            } else if (n == 1 || codes[i] == EMFILE) {
                assert_int_equal(status, PSD_ERR_IO);
                assert_non_null(strstr(err.text, strerror(codes[i])));
            } else {
                assert_int_equal(status, PSD_OK);
                assert_int_equal(checkpoint->manifest.step, 1);
                assert_non_null(strstr(err.text, strerror(codes[i])));
            }
            psi_checkpoint_destroy(checkpoint);
            if (faulty.calls < n) {
                assert_true(n > 8);
                break;
            }
        }
    }
}

/* --------------------------------------------------------------------------- failing saves --- */

/* After a save that failed or died: the old generation, or the new one if it got its manifest. */
static void
expect_old_or_committed(const char *path, const struct faulty *faulty)
{
    struct psi_checkpoint *checkpoint = NULL;
    struct psd_error err = {0};
    const uint64_t step = faulty->sticky && faulty->committed ? 3 : 2;

    if (psi_checkpoint_open(&psi_disk_system, path, &checkpoint, &err) != PSD_OK) {
        fail_msg("call %u: nothing left: %s", faulty->fail_at, err.text);
    }
    assert_int_equal(checkpoint->manifest.step, step);
    expect_content(checkpoint, small);
    psi_checkpoint_destroy(checkpoint);
}

/* A save that fails at one call; the next one works and leaves two generations and nothing else. */
static bool
fail_one_save(const char *path, struct faulty *faulty)
{
    struct psd_error err = {0};
    psd_status status;

    save_well(path, 1);
    save_well(path, 2);
    status = save_small(faulty, path, 3, &err);
    if (status == PSD_OK) {
        expect_step(path, 3, NULL);
    } else {
        assert_int_equal(status, PSD_ERR_IO);
        if (strstr(err.text, path) == NULL || strstr(err.text, strerror(faulty->code)) == NULL) {
            fail_msg("no file or no reason: %s", err.text);
        }
        expect_old_or_committed(path, faulty);
    }
    save_well(path, 4);
    expect_step(path, 4, NULL);
    assert_int_equal(empty_directory(path), FILES_OF_TWO_GENERATIONS);
    return faulty->calls >= faulty->fail_at;
}

/* If this fails, a full or failing disk, or a crash, costs the generation that was there. */
static void
test_checkpoint_survives_failure_of_every_call(void **state)
{
    static const int codes[] = {EIO, ENOSPC};

    for (unsigned variant = 0; variant < 8; variant++) {
        unsigned n = 1;

        for (;; n++) {
            struct faulty faulty = {
                .fail_at = n,
                .sticky = (variant & 1) != 0,
                .torn = (variant & 2) != 0,
                .code = codes[variant / 4],
            };

            if (!fail_one_save(*state, &faulty)) {
                break;
            }
        }
        assert_true(n > 20);
    }
}

/* If this fails, a second fault while cleaning up after a crash costs the old generation. */
static void
test_checkpoint_survives_fault_after_crash(void **state)
{
    for (unsigned n = 1; n < 26; n++) {
        for (unsigned m = 1; m < 30; m++) {
            struct faulty crash = {.fail_at = n, .sticky = true, .code = EIO, .torn = true};
            struct faulty again = {.fail_at = m, .code = EIO};
            struct psd_error err = {0};

            save_well(*state, 2);
            (void)save_small(&crash, *state, 3, &err);
            if (save_small(&again, *state, 4, &err) != PSD_OK) {
                expect_old_or_committed(*state, &crash);
            } else {
                expect_step(*state, 4, NULL);
            }
            save_well(*state, 5);
            expect_step(*state, 5, NULL);
            assert_int_equal(empty_directory(*state), FILES_OF_TWO_GENERATIONS);
        }
    }
}

/* If this fails, a signal at the wrong moment, or a slow disk, fails a save. */
static void
test_checkpoint_goes_on_after_interrupts(void **state)
{
    for (unsigned n = 1;; n++) {
        struct faulty faulty = {.fail_at = n, .code = EINTR, .io_max = 61};
        struct psd_error err = {0};

        assert_int_equal(save_small(&faulty, *state, n, &err), PSD_OK);
        expect_step(*state, n, NULL);
        if (faulty.calls < n) {
            break;
        }
    }
}

/* If this fails, the error of a full disk comes after hours of writing, or names no file. */
static void
test_checkpoint_reserves_before_writing(void **state)
{
    const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES] = {4096, UINT64_C(1) << 45};
    struct psi_checkpoint_writer *writer = NULL;
    struct psd_error err = {0};

    assert_int_equal(psi_checkpoint_writer_create(&psi_disk_system, *state, bytes, &writer, &err),
                     PSD_ERR_IO);
    assert_non_null(strstr(err.text, "state-1.safetensors"));
    assert_non_null(strstr(err.text, "reserve 35184372088832 bytes"));
    assert_null(writer);
    assert_int_equal(empty_directory(*state), 0);
}

/* If this fails, two saves into one directory mix, or a dead one blocks it for ever. */
static void
test_checkpoint_one_save_at_a_time(void **state)
{
    const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES] = {64, 64};
    struct psi_checkpoint_writer *first = NULL;
    struct faulty faulty = {0};
    struct psd_error err = {0};

    save_well(*state, 1);
    assert_int_equal(psi_checkpoint_writer_create(&psi_disk_system, *state, bytes, &first, &err),
                     PSD_OK);
    assert_int_equal(save_small(&faulty, *state, 2, &err), PSD_ERR_BUSY);
    assert_non_null(strstr(err.text, *state));
    assert_true(exists(*state, ".params.tmp"));
    psi_checkpoint_writer_destroy(first);
    assert_false(exists(*state, ".params.tmp"));
    expect_step(*state, 1, NULL);

    write_whole(*state, ".manifest.tmp", "dead", 4);
    write_whole(*state, ".state.tmp", "dead", 4);
    save_well(*state, 2);
    assert_int_equal(empty_directory(*state), FILES_OF_TWO_GENERATIONS);
}

/* If this fails, a planted link makes a save overwrite some other file. */
static void
test_checkpoint_does_not_follow_links(void **state)
{
    struct faulty faulty = {0};
    struct psd_error err = {0};
    char link[PATH_BYTES];
    uint8_t bytes[FILE_BYTES_MAX];

    write_whole(*state, "precious", "gold", 4);
    join(link, *state, ".manifest.tmp");
    assert_int_equal(symlink("precious", link), 0);
    assert_int_equal(save_small(&faulty, *state, 1, &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, ".manifest.tmp"));
    assert_int_equal(unlink(link), 0);
    join(link, *state, ".params.tmp");
    assert_int_equal(symlink("precious", link), 0);
    save_well(*state, 1);
    assert_int_equal(read_whole(*state, "precious", bytes), 4);
    assert_memory_equal(bytes, "gold", 4);
}

/* If this fails, the first save of a run needs a mkdir by hand, or a wrong path is not told. */
static void
test_checkpoint_directory(void **state)
{
    struct faulty faulty = {0};
    struct faulty denied = {.fail_at = 2, .code = EACCES};
    struct psd_error err = {0};
    char path[PATH_BYTES];
    char deeper[PATH_BYTES];

    join(path, *state, "new");
    join(deeper, path, "deeper");
    assert_int_equal(save_small(&faulty, deeper, 1, &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, deeper));
    assert_non_null(strstr(err.text, "No such file or directory"));
    save_well(path, 1);
    expect_step(path, 1, NULL);
    assert_int_equal(save_small(&denied, path, 2, &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "Permission denied"));
    expect_step(path, 1, NULL);
    empty_directory(path);
    assert_int_equal(rmdir(path), 0);

    write_whole(*state, "file", "x", 1);
    join(path, *state, "file");
    assert_int_equal(save_small(&faulty, path, 1, &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, "Not a directory"));
}

/* -------------------------------------------------------------------------------- manifests --- */

#define MANIFEST_BEGIN(version)                                                                    \
    "{\"format\":\"poseidon-checkpoint\",\"version\":" version ",\"generation\":7,\"step\":9,"     \
    "\"block_bytes\":1048576,\"tables\":[{\"name\":\"a\",\"spec\":\"s\",\"updates\":1,\"step\":9"
#define MANIFEST_HEAD MANIFEST_BEGIN("2") ",\"moment\":\"chunk\"}],"
#define MANIFEST_NOW  MANIFEST_BEGIN("3") ",\"moment\":\"chunk\"}],"
#define MANIFEST_PART_ENTRY(name, file)                                                            \
    "{\"name\":\"" name "\",\"file\":\"" file "\",\"bytes\":5,\"crc32c\":6}"
#define MANIFEST_PART(name, file) "\"parts\":[" MANIFEST_PART_ENTRY(name, file) "],"
#define MANIFEST_EARLIER(suffix, earlier)                                                          \
    MANIFEST_BEGIN("4")                                                                            \
    ",\"moment\":\"chunk\"}],\"parts\":[],\"files\":[{\"name\":\"params-7." suffix                 \
    "\",\"bytes\":1048577,\"crc32c\":4294967295,\"blocks\":[1,2],\"earlier\":[" earlier            \
    "]},{\"name\":\"state-7.safetensors\",\"bytes\":1,\"crc32c\":1,\"blocks\":[1],\"earlier\":[]}" \
    "],"
#define MANIFEST_PARAMS                                                                            \
    "\"files\":[{\"name\":\"params-7.safetensors\",\"bytes\":1048577,"                             \
    "\"crc32c\":4294967295,\"blocks\":[1,2]},"
#define MANIFEST_STATE                                                                             \
    "{\"name\":\"state-7.safetensors\",\"bytes\":1,\"crc32c\":1,\"blocks\":[1]}],"

/* If this fails, a manifest with a right checksum and wrong content is believed. */
static void
test_manifest_refuses_nonsense(void **state)
{
    static const struct {
        const char *text;
        const char *word; /* NULL: fine */
    } cases[] = {
        {MANIFEST_HEAD MANIFEST_PARAMS MANIFEST_STATE, NULL},
        {MANIFEST_BEGIN("1") "}]," MANIFEST_PARAMS MANIFEST_STATE, NULL},
        {MANIFEST_NOW "\"parts\":[]," MANIFEST_PARAMS MANIFEST_STATE, NULL},
        {MANIFEST_NOW MANIFEST_PART("r0", "part-7-r0") MANIFEST_PARAMS MANIFEST_STATE, NULL},
        {MANIFEST_NOW MANIFEST_PARAMS MANIFEST_STATE, "unexpected field"},
        {MANIFEST_EARLIER("safetensors", ""), NULL},
        {MANIFEST_EARLIER("changes", "[6,64,128],[3,128,1048577]"), NULL},
        {MANIFEST_EARLIER("safetensors", "[6,64,128]"), "another kind of file"},
        {MANIFEST_EARLIER("changes", ""), "another kind of file"},
        {MANIFEST_EARLIER("changes", "[7,64,128]"), "cannot be of an earlier"},
        {MANIFEST_EARLIER("changes", "[0,64,128]"), "cannot be of an earlier"},
        {MANIFEST_EARLIER("changes", "[6,64,64]"), "cannot be of an earlier"},
        {MANIFEST_EARLIER("changes", "[6,64,1048578]"), "cannot be of an earlier"},
        {MANIFEST_EARLIER("changes", "[6,64,128],[5,127,129]"), "cannot be of an earlier"},
        {MANIFEST_EARLIER("changes", "[6,64]"), ", expected"},
        {MANIFEST_HEAD MANIFEST_PART("r0", "part-7-r0") MANIFEST_PARAMS MANIFEST_STATE,
         "unexpected field"},
        {MANIFEST_NOW MANIFEST_PART("r0", "part-6-r0") MANIFEST_PARAMS, "another file"},
        {MANIFEST_NOW MANIFEST_PART("r0", "../r0") MANIFEST_PARAMS, "another file"},
        {MANIFEST_NOW MANIFEST_PART("../r0", "part-7-../r0") MANIFEST_PARAMS, "cannot be"},
        {MANIFEST_NOW MANIFEST_PART(".r0", "part-7-.r0") MANIFEST_PARAMS, "cannot be"},
        {MANIFEST_NOW "\"parts\":[" MANIFEST_PART_ENTRY("a", "part-7-a") "," MANIFEST_PART_ENTRY(
             "a", "part-7-a") "]," MANIFEST_PARAMS,
         "cannot be"},
        {MANIFEST_BEGIN("2") "}]," MANIFEST_PARAMS MANIFEST_STATE, "missing"},
        {MANIFEST_BEGIN("2") ",\"moment\":\"never\"}]," MANIFEST_PARAMS MANIFEST_STATE, "moment"},
        {MANIFEST_BEGIN("1") ",\"moment\":\"step\"}]," MANIFEST_PARAMS MANIFEST_STATE, "expected"},
        {MANIFEST_HEAD "\"files\":[{\"name\":\"../../etc/passwd\",\"bytes\":1,"
                       "\"crc32c\":1,\"blocks\":[1]}," MANIFEST_STATE,
         "another file"},
        {MANIFEST_HEAD "\"files\":[{\"name\":\"params-7.safetensors\",\"bytes\":1048577,"
                       "\"crc32c\":1,\"blocks\":[1]}," MANIFEST_STATE,
         "add up"},
        {MANIFEST_HEAD "\"files\":[{\"name\":\"params-7.safetensors\",\"bytes\":"
                       "18446744073709551615,\"crc32c\":1,\"blocks\":[1]}," MANIFEST_STATE,
         "add up"},
        {MANIFEST_HEAD "\"files\":[{\"name\":\"params-7.safetensors\",\"bytes\":1,"
                       "\"crc32c\":4294967296,\"blocks\":[1]}," MANIFEST_STATE,
         "32 bits"},
        {MANIFEST_HEAD "\"files\":[{\"name\":\"params-7.safetensors\",\"bytes\":1,"
                       "\"crc32c\":1,\"blocks\":[4294967296]}," MANIFEST_STATE,
         "32 bits"},
        {MANIFEST_HEAD "\"files\":[],", "{ expected"},
        {MANIFEST_HEAD, "unexpected field"},
        {"{\"format\":\"poseidon-checkpoint\",\"version\":6,", "version"},
        {"{\"format\":\"poseidon-checkpoint\",\"version\":1,\"generation\":8,", "generation"},
        {"{\"format\":\"x\",", "not a manifest"},
        {"{},", "missing"},
        {"[", "{ expected"},
        {"", "{ expected"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct psi_manifest manifest;
        struct psd_error err = {0};
        char text[FILE_BYTES_MAX];
        const size_t bytes = seal(cases[i].text, text);
        psd_status status;

        psi_manifest_init(&manifest, 7);
        status = psi_manifest_parse(&manifest, "m.json", text, bytes, &err);
        if (cases[i].word == NULL) {
            assert_string_equal(err.text, "");
            assert_int_equal(status, PSD_OK);
            assert_int_equal(manifest.step, 9);
            assert_int_equal(manifest.files[0].blocks[1], 2);
        } else if (status != PSD_ERR_CORRUPT || strstr(err.text, cases[i].word) == NULL ||
                   strstr(err.text, "m.json") == NULL) {
            fail_msg("case %zu: expected %s, got: %s", i, cases[i].word, err.text);
        }
        psi_manifest_fini(&manifest);
    }
    (void)state;
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_checkpoint_round_trip),
        IN_DIRECTORY(test_checkpoint_spans_blocks),
        IN_DIRECTORY(test_checkpoint_keeps_two_generations),
        IN_DIRECTORY(test_checkpoint_numbers_only_grow),
        IN_DIRECTORY(test_checkpoint_bytes_are_reproducible),
        IN_DIRECTORY(test_checkpoint_detects_every_bit_flip),
        IN_DIRECTORY(test_checkpoint_refuses_every_other_length),
        IN_DIRECTORY(test_checkpoint_survives_lost_file),
        IN_DIRECTORY(test_checkpoint_read_checks_again),
        IN_DIRECTORY(test_checkpoint_checks_whole_file),
        IN_DIRECTORY(test_checkpoint_open_tells_none_from_damaged),
        IN_DIRECTORY(test_checkpoint_open_with_failing_calls),
        IN_DIRECTORY(test_checkpoint_survives_failure_of_every_call),
        IN_DIRECTORY(test_checkpoint_survives_fault_after_crash),
        IN_DIRECTORY(test_checkpoint_goes_on_after_interrupts),
        IN_DIRECTORY(test_checkpoint_reserves_before_writing),
        IN_DIRECTORY(test_checkpoint_one_save_at_a_time),
        IN_DIRECTORY(test_checkpoint_does_not_follow_links),
        IN_DIRECTORY(test_checkpoint_directory),
        cmocka_unit_test(test_manifest_refuses_nonsense),
    };

    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
