/*
 * checkpoint.h - generations of saved tables in a directory: written whole or not at all, read only
 * when intact. Knows files and checksums; moving tables in and out of them is save.c.
 *
 *     params-N.safetensors   values
 *     state-N.safetensors    master values and optimizer state
 *     manifest-N.json        sizes and checksums of the two, and of itself; renamed into place last
 *
 * N is the generation. A generation without a manifest was never committed.
 */
#ifndef PSI_CLIENT_CHECKPOINT_H
#define PSI_CLIENT_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/safetensors.h"

/*
 * The system calls through which a checkpoint reaches the disk and comes back; they behave like the
 * calls named, errno included. Tests put failing ones in here.
 * Thread: immutable; self belongs to whoever made it.
 */
struct psi_disk {
    void *self;
    int (*open)(void *self, int directory, const char *name, int flags);            /* openat */
    int (*reserve)(void *self, int fd, uint64_t bytes);                             /* fallocate */
    ssize_t (*write)(void *self, int fd, const void *data, size_t bytes);           /* write */
    ssize_t (*read)(void *self, int fd, void *data, size_t bytes, uint64_t offset); /* pread */
    int (*sync)(void *self, int fd);                                                /* fdatasync */
    int (*sync_directory)(void *self, int fd);                                      /* fsync */
    int (*rename)(void *self, int directory, const char *from, const char *to);     /* renameat */
    int (*remove)(void *self, int directory, const char *name);                     /* unlinkat */
};

extern const struct psi_disk psi_disk_system;

enum psi_checkpoint_kind { PSI_CHECKPOINT_PARAMS, PSI_CHECKPOINT_STATE, PSI_CHECKPOINT_MANIFEST };

enum {
    PSI_CHECKPOINT_DATA_FILES = PSI_CHECKPOINT_MANIFEST, /* the kinds before it */
    PSI_CHECKPOINT_BLOCK_BYTES = 1 << 20,                /* one checksum each */
    PSI_CHECKPOINT_SPEC_MAX = 1024,
};

/* What the manifest says about a table, beside its tensors. */
struct psi_checkpoint_table {
    char name[PSD_NAME_MAX + 1];
    char spec[PSI_CHECKPOINT_SPEC_MAX]; /* psi_spec_text(); for people */
    uint64_t updates;
    uint64_t step;
};

/* --------------------------------------------------------------------------------- writing --- */

struct psi_checkpoint_writer;

/*
 * Begins the next generation in a directory (made if only its last name is missing): cleans up
 * after saves that died, creates both data files and reserves their bytes. PSD_ERR_BUSY while
 * another save into the directory is under way, PSD_ERR_IO naming the file and the reason. `path`
 * is borrowed, `disk` too.
 */
psd_status psi_checkpoint_writer_create(const struct psi_disk *disk, const char *path,
                                        const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES],
                                        struct psi_checkpoint_writer **writer_p,
                                        struct psd_error *err);

/* Without a commit before, leaves no trace of the generation. NULL is allowed. */
void psi_checkpoint_writer_destroy(struct psi_checkpoint_writer *writer);

/* Appends to one of the data files. */
psd_status psi_checkpoint_write(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind,
                                const void *data, size_t bytes, struct psd_error *err);

/*
 * Makes the generation the newest one, then removes all but it and the one before. Both files must
 * have all their bytes. After an error only psi_checkpoint_writer_destroy() is left to call.
 */
psd_status psi_checkpoint_commit(struct psi_checkpoint_writer *writer, uint64_t step,
                                 const struct psi_checkpoint_table *tables, size_t count,
                                 struct psd_error *err);

/* --------------------------------------------------------------------------------- reading --- */

/* One data file. The checksums are what the manifest says. */
struct psi_checkpoint_file {
    char name[48];
    int fd;
    uint64_t bytes;
    uint32_t checksum;
    uint32_t *blocks; /* of every PSI_CHECKPOINT_BLOCK_BYTES */
    size_t block_count;
    struct psi_tensors tensors;
};

/* An intact generation. Thread: owned by its caller. */
struct psi_checkpoint {
    const struct psi_disk *disk;
    const char *path;
    uint64_t generation;
    uint64_t step;
    struct psi_checkpoint_table *tables;
    size_t table_count;
    struct psi_checkpoint_file files[PSI_CHECKPOINT_DATA_FILES];
    uint8_t *block; /* PSI_CHECKPOINT_BLOCK_BYTES to read into */
};

/*
 * Opens the newest generation whose every byte is as it was written. On PSD_OK err->text is empty,
 * or says what is wrong with the newest generation that was passed over.
 *
 *   PSD_ERR_CORRUPT  there are generations, none intact: what is wrong with the newest;
 *   PSD_ERR_IO       no generation at all, or a failure that says nothing about the files.
 */
psd_status psi_checkpoint_open(const struct psi_disk *disk, const char *path,
                               struct psi_checkpoint **checkpoint_p, struct psd_error *err);
void psi_checkpoint_destroy(struct psi_checkpoint *checkpoint); /* NULL is allowed */

/* Part of a tensor's bytes, checked once more on the way. */
psd_status psi_checkpoint_read(struct psi_checkpoint *checkpoint, enum psi_checkpoint_kind kind,
                               const struct psi_tensor *tensor, uint64_t first, size_t bytes,
                               void *to, struct psd_error *err);

/* NULL: not in the manifest. */
const struct psi_checkpoint_table *psi_checkpoint_table(const struct psi_checkpoint *checkpoint,
                                                        const char *name);

/*
 * Reads the text of manifest-<generation>.json into an empty checkpoint; file descriptors and
 * tensors stay empty. For psi_checkpoint_open() and for tests of what hostile text can do.
 */
struct psi_checkpoint *psi_checkpoint_create(uint64_t generation); /* NULL without memory */
psd_status psi_checkpoint_parse(struct psi_checkpoint *checkpoint, const char *file,
                                const char *text, size_t bytes, struct psd_error *err);

#endif
