/*
 * rows_test.c - files of rows of sparse tables: written, named, referred to, read, damaged.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "checkpoint/outline.h"
#include "checkpoint/read.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/write.h"

enum { TOKEN = 77, WIDTH = 3, ROWS = 5, COUNTERS = 64 };

static const struct psi_row_form adam = {.dtype = PSD_BF16,
                                         .rule = PSD_RULE_ADAM,
                                         .width = WIDTH,
                                         .bucket_bits = 10,
                                         .counter_bytes = COUNTERS};

static void
clear(const char *path)
{
    DIR *stream = opendir(path);
    const struct dirent *entry;

    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            assert_int_equal(unlinkat(dirfd(stream), entry->d_name, 0), 0);
        }
    }
    closedir(stream);
}

static int
make_directory(void **state)
{
    static char path[] = "/tmp/psd_rows_XXXXXX";

    *state = mkdtemp(path);
    return *state == NULL ? -1 : 0;
}

static int
empty_directory(void **state)
{
    clear(*state);
    return 0;
}

static int
remove_directory(void **state)
{
    clear(*state);
    return rmdir(*state);
}

/* Rows base .. base + ROWS - 1, some buckets that were cleared, one that is counted. */
static struct psi_rows_piece *
make_piece(uint64_t base)
{
    uint64_t ids[ROWS];
    uint32_t steps[ROWS];
    uint32_t counts[ROWS];
    float values[ROWS * WIDTH];
    float state[ROWS * WIDTH * 2];
    const struct psi_rows_arrays rows = {.count = ROWS,
                                         .ids = ids,
                                         .values = values,
                                         .state = state,
                                         .steps = steps,
                                         .counts = counts};
    const struct psi_rows_count room = {.rows = ROWS + 1, .cleared = 4, .counted = 2};
    struct psi_rows_piece *piece = psi_rows_piece_create(&adam, &room);

    assert_non_null(piece);
    for (uint32_t i = 0; i < ROWS; i++) {
        ids[i] = base + i;
        steps[i] = 10 + i;
        counts[i] = 20 + i;
    }
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
        values[i] = (float)i;
    }
    for (uint32_t i = 0; i < ROWS * WIDTH * 2; i++) {
        state[i] = 100 + (float)i;
    }
    assert_int_equal(psi_rows_piece_add(piece, &rows, 0), ROWS);
    for (uint32_t i = 0; i < 3; i++) {
        ((uint32_t *)piece->column[PSI_ROWS_CLEARED])[piece->count.cleared++] = 7 * i;
    }
    ((uint32_t *)piece->column[PSI_ROWS_COUNTED])[0] = 8;
    ((uint32_t *)piece->column[PSI_ROWS_EPOCHS])[0] = 9;
    memset(piece->column[PSI_ROWS_COUNTERS], 5, COUNTERS);
    piece->count.counted = 1;
    return piece;
}

static void
check_piece(const struct psi_rows_piece *piece, uint64_t base)
{
    const float *values = piece->column[PSI_ROWS_VALUES];
    float state[WIDTH * 2];

    assert_int_equal(piece->count.rows, ROWS);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_int_equal(((uint64_t *)piece->column[PSI_ROWS_IDS])[i], base + i);
        assert_int_equal(((uint32_t *)piece->column[PSI_ROWS_STEPS])[i], 10 + i);
        assert_int_equal(((uint32_t *)piece->column[PSI_ROWS_COUNTS])[i], 20 + i);
        psi_rows_piece_state(piece, i, state);
        for (uint32_t j = 0; j < WIDTH; j++) {
            assert_true(values[i * WIDTH + j] == (float)(i * WIDTH + j));
        }
        for (uint32_t j = 0; j < WIDTH * 2; j++) {
            assert_true(state[j] == 100 + (float)(i * WIDTH * 2 + j));
        }
    }
    assert_int_equal(piece->count.cleared, 3);
    assert_int_equal(((uint32_t *)piece->column[PSI_ROWS_CLEARED])[2], 14);
    assert_int_equal(piece->count.counted, 1);
    assert_int_equal(((uint32_t *)piece->column[PSI_ROWS_COUNTED])[0], 8);
    assert_int_equal(((uint32_t *)piece->column[PSI_ROWS_EPOCHS])[0], 9);
    assert_int_equal(((uint8_t *)piece->column[PSI_ROWS_COUNTERS])[COUNTERS - 1], 5);
}

static struct psi_checkpoint_writer *
begin(const char *path, struct psi_outline *outline)
{
    const struct psi_checkpoint_shared shared = {.token = TOKEN, .kept = 2};
    const struct psi_spec *none[1] = {NULL};
    struct psi_checkpoint_writer *writer;
    struct psd_error err = {0};

    assert_int_equal(psi_outline_init(outline, none, 0, 0, &err), PSD_OK);
    if (psi_checkpoint_writer_share(&psi_disk_system, path, outline->bytes, &shared, &writer,
                                    &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    return writer;
}

static psd_status
commit(struct psi_checkpoint_writer *writer, struct psi_outline *outline,
       const struct psi_manifest_rows *rows, struct psd_error *err)
{
    static const struct psi_manifest_table table = {
        .name = "words", .spec = "sparse bf16[3] update adam()", .updates = 4, .step = 5};
    psd_status status = PSD_OK;

    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        assert_int_equal(psi_checkpoint_write(writer, (enum psi_checkpoint_kind)kind, 0,
                                              outline->head[kind], outline->head_bytes[kind], err),
                         PSD_OK);
    }
    assert_int_equal(psi_checkpoint_bring_rows(writer, rows, err), PSD_OK);
    status = psi_checkpoint_commit(writer, 5, &table, 1, err);
    psi_checkpoint_writer_destroy(writer);
    psi_outline_fini(outline);
    return status;
}

static struct psi_rows_file
write_piece(const char *path, uint64_t generation, uint32_t number, uint64_t base)
{
    struct psi_rows_file file = {.generation = generation,
                                 .place = 2,
                                 .number = number,
                                 .first_bucket = 0,
                                 .end_bucket = 1024};
    struct psi_rows_piece *piece = make_piece(base);
    struct psi_directory directory;
    struct psd_error err = {0};

    assert_int_equal(psi_directory_open(&directory, &psi_disk_system, path, &err), PSD_OK);
    if (psi_rows_piece_write(piece, &directory, "words", TOKEN, &file, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    psi_directory_close(&directory);
    psi_rows_piece_destroy(piece);
    return file;
}

/* Generations 1, with a file, and 2, with another one and a reference to the first. */
static void
write_two(const char *path, struct psi_rows_file files[2])
{
    struct psi_manifest_rows rows = {.table = "words", .form = adam, .files = files, .count = 1};
    struct psi_outline outline;
    struct psd_error err = {0};
    struct psi_checkpoint_writer *writer = begin(path, &outline);

    files[0] = write_piece(path, 1, 0, 1000);
    assert_int_equal(commit(writer, &outline, &rows, &err), PSD_OK);
    writer = begin(path, &outline);
    files[1] = write_piece(path, 2, 0, 1003);
    rows.count = 2;
    if (commit(writer, &outline, &rows, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
}

static void
assert_same_file(const struct psi_rows_file *one, const struct psi_rows_file *other)
{
    assert_int_equal(one->generation, other->generation);
    assert_int_equal(one->place, other->place);
    assert_int_equal(one->number, other->number);
    assert_int_equal(one->first_bucket, other->first_bucket);
    assert_int_equal(one->end_bucket, other->end_bucket);
    assert_memory_equal(&one->count, &other->count, sizeof(one->count));
    assert_int_equal(one->bytes, other->bytes);
    assert_int_equal(one->checksum, other->checksum);
}

/* If this fails, rows are other ones after a checkpoint, or one that refers to earlier files loses them. */
static void
test_rows_come_back(void **state)
{
    struct psi_rows_file files[2];
    struct psi_checkpoint *checkpoint;
    struct psd_error err = {0};
    const struct psi_manifest_rows *rows;

    write_two(*state, files);
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err), PSD_OK);
    assert_string_equal(err.text, "");
    assert_int_equal(checkpoint->manifest.generation, 2);
    rows = psi_manifest_rows(&checkpoint->manifest, "words");
    assert_non_null(rows);
    assert_memory_equal(&rows->form, &adam, sizeof(adam));
    assert_int_equal(rows->count, 2);
    for (size_t i = 0; i < 2; i++) {
        struct psi_rows_piece *piece;

        assert_same_file(&rows->files[i], &files[i]);
        assert_int_equal(psi_checkpoint_read_rows(checkpoint, rows, &rows->files[i], &piece, &err),
                         PSD_OK);
        check_piece(piece, 1000 + 3 * i);
        psi_rows_piece_destroy(piece);
    }
    psi_checkpoint_destroy(checkpoint);
}

/* If this fails, other programs that read safetensors cannot read rows. */
static void
test_files_are_safetensors(void **state)
{
    static const struct {
        const char *name;
        size_t bytes;
    } expected[] = {
        {"ids", 8 * ROWS},
        {"steps", 4 * ROWS},
        {"counts", 4 * ROWS},
        {"values", 4 * WIDTH * ROWS},
        {"state.mean", 4 * WIDTH * ROWS},
        {"state.variance", 4 * WIDTH * ROWS},
        {"cleared", 4 * 3},
        {"admission.buckets", 4},
        {"admission.epochs", 4},
        {"admission.counters", COUNTERS},
    };
    struct psi_rows_layout layout;
    struct psi_tensors tensors;
    struct psd_error err = {0};
    size_t head_bytes;

    (void)state;
    assert_int_equal(
        psi_rows_lay_out(&layout, "a \"table\"", &adam, &(struct psi_rows_count){ROWS, 3, 1}, &err),
        PSD_OK);
    assert_int_equal(psi_safetensors_head_bytes("f", (const uint8_t *)layout.head, layout.bytes,
                                                &head_bytes, &err),
                     PSD_OK);
    assert_int_equal(head_bytes, layout.head_bytes);
    if (psi_safetensors_parse("f", (const uint8_t *)layout.head, head_bytes, layout.bytes, &tensors,
                              &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(tensors.count, sizeof(expected) / sizeof(expected[0]));
    for (size_t i = 0; i < tensors.count; i++) {
        const struct psi_tensor *tensor = psi_tensors_find(&tensors, expected[i].name);

        assert_non_null(tensor);
        assert_int_equal(tensor->end - tensor->begin, expected[i].bytes);
        assert_int_equal((layout.head_bytes + tensor->begin) % 4, 0);
    }
    psi_tensors_fini(&tensors);
}

static void
flip(const char *path, const char *name, off_t at, int bit)
{
    char file[4096];
    unsigned char byte;
    int fd;

    snprintf(file, sizeof(file), "%s/%s", path, name);
    fd = open(file, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte = (unsigned char)(byte ^ 1 << bit);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* If this fails, a bit that a disk has changed trains on, or the generation before is not found. */
static void
test_every_flipped_bit_is_found(void **state)
{
    struct psi_rows_file files[2];
    struct psi_checkpoint *checkpoint;
    struct psd_error err = {0};

    write_two(*state, files);
    for (off_t at = 0; at < (off_t)files[1].bytes; at++) {
        const int bit = (int)(at % 8);

        flip(*state, "rows-2-2-0.safetensors", at, bit);
        assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err), PSD_OK);
        assert_int_equal(checkpoint->manifest.generation, 1); /* the last intact one */
        assert_non_null(strstr(err.text, "rows-2-2-0.safetensors: damaged"));
        psi_checkpoint_destroy(checkpoint);
        flip(*state, "rows-2-2-0.safetensors", at, bit);
    }
    flip(*state, "rows-1-2-0.safetensors", 70, 1); /* both need it */
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err),
                     PSD_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "rows-1-2-0.safetensors"));
}

/* If this fails, a generation that others refer to is removed, or files of rows fill the disk. */
static void
test_what_is_referred_to_stays(void **state)
{
    struct psi_rows_file files[3];
    struct psi_manifest_rows rows = {.table = "words", .form = adam, .files = files};
    struct psi_checkpoint *checkpoint;
    struct psi_outline outline;
    struct psd_error err = {0};
    char gone[4096];

    write_two(*state, files);
    for (uint64_t generation = 3; generation <= 5; generation++) {
        struct psi_checkpoint_writer *writer = begin(*state, &outline);

        files[2] = write_piece(*state, generation, 0, 0);
        rows.count = 3;
        if (generation >= 4) { /* needs nothing of what was before */
            files[0] = files[2];
            rows.count = 1;
        }
        if (commit(writer, &outline, &rows, &err) != PSD_OK) {
            fail_msg("%s", err.text);
        }
        snprintf(gone, sizeof(gone), "%s/rows-1-2-0.safetensors", (const char *)*state);
        assert_int_equal(access(gone, F_OK), generation < 5 ? 0 : -1);
    }
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err), PSD_OK);
    assert_string_equal(err.text, "");
    psi_checkpoint_destroy(checkpoint);
}

/* If this fails, a generation is committed whose rows are not there, or what is given up stays. */
static void
test_rows_that_are_not_there_are_not_committed(void **state)
{
    struct psi_rows_file files[2];
    struct psi_manifest_rows rows = {.table = "words", .form = adam, .files = files, .count = 2};
    struct psi_checkpoint *checkpoint;
    struct psi_outline outline;
    struct psd_error err = {0};
    char path[4096];

    write_two(*state, files);
    files[0].generation = 1;
    files[1].generation = 3; /* nobody writes it */
    assert_int_equal(commit(begin(*state, &outline), &outline, &rows, &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, ".rows-"));
    files[1] = files[0];
    files[0].bytes++;
    assert_int_equal(commit(begin(*state, &outline), &outline, &rows, &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, "refers to"));
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err), PSD_OK);
    assert_int_equal(checkpoint->manifest.generation, 2);
    psi_checkpoint_destroy(checkpoint);
    snprintf(path, sizeof(path), "%s/rows-3-2-0.safetensors", (const char *)*state);
    assert_int_equal(access(path, F_OK), -1);
}

static psd_status
read_image(const char *path, const struct psi_rows_file *file, const struct psi_row_form *form,
           struct psd_error *err)
{
    struct psi_manifest_rows rows = {.table = "words", .form = *form};
    struct psi_rows_piece *piece;
    struct psi_directory directory;
    psd_status status;

    assert_int_equal(psi_directory_open(&directory, &psi_disk_system, path, err), PSD_OK);
    status = psi_rows_piece_read(&directory, &rows, file, &piece, err);
    psi_directory_close(&directory);
    if (status == PSD_OK) {
        psi_rows_piece_destroy(piece);
    }
    return status;
}

/* If this fails, a manifest that lies about a file makes a server read beyond its end. */
static void
test_a_file_of_another_form_is_refused(void **state)
{
    struct psi_rows_file files[2];
    struct psi_row_form form = adam;
    struct psd_error err = {0};
    struct psi_rows_file lie;

    write_two(*state, files);
    assert_int_equal(read_image(*state, &files[0], &form, &err), PSD_OK);
    form.width++;
    assert_int_equal(read_image(*state, &files[0], &form, &err), PSD_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "its header is not that"));
    form = adam;
    form.rule = PSD_RULE_FTRL; /* as many numbers */
    assert_int_equal(read_image(*state, &files[0], &form, &err), PSD_ERR_CORRUPT);
    lie = files[0];
    lie.count.rows = UINT32_MAX;
    assert_int_equal(read_image(*state, &lie, &adam, &err), PSD_ERR_CORRUPT);
    lie = files[0];
    lie.bytes--;
    assert_int_equal(read_image(*state, &lie, &adam, &err), PSD_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "the manifest says"));
}

#define ROWS_FILE(generation, name, buckets, bytes)                                                \
    "{\"file\":\"" name "\",\"generation\":" generation                                            \
    ",\"place\":1,\"number\":2,\"buckets\":" buckets                                               \
    ",\"rows\":3,\"cleared\":0,\"counted\":0,\"bytes\":" bytes ",\"crc32c\":5}"
#define ROWS_OF(table, dtype, rule, width, files)                                                  \
    "{\"table\":\"" table "\",\"dtype\":\"" dtype "\",\"rule\":\"" rule "\",\"width\":" width      \
    ",\"row_wise\":0,\"bucket_bits\":10,\"counter_bytes\":0,\"files\":[" files "]}"
#define GOOD_FILE ROWS_FILE("6", "rows-6-1-2.safetensors", "[0,1024]", "100")

/* If this fails, a manifest of rows with a right checksum and wrong content is believed. */
static void
test_manifest_of_rows_refuses_nonsense(void **state)
{
    static const struct {
        const char *rows;
        const char *word; /* NULL: fine */
    } cases[] = {
        {ROWS_OF("a", "f32", "adagrad", "4", GOOD_FILE), NULL},
        {ROWS_OF("a", "f32", "sgd", "4", ""), NULL},
        {ROWS_OF("a", "f32", "sgd", "4", "") "," ROWS_OF("b", "bf16", "ftrl", "4096", ""), NULL},
        {ROWS_OF("a", "f32", "sgd", "4", "") "," ROWS_OF("a", "f32", "sgd", "4", ""), "twice"},
        {ROWS_OF("a", "f64", "sgd", "4", ""), "type that rows cannot have"},
        {ROWS_OF("a", "f32", "magic", "4", ""), "unknown rule"},
        {ROWS_OF("a", "f32", "sgd", "0", ""), "rows that cannot be"},
        {ROWS_OF("a", "f32", "sgd", "4097", ""), "width"},
        {ROWS_OF("a", "f32", "sgd", "4", ROWS_FILE("6", "rows-5-1-2.safetensors", "[0,1]", "100")),
         "another file"},
        {ROWS_OF("a", "f32", "sgd", "4", ROWS_FILE("8", "rows-8-1-2.safetensors", "[0,1]", "100")),
         "another file"},
        {ROWS_OF("a", "f32", "sgd", "4", ROWS_FILE("0", "rows-0-1-2.safetensors", "[0,1]", "100")),
         "another file"},
        {ROWS_OF("a", "f32", "sgd", "4",
                 ROWS_FILE("6", "rows-6-1-2.safetensors", "[0,1025]", "100")),
         "cannot be"},
        {ROWS_OF("a", "f32", "sgd", "4", ROWS_FILE("6", "rows-6-1-2.safetensors", "[2,1]", "100")),
         "cannot be"},
        {ROWS_OF("a", "f32", "sgd", "4",
                 ROWS_FILE("6", "rows-6-1-2.safetensors", "[0,1]", "67108865")),
         "cannot be"},
        {"{\"table\":\"a\"}", "missing"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct psi_manifest manifest;
        struct psd_error err = {0};
        char text[4096];
        int bytes = snprintf(text, sizeof(text),
                             "{\"format\":\"poseidon-checkpoint\",\"version\":5,\"generation\":7,"
                             "\"step\":9,\"block_bytes\":1048576,\"tables\":[],\"parts\":[],"
                             "\"rows\":[%s],\"files\":[{\"name\":\"params-7.safetensors\","
                             "\"bytes\":1,\"crc32c\":1,\"blocks\":[1],\"earlier\":[]},"
                             "{\"name\":\"state-7.safetensors\",\"bytes\":1,\"crc32c\":1,"
                             "\"blocks\":[1],\"earlier\":[]}],\n",
                             cases[i].rows);
        psd_status status;

        bytes += snprintf(text + bytes, sizeof(text) - (size_t)bytes, "\"crc32c\":\"%08x\"}\n",
                          psi_crc32c(0, text, (size_t)bytes));
        psi_manifest_init(&manifest, 7);
        status = psi_manifest_parse(&manifest, "m.json", text, (size_t)bytes, &err);
        if (cases[i].word == NULL
                ? status != PSD_OK
                : status != PSD_ERR_CORRUPT || strstr(err.text, cases[i].word) == NULL) {
            fail_msg("case %zu: expected %s, got: %s", i, cases[i].word, err.text);
        }
        psi_manifest_fini(&manifest);
    }
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, empty_directory, empty_directory)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_rows_come_back),
        IN_DIRECTORY(test_files_are_safetensors),
        IN_DIRECTORY(test_every_flipped_bit_is_found),
        IN_DIRECTORY(test_what_is_referred_to_stays),
        IN_DIRECTORY(test_rows_that_are_not_there_are_not_committed),
        IN_DIRECTORY(test_a_file_of_another_form_is_refused),
        IN_DIRECTORY(test_manifest_of_rows_refuses_nonsense),
    };

    return cmocka_run_group_tests_name("checkpoint_rows", tests, make_directory, remove_directory);
}
