/*
 * saves.c - the disk of simulated jobs.
 *
 * Every piece takes its time, some fail, and what is given up in the middle of a piece leaves half of
 * it behind. A commit looks at every byte: the checksums that came over the network are those of what
 * lies in the files, and every table is as the model has it at the step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "saves.h"
#include "saves_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "wire/message.h"

enum {
    PIECE_MAX_MS = 20,
    SLOW_PIECE_MAX_MS = 400,
    SLOW_ROOM_EVERY = 8,
    SLOW_ROOM_MAX_MS = 5000,
    HANG_MS = 15000, /* longer than rounds wait for a disk */
    FAILS_PERMILLE = 3,
    HANGS_PERMILLE = 2,
};

/* The files of one token. They stay until the job is over: writers may be late. */
struct generation {
    struct generation *next;
    uint64_t token;
    uint64_t number;
    uint64_t bytes[PSI_CHECKPOINT_DATA_FILES];
    uint8_t *data[PSI_CHECKPOINT_DATA_FILES];
    uint8_t *whole[PSI_CHECKPOINT_DATA_FILES]; /* committed: with what lies in earlier ones */
    struct psi_ranges earlier[PSI_CHECKPOINT_DATA_FILES]; /* likewise */
    struct rows_file *rows;                               /* that were written for it; owned */
    struct psi_manifest listed;                           /* committed: its files of rows; owned */
    bool committed;
    bool removed; /* it is old, and none that is kept refers to it */
};

struct piece {
    struct piece *next;
    enum psi_checkpoint_kind kind;
    uint64_t at;
    uint8_t *data; /* NULL: rows */
    struct lane_disk_rows rows;
    size_t bytes;
};

/* The disk of a lane. */
struct lane_side {
    struct lane_side *next;
    struct saves *saves;
    struct node *node;
    struct lane_disk disk;
    uint64_t epoch; /* what is on its way for an earlier one is nobody's */
    uint64_t token;
    bool runs; /* an event is on its way */
    struct piece *first;
    struct piece **end;
    bool finish;
    struct psi_earlier earlier;
    uint64_t number;
    struct lane_disk_news news;
    struct psi_manifest_file sums[PSI_CHECKPOINT_DATA_FILES];
    uint64_t bytes[PSI_CHECKPOINT_DATA_FILES];
    struct psi_saved_file *saved; /* files of rows; owned */
    uint32_t saved_count;
};

struct master_side {
    struct master_side *next;
    struct saves *saves;
    struct node *node;
    struct master_disk disk;
    uint64_t epoch;
    uint64_t token;
    struct master_generation *generation; /* that is being committed; owned */
    struct master_disk_news news;
};

struct saves {
    struct job *job;
    struct rng rng; /* apart: jobs without checkpoints stay as they were */
    struct generation *generations;
    struct lane_side *lanes;
    struct master_side *masters;
    uint64_t begun;
};

struct saves *
saves_create(struct job *job)
{
    struct saves *saves = calloc(1, sizeof(*saves));

    psi_assert(saves != NULL);
    saves->job = job;
    saves->rng = (struct rng){.state = sim_mix(job->plan.seed, 16, 17, 18)};
    return saves;
}

static struct generation *
find_generation(const struct saves *saves, uint64_t token)
{
    struct generation *generation = saves->generations;

    while (generation != NULL && generation->token != token) {
        generation = generation->next;
    }
    return generation;
}

static struct generation *
find_number(const struct saves *saves, uint64_t number)
{
    struct generation *generation = saves->generations;

    while (generation != NULL && generation->number != number) {
        generation = generation->next;
    }
    return generation;
}

static uint64_t
draw_delay(struct saves *saves)
{
    const uint64_t max_ms = rng_chance(&saves->rng, 10) ? SLOW_PIECE_MAX_MS : PIECE_MAX_MS;

    if (rng_below(&saves->rng, 1000) < HANGS_PERMILLE) {
        return saves->job->sim->now_ns + HANG_MS * SIM_MS;
    }
    return saves->job->sim->now_ns + rng_below(&saves->rng, max_ms * SIM_MS);
}

static bool
fails(struct saves *saves)
{
    return rng_below(&saves->rng, 1000) < FAILS_PERMILLE;
}

/* ---- lanes --------------------------------------------------------------------------------- */

static void lane_go_on(struct lane_side *side);

static void
free_piece(struct piece *piece)
{
    free(piece->data);
    psi_rows_piece_destroy(piece->rows.piece);
    free(piece);
}

static void
put(const struct generation *generation, const struct piece *piece, size_t bytes)
{
    if (piece->data == NULL) {
        return; /* half a file of rows has another name */
    }
    psi_assert(piece->at + piece->bytes <= generation->bytes[piece->kind]);
    memcpy(generation->data[piece->kind] + piece->at, piece->data, bytes);
}

static void
lane_fail(struct lane_side *side, const char *text)
{
    side->news.failed = true;
    snprintf(side->news.text, sizeof(side->news.text), "%s", text);
}

/* Writes a piece, or refers to an earlier generation that has it. */
static void
write_or_refer(struct lane_side *side, struct generation *generation, const struct piece *piece)
{
    const uint32_t checksum =
        psi_manifest_file_add(&side->sums[piece->kind], piece->at, piece->data, piece->bytes);
    const struct psi_piece *known =
        psi_earlier_find(&side->earlier, piece->kind, piece->at, piece->bytes, checksum);
    const struct generation *old =
        known == NULL ? NULL : find_number(side->saves, known->generation);
    struct psi_piece there = {piece->at, side->number, (uint32_t)piece->bytes, checksum};

    if (old != NULL && old->committed && !old->removed &&
        piece->at + piece->bytes <= old->bytes[piece->kind] &&
        memcmp(old->data[piece->kind] + piece->at, piece->data, piece->bytes) == 0) {
        const struct psi_range range = {old->number, piece->at, piece->at + piece->bytes};

        there.generation = old->number;
        psi_assert(psi_ranges_add(&side->sums[piece->kind].earlier, range));
    } else {
        put(generation, piece, piece->bytes);
    }
    psi_earlier_add(&side->earlier, piece->kind, there);
    side->bytes[piece->kind] += piece->bytes;
}

/* A file of its own. One of that number is there if its order was given up, and begun anew. */
static void
write_rows(struct lane_side *side, struct generation *generation, struct piece *piece)
{
    const struct rows_file *file = rows_file_add(&generation->rows, &piece->rows, side->number);

    piece->rows.piece = NULL;
    side->saved = realloc(side->saved, (side->saved_count + 1) * sizeof(*side->saved));
    psi_assert(side->saved != NULL);
    side->saved[side->saved_count++] = file->saved;
}

static void
lane_write_first(struct lane_side *side)
{
    struct piece *piece = side->first;
    struct generation *generation = find_generation(side->saves, side->token);

    side->first = piece->next;
    side->end = side->first == NULL ? &side->first : side->end;
    if (generation == NULL) {
        lane_fail(side, "the master has made no such file");
    } else if (fails(side->saves)) {
        put(generation, piece, piece->bytes / 2);
        lane_fail(side, "no space left on the simulated disk");
    } else if (piece->data == NULL) {
        write_rows(side, generation, piece);
    } else {
        write_or_refer(side, generation, piece);
    }
    side->news.written += piece->bytes;
    free_piece(piece);
}

static void
lane_event(void *object, uint64_t epoch)
{
    struct lane_side *side = object;

    if (epoch != side->epoch) {
        return;
    }
    side->runs = false;
    if (side->first != NULL) {
        lane_write_first(side);
    } else if (side->finish) {
        for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
            psi_assert(psi_ranges_settle(&side->sums[kind].earlier));
        }
        side->news.done = true;
        side->news.sums = side->sums;
        side->news.bytes = side->bytes;
        side->news.rows = side->saved;
        side->news.rows_count = side->saved_count;
    }
    lane_go_on(side);
    net_wake_at(side->node, 0);
}

static void
lane_go_on(struct lane_side *side)
{
    const bool due = side->first != NULL || (side->finish && !side->news.done);

    if (due && !side->runs && !side->news.failed) {
        side->runs = true;
        sim_at(side->saves->job->sim, draw_delay(side->saves), lane_event, side, side->epoch);
    }
}

/* Half of a piece may be on the disk. */
static void
lane_drop(void *self)
{
    struct lane_side *side = self;
    const struct generation *generation = find_generation(side->saves, side->token);

    if (side->first != NULL && generation != NULL && side->runs) {
        put(generation, side->first, side->first->bytes / 2);
    }
    while (side->first != NULL) {
        struct piece *piece = side->first;

        side->first = piece->next;
        free_piece(piece);
    }
    side->end = &side->first;
    side->epoch++;
    side->token = 0;
    side->runs = false;
    side->finish = false;
    side->news = (struct lane_disk_news){0};
    free(side->saved);
    side->saved = NULL;
    side->saved_count = 0;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        psi_manifest_file_fini(&side->sums[kind]);
        side->sums[kind] = (struct psi_manifest_file){0};
        side->bytes[kind] = 0;
    }
}

static void
room_event(void *self, uint64_t epoch)
{
    struct lane_side *side = self;

    if (side->epoch == epoch) {
        side->news.is_prepared = true;
        net_wake_at(side->node, 0);
    }
}

/* Mostly there is room at once; now and then it takes long, perhaps longer than the lane waits. */
static void
lane_prepare(void *self, const struct lane_disk_load *load)
{
    struct lane_side *side = self;
    const uint64_t drawn = sim_mix(side->saves->job->plan.seed, side->saves->begun, 19, 20);

    (void)load;
    lane_drop(side);
    side->news.is_prepared = drawn % SLOW_ROOM_EVERY != 0;
    if (!side->news.is_prepared) {
        sim_at(side->saves->job->sim,
               side->saves->job->sim->now_ns +
                   (drawn / SLOW_ROOM_EVERY) % SLOW_ROOM_MAX_MS * SIM_MS,
               room_event, side, side->epoch);
    }
}

static void
lane_begin(void *self, const struct psi_part_order *order, const struct lane_disk_load *load)
{
    struct lane_side *side = self;

    (void)load;
    lane_drop(side);
    side->token = order->token;
    side->number = order->generation;
    psi_earlier_begin(&side->earlier, order);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        psi_assert(psi_manifest_file_init(&side->sums[kind], order->bytes[kind]));
    }
}

static void
lane_write(void *self, enum psi_checkpoint_kind kind, uint64_t at, const void *data, size_t bytes)
{
    struct lane_side *side = self;
    struct piece *piece = calloc(1, sizeof(*piece));
    void *copy = malloc(bytes);

    psi_assert(piece != NULL && copy != NULL);
    memcpy(copy, data, bytes);
    *piece = (struct piece){.kind = kind, .at = at, .data = copy, .bytes = bytes};
    *side->end = piece;
    side->end = &piece->next;
    lane_go_on(side);
}

static void
lane_write_rows(void *self, const struct lane_disk_rows *rows)
{
    struct lane_side *side = self;
    struct piece *piece = calloc(1, sizeof(*piece));

    psi_assert(piece != NULL);
    *piece = (struct piece){.rows = *rows, .bytes = psi_rows_piece_bytes(rows->piece)};
    *side->end = piece;
    side->end = &piece->next;
    lane_go_on(side);
}

static void
lane_finish_side(void *self)
{
    struct lane_side *side = self;

    side->finish = true;
    lane_go_on(side);
}

static void
lane_look(void *self, struct lane_disk_news *news_p)
{
    const struct lane_side *side = self;

    *news_p = side->news;
}

const struct lane_disk *
saves_lane(struct saves *saves, struct node *node)
{
    struct lane_side *side = calloc(1, sizeof(*side));

    psi_assert(side != NULL);
    side->saves = saves;
    side->node = node;
    side->end = &side->first;
    side->disk = (struct lane_disk){.self = side,
                                    .prepare = lane_prepare,
                                    .begin = lane_begin,
                                    .write = lane_write,
                                    .write_rows = lane_write_rows,
                                    .finish = lane_finish_side,
                                    .drop = lane_drop,
                                    .look = lane_look};
    side->next = saves->lanes;
    saves->lanes = side;
    return &side->disk;
}

/* ---- the master ----------------------------------------------------------------------------- */

static int
table_of(const struct plan *plan, const char *name)
{
    for (unsigned i = 0; i < plan->table_count; i++) {
        if (strcmp(plan->table[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* Its files, here and in earlier generations, make the rows of that step. */
static void
check_rows(struct saves *saves, const struct generation *files,
           const struct psi_manifest_table *record, unsigned number)
{
    const struct psi_manifest_rows *rows = psi_manifest_rows(&files->listed, record->name);
    struct model_saved saved = {.step = record->step, .updates = record->updates};
    struct rows_image image;

    rows_image_init(&image, &saves->job->plan, number);
    for (size_t i = 0; rows != NULL && i < rows->count; i++) {
        const struct psi_rows_file *said = &rows->files[i];
        const struct generation *from = find_number(saves, said->generation);
        const struct rows_file *file =
            from == NULL ? NULL : rows_file_find(from->rows, said->place, said->number);

        if (file == NULL || (from != files && (!from->committed || from->removed)) ||
            !rows_file_is(file, said) || !rows_image_take(&image, file)) {
            sim_fail(saves->job->sim, "a checkpoint lists file %u of place %u of generation %llu",
                     said->number, said->place, (unsigned long long)said->generation);
            break;
        }
        saves->job->sim->counters.referred += from != files;
    }
    saved.parts = image.values;
    model_check_saved(saves->job->model, number, &saved);
    rows_image_fini(&image);
}

/* A table as a worker would have saved it: chunk by chunk, all parts of each. */
static void
check_table(struct saves *saves, const struct generation *files,
            const struct master_generation *generation, size_t index)
{
    const struct psi_manifest_table *record = &generation->tables[index];
    const int number = table_of(&saves->job->plan, record->name);
    const struct table_plan *plan = &saves->job->plan.table[number];
    struct model_saved saved = {.step = generation->step, .updates = record->updates};
    struct psi_spec spec;
    uint8_t *parts;
    uint8_t *at;

    if (plan->width > 0) {
        check_rows(saves, files, record, (unsigned)number);
        return;
    }
    plan_spec(&saves->job->plan, (unsigned)number, &spec);
    parts = malloc(plan->count * plan_parts(plan).bytes);
    psi_assert(parts != NULL);
    at = parts;
    for (uint64_t chunk = 0; chunk < plan_chunk_count(plan); chunk++) {
        for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
            const size_t element_bytes = psi_spec_part_bytes(&spec, part);
            const size_t bytes = plan_chunk_elements(plan, chunk) * element_bytes;

            memcpy(at,
                   files->whole[psi_saved_kind(part)] + generation->outline.begin[index][part] +
                       psi_chunk_first(chunk) * element_bytes,
                   bytes);
            at += bytes;
        }
    }
    saved.parts = parts;
    model_check_saved(saves->job->model, (unsigned)number, &saved);
    free(parts);
}

/* What the manifest would say of a file is true of its bytes. */
static void
check_file(struct saves *saves, const struct generation *files,
           const struct master_generation *generation, unsigned kind)
{
    const struct psi_outline *outline = &generation->outline;
    struct psi_manifest_file sums = {0};

    psi_assert(psi_manifest_file_init(&sums, outline->bytes[kind]));
    psi_manifest_file_zeros(&sums);
    psi_manifest_file_add(&sums, 0, outline->head[kind], outline->head_bytes[kind]);
    sums.checksum ^= generation->sums[kind].checksum;
    if (sums.checksum != psi_crc32c(0, files->whole[kind], files->bytes[kind])) {
        sim_fail(saves->job->sim, "a checkpoint is committed whose file %u is not what was told",
                 kind);
    }
    for (size_t i = 0; i < sums.block_count; i++) {
        const uint64_t begin = i * PSI_MANIFEST_BLOCK_BYTES;
        const uint64_t rest = files->bytes[kind] - begin;

        sums.blocks[i] ^= generation->sums[kind].blocks[i];
        if (sums.blocks[i] !=
            psi_crc32c(0, files->whole[kind] + begin,
                       rest < PSI_MANIFEST_BLOCK_BYTES ? rest : PSI_MANIFEST_BLOCK_BYTES)) {
            sim_fail(saves->job->sim, "a checkpoint is committed whose block %zu is damaged", i);
        }
    }
    free(sums.blocks);
}

/* The bytes of a file, wherever they lie. What it refers to is there, and a hole here. */
static void
make_whole(struct saves *saves, struct generation *files, struct psi_manifest_file *sums,
           unsigned kind)
{
    psi_assert(psi_ranges_settle(&sums->earlier));
    files->earlier[kind] = sums->earlier;
    sums->earlier = (struct psi_ranges){0};
    files->whole[kind] = malloc(files->bytes[kind]);
    psi_assert(files->whole[kind] != NULL);
    memcpy(files->whole[kind], files->data[kind], files->bytes[kind]);
    for (size_t i = 0; i < files->earlier[kind].count; i++) {
        const struct psi_range *range = &files->earlier[kind].list[i];
        const struct generation *old = find_number(saves, range->generation);

        if (old == NULL || !old->committed || old->removed || range->end > old->bytes[kind]) {
            sim_fail(saves->job->sim, "a checkpoint refers to generation %llu, which is not there",
                     (unsigned long long)range->generation);
        }
        for (uint64_t at = range->begin; at < range->end; at++) {
            if (files->data[kind][at] != 0) {
                sim_fail(saves->job->sim, "a checkpoint refers to bytes that it has as well");
            }
        }
        memcpy(files->whole[kind] + range->begin, old->data[kind] + range->begin,
               range->end - range->begin);
        saves->job->sim->counters.referred++;
    }
}

static bool
refers_to(const struct generation *files, uint64_t number)
{
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        for (size_t i = 0; i < files->earlier[kind].count; i++) {
            if (files->earlier[kind].list[i].generation == number) {
                return true;
            }
        }
    }
    for (size_t i = 0; i < files->listed.rows_count; i++) {
        for (size_t j = 0; j < files->listed.rows[i].count; j++) {
            if (files->listed.rows[i].files[j].generation == number) {
                return true;
            }
        }
    }
    return files->number == number;
}

/* Two stay, and what they refer to. */
static void
remove_old(struct saves *saves)
{
    const struct generation *kept[2] = {NULL, NULL};

    for (const struct generation *files = saves->generations; files != NULL; files = files->next) {
        if (files->committed && kept[1] == NULL) {
            kept[kept[0] != NULL] = files; /* the newest come first */
        }
    }
    for (struct generation *files = saves->generations; files != NULL; files = files->next) {
        files->removed = files->removed ||
                         (files->committed && kept[1] != NULL &&
                          !refers_to(kept[0], files->number) && !refers_to(kept[1], files->number));
    }
}

static void
commit(struct master_side *side)
{
    struct saves *saves = side->saves;
    struct generation *files = find_generation(saves, side->token);

    psi_assert(files != NULL && !files->committed);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        memcpy(files->data[kind], side->generation->outline.head[kind],
               side->generation->outline.head_bytes[kind]);
        make_whole(saves, files, &side->generation->sums[kind], kind);
        check_file(saves, files, side->generation, kind);
    }
    files->listed = side->generation->rows;
    side->generation->rows = (struct psi_manifest){0};
    for (size_t i = 0; i < side->generation->table_count; i++) {
        check_table(saves, files, side->generation, i);
    }
    files->committed = true;
    side->news.state = MASTER_DISK_COMMITTED;
    side->news.generation = files->number;
    remove_old(saves);
    saves->job->sim->counters.checkpoints++;
}

static void
make_files(struct master_side *side, const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES])
{
    struct generation *generation = calloc(1, sizeof(*generation));

    psi_assert(generation != NULL);
    generation->token = side->token;
    generation->number = ++side->saves->begun;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        generation->bytes[kind] = bytes[kind];
        generation->data[kind] = calloc(1, bytes[kind]);
        psi_assert(generation->data[kind] != NULL);
    }
    generation->next = side->saves->generations;
    side->saves->generations = generation;
}

static void
master_event(void *object, uint64_t epoch)
{
    struct master_side *side = object;

    if (epoch != side->epoch) {
        return;
    }
    if (fails(side->saves)) {
        side->news.state = MASTER_DISK_FAILED;
        snprintf(side->news.text, sizeof(side->news.text), "the simulated disk fails");
    } else if (side->generation != NULL) {
        commit(side);
    } else {
        side->news.state = MASTER_DISK_BEGUN;
        side->news.generation = find_generation(side->saves, side->token)->number;
    }
    net_wake_at(side->node, 0);
}

static void
master_drop(void *self)
{
    struct master_side *side = self;

    side->epoch++;
    master_generation_destroy(side->generation);
    side->generation = NULL;
    side->news = (struct master_disk_news){.state = MASTER_DISK_BUSY};
}

static void
master_begin(void *self, uint64_t token, const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES],
             bool refers)
{
    struct master_side *side = self;

    master_drop(side);
    side->token = token;
    make_files(side, bytes);
    sim_at(side->saves->job->sim, draw_delay(side->saves), master_event, side, side->epoch);
}

static void
master_commit(void *self, struct master_generation *generation)
{
    struct master_side *side = self;

    side->news.state = MASTER_DISK_BUSY;
    side->generation = generation;
    sim_at(side->saves->job->sim, draw_delay(side->saves), master_event, side, side->epoch);
}

static void
master_look(void *self, struct master_disk_news *news_p)
{
    const struct master_side *side = self;

    *news_p = side->news;
}

const struct master_disk *
saves_master(struct saves *saves, struct node *node)
{
    struct master_side *side = calloc(1, sizeof(*side));

    psi_assert(side != NULL);
    side->saves = saves;
    side->node = node;
    side->disk = (struct master_disk){.self = side,
                                      .begin = master_begin,
                                      .commit = master_commit,
                                      .drop = master_drop,
                                      .look = master_look};
    side->next = saves->masters;
    saves->masters = side;
    return &side->disk;
}

void
saves_destroy(struct saves *saves)
{
    while (saves->lanes != NULL) {
        struct lane_side *side = saves->lanes;

        saves->lanes = side->next;
        lane_drop(side);
        psi_earlier_fini(&side->earlier);
        free(side);
    }
    while (saves->masters != NULL) {
        struct master_side *side = saves->masters;

        saves->masters = side->next;
        master_drop(side);
        free(side);
    }
    while (saves->generations != NULL) {
        struct generation *generation = saves->generations;

        saves->generations = generation->next;
        rows_files_free(&generation->rows);
        psi_manifest_fini(&generation->listed);
        for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
            free(generation->data[kind]);
            free(generation->whole[kind]);
            psi_ranges_fini(&generation->earlier[kind]);
        }
        free(generation);
    }
    free(saves);
}
