/*
 * manifest.h - what a generation consists of: its tables, what workers brought along, and the sizes and
 * checksums of its files.
 * Pure.
 *
 * In the file it is one JSON object, with exactly these fields in exactly this order; the last one
 * is the checksum of all bytes before it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_MANIFEST_H
#define PSI_CHECKPOINT_MANIFEST_H

#include <stdbool.h>

#include <psd/psd.h>

#include "checkpoint/generations.h"
#include "checkpoint/ranges.h"
#include "checkpoint/rows_layout.h"

enum {
    PSI_MANIFEST_BLOCK_BYTES = 1 << 20, /* of a data file: one checksum each */
    PSI_MANIFEST_BYTES_MAX = 1 << 28,
    PSI_MANIFEST_SPEC_MAX = 1024,
    PSI_MANIFEST_PARTS_MAX = 8192,
    PSI_ROWS_FILES_MAX = 1 << 18,      /* of a table */
    PSI_ROWS_FILE_BYTES_MAX = 1 << 26, /* of one: it is read as a whole */
};

/* Which part of a table is of one moment: the whole table, at the step; or only each chunk, because
 * the table changed while it was saved. */
enum psi_manifest_moment { PSI_MANIFEST_MOMENT_STEP, PSI_MANIFEST_MOMENT_CHUNK };

/* What is saved of a table besides its tensors. */
struct psi_manifest_table {
    char name[PSD_NAME_MAX + 1];
    char spec[PSI_MANIFEST_SPEC_MAX]; /* psi_spec_text(); for people */
    uint64_t updates;                 /* of the chunk with the most */
    uint64_t step;
    enum psi_manifest_moment moment;
};

/* A data file. Its checksums are of all its bytes, those that lie in earlier generations too. */
struct psi_manifest_file {
    char name[PSI_CHECKPOINT_NAME_BYTES]; /* psi_checkpoint_changes_name(): parts are elsewhere */
    uint64_t bytes;
    uint32_t checksum;
    uint32_t *blocks; /* checksum of every PSI_MANIFEST_BLOCK_BYTES */
    size_t block_count;
    struct psi_ranges earlier; /* settled; what lies in earlier generations */
};

/* A file that workers brought along. What is in it is theirs to know. */
struct psi_manifest_part {
    char name[PSI_CHECKPOINT_PART_NAME_MAX + 1];
    uint64_t bytes;
    uint32_t checksum;
};

/* A file of rows of a sparse table. */
struct psi_rows_file {
    uint64_t generation; /* that it was written for: this one, or one before */
    uint32_t place;      /* of who wrote it: the files of a place count in the order of the list */
    uint32_t number;     /* among those that it wrote then */
    uint32_t first_bucket; /* its rows are of these ... */
    uint32_t end_bucket;   /* ... and not of this */
    struct psi_rows_count count;
    uint64_t bytes;
    uint32_t checksum;
};

/* The rows of a sparse table. Thread: owned by its caller. */
struct psi_manifest_rows {
    char table[PSD_NAME_MAX + 1];
    struct psi_row_form form;
    struct psi_rows_file *files; /* owned */
    size_t count;
    size_t capacity;
};

/* Thread: owned by its caller. */
struct psi_manifest {
    uint64_t generation;
    uint64_t step;
    struct psi_manifest_table *tables;
    size_t table_count;
    struct psi_manifest_part *parts;
    size_t part_count;
    struct psi_manifest_rows *rows; /* one for each sparse table */
    size_t rows_count;
    struct psi_manifest_file files[PSI_CHECKPOINT_DATA_FILES];
};

/* Empty, but for the names of the files. */
void psi_manifest_init(struct psi_manifest *manifest, uint64_t generation);
void psi_manifest_fini(struct psi_manifest *manifest);

/* How many checksums a file of so many bytes has. */
uint64_t psi_manifest_blocks(uint64_t bytes);

/* Room for the checksums of a file of so many bytes, all 0. False: no memory. */
bool psi_manifest_file_init(struct psi_manifest_file *file, uint64_t bytes);

/* The bytes at `at` join the file's checksum and those of its blocks. Pieces come in any order, see
 * base/crc32c.h: the sum of what several writers added to 0, and of the checksums of zeros
 * (psi_manifest_file_zeros), is that of the file. Returns a checksum of the piece alone. */
uint32_t psi_manifest_file_add(struct psi_manifest_file *file, uint64_t at, const void *data,
                               size_t bytes);
void psi_manifest_file_fini(struct psi_manifest_file *file); /* keeps its name */
void psi_manifest_file_zeros(struct psi_manifest_file *file);

/* NULL: not in the manifest. */
const struct psi_manifest_table *psi_manifest_table(const struct psi_manifest *manifest,
                                                    const char *name);

/* Another part. PSD_ERR_INVALID: of no such name, of a name that is there, or too many. */
psd_status psi_manifest_add_part(struct psi_manifest *manifest,
                                 const struct psi_manifest_part *part, struct psd_error *err);

/* NULL: not in the manifest, or not sparse. */
const struct psi_manifest_rows *psi_manifest_rows(const struct psi_manifest *manifest,
                                                  const char *table);

/* Another sparse table, without files. NULL: no memory. */
struct psi_manifest_rows *psi_manifest_add_rows(struct psi_manifest *manifest, const char *table,
                                                const struct psi_row_form *form);

/* Another file of a table. PSD_ERR_INVALID: it cannot be; PSD_ERR_TOO_BIG: too many. */
psd_status psi_manifest_add_rows_file(struct psi_manifest_rows *rows,
                                      const struct psi_rows_file *file, struct psd_error *err);

/*
 * Reads the text of a manifest into an empty one of that generation. What is wrong is
 * PSD_ERR_CORRUPT, naming the file.
 */
psd_status psi_manifest_parse(struct psi_manifest *manifest, const char *file, const char *text,
                              size_t bytes, struct psd_error *err);

/* The whole text, which the caller frees. `file` is named in errors. */
psd_status psi_manifest_format(const struct psi_manifest *manifest, const char *file, char **text_p,
                               size_t *bytes_p, struct psd_error *err);

#endif
