/*
 * message_save.c - checkpoints: CHECKPOINT, WRITTEN, BLOCKS, EARLIER, ROWS_SAVED, PART.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "wire/pack.h"

void
psi_order_encode(struct psi_pack *pack, const struct psi_order *order)
{
    psi_pack_u64(pack, order->token);
    for (unsigned file = 0; file < PSI_SAVED_FILES; file++) {
        psi_pack_u64(pack, order->bytes[file]);
    }
    psi_pack_u32(pack, order->tables);
    for (uint32_t i = 0; i < order->tables; i++) {
        psi_pack_u32(pack, order->table[i].id);
        for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
            psi_pack_u64(pack, order->table[i].begin[part]);
        }
    }
    psi_pack_u64(pack, order->generation);
    psi_pack_u64(pack, order->after);
}

psd_status
psi_order_decode(const uint8_t *bytes, size_t size, struct psi_order *order_p,
                 struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "CHECKPOINT", bytes, size, err);
    order_p->token = psi_unpack_u64(&unpack, "token");
    for (unsigned file = 0; file < PSI_SAVED_FILES; file++) {
        order_p->bytes[file] = psi_unpack_u64(&unpack, "bytes");
    }
    order_p->tables = psi_unpack_u32(&unpack, "tables", 0, PSI_TABLES_MAX);
    for (uint32_t i = 0; i < order_p->tables && unpack.status == PSD_OK; i++) {
        order_p->table[i].id = psi_unpack_u32(&unpack, "table.id", 0, PSI_TABLES_MAX - 1);
        for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
            order_p->table[i].begin[part] = psi_unpack_u64(&unpack, "table.begin");
        }
    }
    order_p->generation = psi_unpack_u64(&unpack, "generation");
    order_p->after = psi_unpack_u64(&unpack, "after");
    return unpack.status;
}

void
psi_written_encode(struct psi_pack *pack, const struct psi_written *written)
{
    psi_pack_u8(pack, (uint8_t)written->news);
    psi_pack_string(pack, written->text, sizeof(written->text));
    for (unsigned file = 0; file < PSI_SAVED_FILES; file++) {
        psi_pack_u64(pack, written->bytes[file]);
        psi_pack_u32(pack, written->checksum[file]);
    }
    psi_pack_u32(pack, written->tables);
    for (uint32_t i = 0; i < written->tables; i++) {
        psi_pack_u32(pack, written->table[i].id);
        psi_pack_u64(pack, written->table[i].updates);
    }
}

psd_status
psi_written_decode(const uint8_t *bytes, size_t size, struct psi_written *written_p,
                   struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "WRITTEN", bytes, size, err);
    written_p->news =
        (enum psi_written_news)psi_unpack_u8(&unpack, "news", 0, PSI_WRITTEN_NEWS - 1);
    psi_unpack_string(&unpack, "text", written_p->text, sizeof(written_p->text));
    for (unsigned file = 0; file < PSI_SAVED_FILES; file++) {
        written_p->bytes[file] = psi_unpack_u64(&unpack, "bytes");
        written_p->checksum[file] = psi_unpack_u32(&unpack, "checksum", 0, UINT32_MAX);
    }
    written_p->tables = psi_unpack_u32(&unpack, "tables", 0, PSI_TABLES_MAX);
    for (uint32_t i = 0; i < written_p->tables && unpack.status == PSD_OK; i++) {
        written_p->table[i].id = psi_unpack_u32(&unpack, "table.id", 0, PSI_TABLES_MAX - 1);
        written_p->table[i].updates = psi_unpack_u64(&unpack, "table.updates");
    }
    return unpack.status;
}

void
psi_blocks_encode(struct psi_pack *pack, const struct psi_blocks *blocks)
{
    psi_pack_u8(pack, blocks->file);
    psi_pack_u32(pack, blocks->first);
    psi_pack_u32(pack, blocks->count);
    for (uint32_t i = 0; i < blocks->count; i++) {
        psi_pack_u32(pack, blocks->checksum[i]);
    }
}

psd_status
psi_blocks_decode(const uint8_t *bytes, size_t size, struct psi_blocks *blocks_p,
                  struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "BLOCKS", bytes, size, err);
    blocks_p->file = psi_unpack_u8(&unpack, "file", 0, PSI_SAVED_FILES - 1);
    blocks_p->first = psi_unpack_u32(&unpack, "first", 0, UINT32_MAX);
    blocks_p->count = psi_unpack_u32(&unpack, "count", 0, PSI_BLOCKS_MAX);
    for (uint32_t i = 0; i < blocks_p->count && unpack.status == PSD_OK; i++) {
        blocks_p->checksum[i] = psi_unpack_u32(&unpack, "checksum", 0, UINT32_MAX);
    }
    return unpack.status;
}

void
psi_part_encode(struct psi_pack *pack, const struct psi_part *part)
{
    psi_pack_u8(pack, (uint8_t)part->news);
    psi_pack_u64(pack, part->token);
    psi_pack_u64(pack, part->every);
    psi_pack_u64(pack, part->bytes);
    psi_pack_u32(pack, part->checksum);
    psi_pack_string(pack, part->text, sizeof(part->text));
}

psd_status
psi_part_decode(const uint8_t *bytes, size_t size, struct psi_part *part_p, struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "PART", bytes, size, err);
    part_p->news = (enum psi_part_news)psi_unpack_u8(&unpack, "news", 0, PSI_PART_NEWS - 1);
    part_p->token = psi_unpack_u64(&unpack, "token");
    part_p->every = psi_unpack_u64(&unpack, "every");
    part_p->bytes = psi_unpack_u64(&unpack, "bytes");
    part_p->checksum = psi_unpack_u32(&unpack, "checksum", 0, UINT32_MAX);
    psi_unpack_string(&unpack, "text", part_p->text, sizeof(part_p->text));
    return unpack.status;
}

void
psi_refers_encode(struct psi_pack *pack, const struct psi_refers *refers)
{
    psi_pack_u8(pack, refers->file);
    psi_pack_u32(pack, refers->first);
    psi_pack_u32(pack, refers->count);
    for (uint32_t i = 0; i < refers->count; i++) {
        psi_pack_u64(pack, refers->bytes[i].generation);
        psi_pack_u64(pack, refers->bytes[i].begin);
        psi_pack_u64(pack, refers->bytes[i].end);
    }
}

psd_status
psi_refers_decode(const uint8_t *bytes, size_t size, struct psi_refers *refers_p,
                  struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "EARLIER", bytes, size, err);
    refers_p->file = psi_unpack_u8(&unpack, "file", 0, PSI_SAVED_FILES - 1);
    refers_p->first = psi_unpack_u32(&unpack, "first", 0, UINT32_MAX);
    refers_p->count = psi_unpack_u32(&unpack, "count", 0, PSI_EARLIER_MAX);
    for (uint32_t i = 0; i < refers_p->count && unpack.status == PSD_OK; i++) {
        refers_p->bytes[i].generation = psi_unpack_u64(&unpack, "generation");
        refers_p->bytes[i].begin = psi_unpack_u64(&unpack, "begin");
        refers_p->bytes[i].end = psi_unpack_u64(&unpack, "end");
    }
    return unpack.status;
}

void
psi_rows_saved_encode(struct psi_pack *pack, const struct psi_rows_saved *saved)
{
    psi_pack_u32(pack, saved->place);
    psi_pack_u32(pack, saved->first);
    psi_pack_u32(pack, saved->count);
    for (uint32_t i = 0; i < saved->count; i++) {
        const struct psi_saved_file *file = &saved->file[i];

        psi_pack_u32(pack, file->table);
        psi_pack_u64(pack, file->generation);
        psi_pack_u32(pack, file->number);
        psi_pack_u32(pack, file->first_bucket);
        psi_pack_u32(pack, file->end_bucket);
        psi_pack_u32(pack, file->rows);
        psi_pack_u32(pack, file->cleared);
        psi_pack_u32(pack, file->counted);
        psi_pack_u64(pack, file->bytes);
        psi_pack_u32(pack, file->checksum);
    }
}

psd_status
psi_rows_saved_decode(const uint8_t *bytes, size_t size, struct psi_rows_saved *saved_p,
                      struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "ROWS_SAVED", bytes, size, err);
    saved_p->place = psi_unpack_u32(&unpack, "place", 0, PSI_PLACES_MAX - 1);
    saved_p->first = psi_unpack_u32(&unpack, "first", 0, UINT32_MAX);
    saved_p->count = psi_unpack_u32(&unpack, "count", 0, PSI_ROWS_SAVED_MAX);
    for (uint32_t i = 0; i < saved_p->count && unpack.status == PSD_OK; i++) {
        struct psi_saved_file *file = &saved_p->file[i];

        file->table = psi_unpack_u32(&unpack, "file.table", 0, PSI_TABLES_MAX - 1);
        file->generation = psi_unpack_u64(&unpack, "file.generation");
        file->number = psi_unpack_u32(&unpack, "file.number", 0, UINT32_MAX);
        file->first_bucket = psi_unpack_u32(&unpack, "file.first_bucket", 0, UINT32_MAX);
        file->end_bucket = psi_unpack_u32(&unpack, "file.end_bucket", 0, UINT32_MAX);
        file->rows = psi_unpack_u32(&unpack, "file.rows", 0, UINT32_MAX);
        file->cleared = psi_unpack_u32(&unpack, "file.cleared", 0, UINT32_MAX);
        file->counted = psi_unpack_u32(&unpack, "file.counted", 0, UINT32_MAX);
        file->bytes = psi_unpack_u64(&unpack, "file.bytes");
        file->checksum = psi_unpack_u32(&unpack, "file.checksum", 0, UINT32_MAX);
    }
    return unpack.status;
}
