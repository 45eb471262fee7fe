/*
 * saved_bed.c - a job of two servers whose one table is saved again and again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/saved_bed.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/part.h"
#include "checkpoint/read.h"
#include "checkpoint/write.h"

/* -------------------------------------------------------------------------------- a directory --- */

void
clear_directory(const char *path)
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

int
make_directory(void **state)
{
    static char path[40];

    snprintf(path, sizeof(path), "/tmp/psd_saved_XXXXXX");
    *state = mkdtemp(path);
    return *state == NULL ? -1 : 0;
}

int
remove_directory(void **state)
{
    clear_directory(*state);
    return rmdir(*state);
}

/* ------------------------------------------------------------------------------------- a job --- */

void
pair_init(struct server_pair *pair, const char *path)
{
    memset(pair, 0, sizeof(*pair));
    pair->path = path;
    pair->writes_all = true;
}

void
pair_fini(struct server_pair *pair)
{
    psi_earlier_fini(&pair->earlier[0]);
    psi_earlier_fini(&pair->earlier[1]);
}

static float
value_at(unsigned piece, uint64_t changed)
{
    return (float)(100 * (piece + 1)) + (float)changed;
}

/* At this step the piece changes. */
void
change_piece(struct server_pair *pair, unsigned piece, uint64_t step)
{
    for (unsigned i = 0; i < ELEMENTS; i++) {
        pair->values[piece][i] = value_at(piece, step);
    }
}

struct psi_outline
outline_of(uint64_t step)
{
    static struct psi_spec spec = {.name = "w",
                                   .dtype = PSD_F32,
                                   .dims = 1,
                                   .shape = {PIECES * ELEMENTS},
                                   .count = PIECES * ELEMENTS,
                                   .use = PSD_USE_UPDATE,
                                   .rule = {.rule = PSD_RULE_SGD}};
    const struct psi_spec *const specs[] = {&spec};
    struct psi_outline outline;

    assert_int_equal(psi_outline_init(&outline, specs, 1, step, NULL), PSD_OK);
    return outline;
}

/* One server's part: every second piece. */
static psd_status
write_part(struct server_pair *pair, const struct psi_disk *disk, unsigned server,
           const struct psi_part_order *order, uint64_t begin, struct psi_checkpoint_writer *writer)
{
    struct psi_part_writer part;
    psd_status status =
        psi_part_writer_init(&part, disk, pair->path, order, &pair->earlier[server], NULL);

    if (status != PSD_OK) {
        return status;
    }
    for (unsigned i = 0; i < PIECES && status == PSD_OK; i++) {
        if (i % 2 == server) {
            status = psi_part_write(&part, PSI_CHECKPOINT_PARAMS, begin + (uint64_t)i * PIECE,
                                    pair->values[i], PIECE, NULL);
        }
    }
    if (status == PSD_OK) {
        status = psi_part_sync(&part, NULL);
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        part.sums[kind].earlier = part.referred[kind];
        part.referred[kind] = (struct psi_ranges){0};
        status = psi_checkpoint_count(writer, (enum psi_checkpoint_kind)kind, &part.sums[kind],
                                      part.written[kind], NULL);
    }
    psi_part_writer_fini(&part);
    return status;
}

static psd_status
fill(struct server_pair *pair, const struct psi_disk *disk, uint64_t step,
     const struct psi_part_order *order, struct psi_outline *outline,
     struct psi_checkpoint_writer *writer)
{
    const struct psi_manifest_table table = {.name = "w", .spec = "f32[240]", .step = step};
    psd_status status = PSD_OK;

    for (unsigned server = 0; server < 2; server++) {
        psi_earlier_begin(&pair->earlier[server], order);
    }
    for (unsigned server = 0; server < 2 && status == PSD_OK; server++) {
        status = write_part(pair, disk, server, order, outline->begin[0][PSI_PART_VALUE], writer);
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = psi_checkpoint_write(writer, (enum psi_checkpoint_kind)kind, 0,
                                      outline->head[kind], outline->head_bytes[kind], NULL);
    }
    return status == PSD_OK ? psi_checkpoint_commit(writer, step, &table, 1, NULL) : status;
}

/* One generation, as the master and two servers make it. */
psd_status
save_step(struct server_pair *pair, const struct psi_disk *disk, uint64_t step)
{
    struct psi_outline outline = outline_of(step);
    const struct psi_checkpoint_shared shared = {
        .token = ++pair->tokens, .kept = 2, .refers = !pair->writes_all};
    struct psi_part_order order = {.token = pair->tokens,
                                   .after = pair->writes_all ? 0 : pair->last};
    struct psi_checkpoint_writer *writer = NULL;
    psd_status status =
        psi_checkpoint_writer_share(disk, pair->path, outline.bytes, &shared, &writer, NULL);

    memcpy(order.bytes, outline.bytes, sizeof(order.bytes));
    if (status == PSD_OK) {
        order.generation = psi_checkpoint_generation(writer);
        status = fill(pair, disk, step, &order, &outline, writer);
    }
    psi_checkpoint_writer_destroy(writer);
    psi_outline_fini(&outline);
    pair->writes_all = status != PSD_OK;
    pair->last = status == PSD_OK ? order.token : pair->last;
    return status;
}

/* What each piece was at a step: piece i changes at the steps that it divides, all at step 1. */
void
go_to(struct server_pair *pair, uint64_t step)
{
    for (unsigned i = 0; i < PIECES; i++) {
        if (step == 1 || step % (i + 2) == 0) {
            change_piece(pair, i, step);
        }
    }
}

static float
value_then(unsigned piece, uint64_t step)
{
    return value_at(piece, step < piece + 2 ? 1 : step - step % (piece + 2));
}

/* The generation is whole, and has what there was at its step. */
static void
expect_values(struct psi_checkpoint *checkpoint)
{
    const struct psi_tensor *w = psi_tensors_find(&checkpoint->tensors[PSI_CHECKPOINT_PARAMS], "w");
    float values[PIECES][ELEMENTS];

    assert_non_null(w);
    assert_int_equal(
        psi_checkpoint_read(checkpoint, PSI_CHECKPOINT_PARAMS, w, 0, sizeof(values), values, NULL),
        PSD_OK);
    for (unsigned i = 0; i < PIECES; i++) {
        for (unsigned j = 0; j < ELEMENTS; j++) {
            if (values[i][j] != value_then(i, checkpoint->manifest.step)) {
                fail_msg("step %llu: piece %u", (unsigned long long)checkpoint->manifest.step, i);
            }
        }
    }
}

/* So many generations are whole; the newest of them is of that step. */
unsigned
count_whole(const char *path, uint64_t *newest_step_p)
{
    struct psi_directory directory;
    struct psi_generations generations;
    unsigned count = 0;

    assert_int_equal(psi_directory_open(&directory, &psi_disk_system, path, NULL), PSD_OK);
    assert_int_equal(psi_generations_init(&generations, &directory, NULL), PSD_OK);
    *newest_step_p = 0;
    for (size_t i = 0; i < generations.count; i++) {
        struct psi_checkpoint *checkpoint;

        if (generations.list[i].kind == PSI_CHECKPOINT_MANIFEST &&
            psi_checkpoint_open_one(&psi_disk_system, path, generations.list[i].number, true,
                                    &checkpoint, NULL) == PSD_OK) {
            expect_values(checkpoint);
            *newest_step_p = count == 0 ? checkpoint->manifest.step : *newest_step_p;
            count++;
            psi_checkpoint_destroy(checkpoint);
        }
    }
    psi_generations_fini(&generations);
    psi_directory_close(&directory);
    return count;
}
