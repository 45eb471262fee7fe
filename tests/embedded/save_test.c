/*
 * save_test.c - psd_save and psd_load: a training saved on one job and loaded on another ends in
 * the same bits as one that was never interrupted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bed.h"
#include "checkpoint/read.h"
#include "store/half.h"
#include "table/spec.h"

enum { WORKERS = 2, STEPS = 6, SAVED = 3, TABLES = 4, PATH_BYTES = 320 };

static const struct {
    const char *name;
    psd_dtype dtype;
    size_t bytes;
    uint64_t count;
    psd_rule rule;
} tables[TABLES] = {
    {"momentum", PSD_F32, 4, PSD_CHUNK_ELEMENTS + 11, PSD_RULE_MOMENTUM},
    {"adam", PSD_F32, 4, 3001, PSD_RULE_ADAM},
    {"half adam", PSD_F16, 2, 5001, PSD_RULE_ADAM},
    {"double", PSD_F64, 8, 100, PSD_RULE_ADAGRAD},
};

/* Thread: immutable, but for values (rank 0 writes) and step. */
struct training {
    const char *load; /* directory to go on from; NULL: from the start */
    const char *save; /* directory to save into before step SAVED; NULL: none */
    uint64_t steps;
    uint64_t loaded; /* rank 0: what psd_load() said */
    uint8_t *values[TABLES];
};

/* ---- files -------------------------------------------------------------------------------- */

static char *
make_directory(void)
{
    const char *base = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    char *path = malloc(PATH_BYTES);

    assert_non_null(path);
    snprintf(path, PATH_BYTES, "%s/psd_save_XXXXXX", base);
    assert_non_null(mkdtemp(path));
    return path;
}

static void
remove_directory(char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;

    assert_non_null(directory);
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.' || strlen(entry->d_name) > 2) {
            assert_int_equal(unlinkat(dirfd(directory), entry->d_name, 0), 0);
        }
    }
    closedir(directory);
    assert_int_equal(rmdir(path), 0);
    free(path);
}

static uint8_t *
read_whole(const char *directory, const char *name, size_t *bytes_p)
{
    char path[PATH_BYTES + 64];
    struct stat status;
    uint8_t *bytes;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fail_msg("no file %s", path);
    }
    assert_int_equal(fstat(fd, &status), 0);
    bytes = malloc((size_t)status.st_size + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, (size_t)status.st_size), status.st_size);
    close(fd);
    *bytes_p = (size_t)status.st_size;
    return bytes;
}

static void
assert_same_file(const char *one, const char *other, const char *name)
{
    size_t one_bytes;
    size_t other_bytes;
    uint8_t *one_data = read_whole(one, name, &one_bytes);
    uint8_t *other_data = read_whole(other, name, &other_bytes);

    assert_int_equal(one_bytes, other_bytes);
    if (memcmp(one_data, other_data, one_bytes) != 0) {
        fail_msg("%s differs", name);
    }
    free(one_data);
    free(other_data);
}

/* Changes one byte in the middle of a file. */
static void
damage(const char *directory, const char *name)
{
    char path[PATH_BYTES + 64];
    struct stat status;
    uint8_t byte;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(pread(fd, &byte, 1, status.st_size / 2), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, status.st_size / 2), 1);
    close(fd);
}

static bool
exists(const char *directory, const char *name)
{
    char path[PATH_BYTES + 64];

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

/* ---- training ----------------------------------------------------------------------------- */

static void
open_tables(struct worker *worker, psd_table *handles[TABLES])
{
    for (size_t t = 0; t < TABLES; t++) {
        CHECK_OK(worker, psd_table_open(worker->context,
                                        TABLE(tables[t].name, tables[t].dtype, tables[t].count,
                                              .init = PSD_INIT_UNIFORM, .init_value = 1, .seed = t,
                                              .rule = RULE(.rule = tables[t].rule)),
                                        &handles[t]));
    }
}

static void
train_step(struct worker *worker, psd_table **handles, uint64_t step, uint8_t **values,
           uint8_t *gradient)
{
    for (size_t t = 0; t < TABLES; t++) {
        awkward(tables[t].dtype, worker->rank, step * TABLES + t, 0, tables[t].count, gradient);
        CHECK_OK(worker, push_pull(handles[t], step, gradient, values[t]));
    }
}

static void
train(struct worker *worker)
{
    struct training *training = worker->user;
    uint8_t *gradient = malloc(tables[0].count * 8);
    uint8_t *values[TABLES];
    psd_table *handles[TABLES];
    uint64_t step = 0;

    open_tables(worker, handles);
    for (size_t t = 0; t < TABLES; t++) {
        values[t] = calloc(tables[t].count, tables[t].bytes);
    }
    if (training->load != NULL && worker->failure[0] == '\0') {
        CHECK_OK(worker, psd_load(worker->context, training->load, &step));
        CHECK(worker, worker->rank != 0 || (training->loaded = step) > 0);
        CHECK(worker, psd_table_step(handles[0]) == step);
    }
    for (; step < training->steps && worker->failure[0] == '\0'; step++) {
        if (step == SAVED && training->save != NULL && worker->rank == 0) {
            CHECK_OK(worker, psd_save(worker->context, training->save, step));
        }
        train_step(worker, handles, step, values, gradient);
    }
    for (size_t t = 0; t < TABLES; t++) {
        if (worker->rank == 0 && training->values[t] != NULL) {
            memcpy(training->values[t], values[t], tables[t].count * tables[t].bytes);
        }
        free(values[t]);
    }
    free(gradient);
}

static void
run_training(struct training *training, struct bed_config config)
{
    struct bed *bed;

    config.workers = WORKERS;
    bed = bed_start(&config);
    bed_run(bed, train, training);
    bed_finish(bed);
}

static void
training_init(struct training *training, const char *load, const char *save, uint64_t steps)
{
    *training = (struct training){.load = load, .save = save, .steps = steps};
    for (size_t t = 0; t < TABLES; t++) {
        training->values[t] = calloc(tables[t].count, tables[t].bytes);
        assert_non_null(training->values[t]);
    }
}

static void
training_fini(struct training *training)
{
    for (size_t t = 0; t < TABLES; t++) {
        free(training->values[t]);
    }
}

/* ---- the tests ---------------------------------------------------------------------------- */

/* If this fails, a training that goes on from a file is another training. */
static void
test_load_goes_on_bit_for_bit(void **state)
{
    char *directory = make_directory();
    struct training whole;
    struct training first;
    struct training second;

    (void)state;
    training_init(&whole, NULL, NULL, STEPS);
    run_training(&whole, (struct bed_config){.servers = 2});
    training_init(&first, NULL, directory, SAVED + 1); /* one step further than was saved */
    run_training(&first, (struct bed_config){.servers = 1});
    training_init(&second, directory, NULL, STEPS);
    run_training(&second, (struct bed_config){.servers = 3, .lanes = 2});
    assert_int_equal(second.loaded, SAVED);
    for (size_t t = 0; t < TABLES; t++) {
        if (memcmp(whole.values[t], second.values[t], tables[t].count * tables[t].bytes) != 0) {
            fail_msg("table %s differs", tables[t].name);
        }
    }
    training_fini(&whole);
    training_fini(&first);
    training_fini(&second);
    remove_directory(directory);
}

/* If this fails, files depend on how many servers there were. */
static void
test_files_are_equal_for_any_servers(void **state)
{
    static const struct bed_config configs[] = {
        {.servers = 1}, {.servers = 2, .lanes = 3}, {.servers = 3}};
    char *directories[3];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct training training;

        directories[i] = make_directory();
        training_init(&training, NULL, directories[i], SAVED + 1);
        run_training(&training, configs[i]);
        training_fini(&training);
        assert_same_file(directories[0], directories[i], "params-1.safetensors");
        assert_same_file(directories[0], directories[i], "state-1.safetensors");
        assert_same_file(directories[0], directories[i], "manifest-1.json");
    }
    for (size_t i = 0; i < 3; i++) {
        remove_directory(directories[i]);
    }
}

/* ---- sum tables beside what is loaded ------------------------------------------------------ */

enum { SUMMED = PSD_CHUNK_ELEMENTS + 3 };

/* One table was in use before the load, the others go on from the saved step together. */
static void
load_beside_sums(struct worker *worker)
{
    const struct training *training = worker->user;
    float *numbers = calloc(SUMMED, sizeof(*numbers));
    psd_table *handles[TABLES];
    psd_table *fresh;
    psd_table *used;
    uint64_t step = 0;

    open_tables(worker, handles);
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("fresh", PSD_F32, SUMMED, .use = PSD_USE_SUM), &fresh));
    CHECK_OK(worker,
             psd_table_open(worker->context, TABLE("used", PSD_F32, 1, .use = PSD_USE_SUM), &used));
    CHECK_OK(worker, push_pull(used, 0, numbers, numbers));
    CHECK_OK(worker, psd_load(worker->context, training->load, &step));
    CHECK(worker, step == SAVED);
    CHECK(worker, psd_table_step(handles[0]) == SAVED && psd_table_step(fresh) == SAVED);
    CHECK(worker, psd_table_step(used) == 1);
    for (; step < STEPS; step++) {
        numbers[SUMMED - 1] = (float)(worker->rank + step);
        CHECK_OK(worker, push_pull(fresh, step, numbers, numbers));
        CHECK(worker, numbers[SUMMED - 1] == (float)step + (WORKERS - 1) / 2.0f);
        CHECK_OK(worker, push_pull(used, step - SAVED + 1, numbers, numbers));
    }
    free(numbers);
}

/* If this fails, tables that are pushed together want different steps after a load. */
static void
test_load_moves_sum_tables_to_the_saved_step(void **state)
{
    char *directory = make_directory();
    struct training training;
    struct bed *bed;

    (void)state;
    training_init(&training, NULL, directory, SAVED + 1);
    run_training(&training, (struct bed_config){.servers = 1});
    training_fini(&training);
    training = (struct training){.load = directory};
    bed = bed_start(&(struct bed_config){.workers = WORKERS, .servers = 2});
    bed_run(bed, load_beside_sums, &training);
    bed_finish(bed);
    remove_directory(directory);
}

/* ---- tables that move on while they are saved ---------------------------------------------- */

enum {
    MOVING_CHUNKS = BED_SANITIZED ? 6 : 24,
    MOVING = MOVING_CHUNKS * PSD_CHUNK_ELEMENTS,
    MOVING_SAVES = 3,
    PUSHES_MAX = BED_SANITIZED ? 200 : 1500,
};

/* Thread: `over` is atomic; value_after is written before the first turn; the rest is immutable. */
struct moving {
    const char *directory;
    uint32_t staleness;
    atomic_bool over;
    uint16_t value_after[PUSHES_MAX + 1]; /* so many updates */
};

/* What a number of updates makes of a value, seen in a table that is read after each of them. */
static void
learn_values(struct worker *worker, psd_table *table)
{
    struct moving *moving = worker->user;
    const uint16_t one = f16_from_float(1);

    for (uint64_t step = 0; step < PUSHES_MAX; step++) {
        CHECK_OK(worker, push_pull(table, step, &one, &moving->value_after[step + 1]));
    }
}

/* Worker 1 pushes without end while worker 0 saves. */
static void
push_and_save(struct worker *worker)
{
    struct moving *moving = worker->user;
    const struct psd_rule_args *rule = RULE(.rule = PSD_RULE_ADAGRAD, .learning_rate = 0.01);
    uint16_t *gradient = malloc(MOVING * sizeof(*gradient));
    psd_table *table;
    psd_table *single;

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("half", PSD_F16, MOVING, .staleness = moving->staleness,
                                          .rule = rule),
                                    &table));
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("single", PSD_F16, 1,
                                          .staleness = PSD_STALENESS_UNBOUNDED, .rule = rule),
                                    &single));
    if (worker->rank == 0) {
        learn_values(worker, single);
        bed_wait_turn(worker->bed, 1);
        for (unsigned i = 0; i < MOVING_SAVES; i++) {
            CHECK_OK(worker, psd_save(worker->context, moving->directory, 0));
        }
        atomic_store(&moving->over, true);
        free(gradient);
        return;
    }
    for (size_t i = 0; i < MOVING; i++) {
        gradient[i] = f16_from_float(1);
    }
    for (uint64_t step = 0; step < PUSHES_MAX && !atomic_load(&moving->over); step++) {
        CHECK_OK(worker, push(table, step, gradient));
        if (step == 0) {
            bed_next_turn(worker->bed);
        }
    }
    free(gradient);
}

static void
read_part(struct psi_checkpoint *checkpoint, enum psi_checkpoint_kind kind, const char *name,
          void *to, size_t bytes)
{
    const struct psi_tensor *tensor = psi_tensors_find(&checkpoint->tensors[kind], name);
    struct psd_error err;

    assert_non_null(tensor);
    assert_int_equal(psi_checkpoint_read(checkpoint, kind, tensor, 0, bytes, to, &err), PSD_OK);
}

/* Every element of a chunk has had as many updates as its sum of squares says, all parts of it. */
static void
expect_whole_chunks(const struct moving *moving)
{
    uint16_t *values = malloc(MOVING * sizeof(*values));
    float *master = malloc(MOVING * sizeof(*master));
    float *squares = malloc(MOVING * sizeof(*squares));
    struct psi_checkpoint *checkpoint = NULL;
    struct psd_error err;
    char name[64];

    snprintf(name, sizeof(name), "half.%s", psi_rule_state_name(PSD_RULE_ADAGRAD, 0));
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, moving->directory, &checkpoint, &err),
                     PSD_OK);
    assert_int_equal(psi_manifest_table(&checkpoint->manifest, "half")->moment,
                     PSI_MANIFEST_MOMENT_CHUNK);
    read_part(checkpoint, PSI_CHECKPOINT_PARAMS, "half", values, MOVING * sizeof(*values));
    read_part(checkpoint, PSI_CHECKPOINT_STATE, "half.master", master, MOVING * sizeof(*master));
    read_part(checkpoint, PSI_CHECKPOINT_STATE, name, squares, MOVING * sizeof(*squares));
    for (size_t i = 0; i < MOVING; i++) {
        const unsigned updates = (unsigned)squares[i];

        assert_true(updates > 0 && updates <= PUSHES_MAX);
        if (squares[i] != squares[i - i % PSD_CHUNK_ELEMENTS] ||
            values[i] != f16_from_float(master[i]) || values[i] != moving->value_after[updates]) {
            fail_msg("element %zu: value 0x%04x, master %g, after %g updates", i, values[i],
                     (double)master[i], (double)squares[i]);
        }
    }
    psi_checkpoint_destroy(checkpoint);
    free(values);
    free(master);
    free(squares);
}

/* If this fails, a chunk is saved with the value of one update and the state of another. */
static void
test_save_of_tables_that_move(void **state)
{
    static const uint32_t stalenesses[] = {PSD_STALENESS_UNBOUNDED, PUSHES_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(stalenesses) / sizeof(stalenesses[0]); i++) {
        struct moving *moving = calloc(1, sizeof(*moving));
        char *directory = make_directory();
        struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2});

        assert_non_null(moving);
        moving->directory = directory;
        moving->staleness = stalenesses[i];
        bed_run(bed, push_and_save, moving);
        bed_finish(bed);
        expect_whole_chunks(moving);
        remove_directory(directory);
        free(moving);
    }
}

/* ---- deaths beside a load ----------------------------------------------------------------- */

/* Thread: immutable. */
struct death {
    struct training *training;
    uint32_t victim;
    bool loaded; /* it dies after the load and one step; else before the load */
};

static void
train_or_die(struct worker *worker)
{
    const struct death *death = worker->user;
    struct training shortened = *death->training;
    psd_table *handles[TABLES];

    if (worker->rank != death->victim || psd_incarnation(worker->context) > 1) {
        worker->user = death->training;
        train(worker);
        CHECK_OK(worker, psd_barrier(worker->context, 20000)); /* the first one of everybody */
        return;
    }
    if (death->loaded) {
        shortened.steps = SAVED + 1;
        worker->user = &shortened;
        train(worker);
    } else {
        open_tables(worker, handles);
    }
    psd_abandon(worker->context);
    worker->context = NULL;
    bed_next_turn(worker->bed);
}

static void
run_with_death(struct death *death)
{
    struct bed *bed =
        bed_start(&(struct bed_config){.workers = WORKERS, .servers = 2, .policy = PSI_DEATH_WAIT});
    struct worker replacement = {0};
    bool well;

    bed_start_workers(bed, train_or_die, death);
    bed_wait_turn(bed, 1);
    well = bed_run_one(bed, death->victim, train_or_die, death, &replacement);
    bed_join_workers(bed);
    if (!well) {
        bed_stop(bed);
        fail_msg("the replacement: %s", replacement.failure);
    }
    bed_finish(bed);
}

/* If this fails, a job whose worker dies before or after the load begins untrained, hangs, or ends
 * in other bits. */
static void
test_load_with_replacements(void **state)
{
    static const struct death deaths[] = {{.victim = 0}, {.victim = 1}, {.victim = 1, .loaded = 1}};
    char *directory = make_directory();
    struct training whole;
    struct training first;

    (void)state;
    training_init(&whole, NULL, NULL, STEPS);
    run_training(&whole, (struct bed_config){.servers = 2});
    training_init(&first, NULL, directory, SAVED + 1);
    run_training(&first, (struct bed_config){.servers = 1});
    for (size_t i = 0; i < sizeof(deaths) / sizeof(deaths[0]); i++) {
        struct death death = deaths[i];
        struct training second;

        training_init(&second, directory, NULL, STEPS);
        death.training = &second;
        run_with_death(&death);
        for (size_t t = 0; t < TABLES; t++) {
            if (memcmp(whole.values[t], second.values[t], tables[t].count * tables[t].bytes) != 0) {
                fail_msg("death %zu: table %s differs", i, tables[t].name);
            }
        }
        training_fini(&second);
    }
    training_fini(&whole);
    training_fini(&first);
    remove_directory(directory);
}

/* Saves before steps 1, 2 and 3. */
static void
save_often(struct worker *worker)
{
    const char *directory = worker->user;
    uint8_t *gradient = malloc(tables[0].count * 8);
    uint8_t *values[TABLES];
    psd_table *handles[TABLES];

    open_tables(worker, handles);
    for (size_t t = 0; t < TABLES; t++) {
        values[t] = calloc(tables[t].count, tables[t].bytes);
    }
    for (uint64_t step = 0; step < 4 && worker->failure[0] == '\0'; step++) {
        if (step > 0 && worker->rank == 0) {
            CHECK_OK(worker, psd_save(worker->context, directory, step));
        }
        train_step(worker, handles, step, values, gradient);
    }
    for (size_t t = 0; t < TABLES; t++) {
        free(values[t]);
    }
    free(gradient);
}

static void
load_and_note(struct worker *worker)
{
    struct training *training = worker->user;
    psd_table *handles[TABLES];
    uint64_t step = 99;

    open_tables(worker, handles);
    CHECK_OK(worker, psd_load(worker->context, training->load, &step));
    CHECK(worker, step == training->steps && psd_table_step(handles[2]) == step);
}

static void
expect_load(const char *directory, uint64_t step)
{
    struct training training = {.load = directory, .steps = step};
    struct bed *bed = bed_start(&(struct bed_config){.workers = WORKERS, .servers = 2});

    bed_run(bed, load_and_note, &training);
    bed_finish(bed);
}

static void
load_in_vain(struct worker *worker)
{
    const struct training *training = worker->user;
    psd_table *handles[TABLES];
    uint64_t step = 99;

    open_tables(worker, handles);
    CHECK_STATUS(worker, psd_load(worker->context, training->load, &step), PSD_ERR_CORRUPT);
    CHECK(worker, step == 99);
}

/* If this fails, a damaged file is loaded, or the intact one before it is not. */
static void
test_damaged_generations_are_passed_over(void **state)
{
    char *directory = make_directory();
    struct training training = {.load = directory};
    struct bed *bed = bed_start(&(struct bed_config){.workers = WORKERS, .servers = 2});

    (void)state;
    bed_run(bed, save_often, directory);
    bed_finish(bed);
    assert_false(exists(directory, "params-1.safetensors")); /* two generations are kept */
    assert_true(exists(directory, "params-2.safetensors"));
    assert_true(exists(directory, "params-3.safetensors"));
    expect_load(directory, 3);
    damage(directory, "state-3.safetensors");
    expect_load(directory, 2);
    damage(directory, "params-2.safetensors");
    bed = bed_start(&(struct bed_config){.workers = 1});
    bed_run(bed, load_in_vain, &training);
    bed_finish(bed);
    remove_directory(directory);
}

/* Worker 0 saves the step that it has pulled, then one that is gone. */
static void
save_too_late(struct worker *worker)
{
    const char *directory = worker->user;
    const float gradient[2] = {1, 1};
    float values[2];
    psd_table *table;

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("w", PSD_F32, 2, .rule = RULE(.rule = PSD_RULE_MOMENTUM)),
                                    &table));
    for (uint64_t step = 0; step < 2; step++) {
        CHECK_OK(worker, push_pull(table, step, gradient, values));
        if (worker->rank == 0 && step == 0) {
            CHECK_OK(worker, psd_save(worker->context, directory, 1));
        }
    }
    if (worker->rank == 0) {
        CHECK_STATUS(worker, psd_save(worker->context, directory, 1), PSD_ERR_STEP);
        CHECK_SAYS(worker, psd_last_error()->text, "version 1 is gone");
    }
    bed_meet(worker->bed);
}

/* If this fails, a file that says it is of one step holds the values of another. */
static void
test_save_of_a_step_that_is_gone(void **state)
{
    char *directory = make_directory();
    struct bed *bed = bed_start(&(struct bed_config){.workers = WORKERS});

    (void)state;
    bed_run(bed, save_too_late, directory);
    bed_finish(bed);
    assert_true(exists(directory, "manifest-1.json")); /* the one before is intact */
    assert_false(exists(directory, "manifest-2.json"));
    remove_directory(directory);
}

static void
load_other_shapes(struct worker *worker)
{
    const struct training *training = worker->user;
    psd_table *table;
    uint64_t step = 99;

    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("adam", PSD_F32, 3002, .rule = RULE(.rule = PSD_RULE_ADAM)),
                            &table));
    CHECK_STATUS(worker, psd_load(worker->context, training->load, &step), PSD_ERR_MISMATCH);
    CHECK_SAYS(worker, psd_last_error()->text, "adam");
    CHECK_SAYS(worker, psd_last_error()->text, "3002");
    CHECK_STATUS(worker, psd_load(worker->context, "/nowhere/at/all", &step), PSD_ERR_IO);
    CHECK_SAYS(worker, psd_last_error()->text, "/nowhere/at/all");
    CHECK_STATUS(worker, psd_save(worker->context, "/nowhere/at/all", 0), PSD_ERR_IO);
    CHECK_SAYS(worker, psd_last_error()->text, "/nowhere/at/all");
    CHECK_STATUS(worker, psd_save(worker->context, NULL, 0), PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_load(worker->context, training->load, NULL), PSD_ERR_INVALID);
    CHECK(worker, step == 99);
    CHECK_OK(worker, psd_save(worker->context, training->save, 0)); /* it all did no harm */
}

/* If this fails, a model is loaded into tables of another shape, or errors name nothing. */
static void
test_load_and_save_errors(void **state)
{
    char *directory = make_directory();
    char *other = make_directory();
    struct training training;
    struct bed *bed;

    (void)state;
    training_init(&training, NULL, directory, SAVED + 1);
    run_training(&training, (struct bed_config){.servers = 1});
    training_fini(&training);
    training = (struct training){.load = directory, .save = other};
    bed = bed_start(&(struct bed_config){.workers = 1});
    bed_run(bed, load_other_shapes, &training);
    bed_finish(bed);
    remove_directory(directory);
    remove_directory(other);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_goes_on_bit_for_bit),
        cmocka_unit_test(test_files_are_equal_for_any_servers),
        cmocka_unit_test(test_load_with_replacements),
        cmocka_unit_test(test_load_moves_sum_tables_to_the_saved_step),
        cmocka_unit_test(test_save_of_tables_that_move),
        cmocka_unit_test(test_damaged_generations_are_passed_over),
        cmocka_unit_test(test_save_of_a_step_that_is_gone),
        cmocka_unit_test(test_load_and_save_errors),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
