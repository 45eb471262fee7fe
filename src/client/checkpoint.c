/*
 * checkpoint.c - generations of saved tables in a directory.
 *
 * Invariants
 *   - a name that psi_checkpoint_open() looks for appears only by rename, after the file's bytes
 * are on the disk; the manifest's only after the data files' names are, too;
 *   - nothing of the two newest committed generations is touched before a newer one is committed;
 *   - a manifest goes before the files it names, so none is left without them.
 *
 * The manifest's temporary file exists during the whole save and is locked by the process that
 * saves: a locked one means that somebody else is saving, an unlocked one that somebody died doing
 * so.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fail.h"

enum {
    KINDS = PSI_CHECKPOINT_MANIFEST + 1,
    FORMAT_VERSION = 1,
    GENERATION_DIGITS_MAX = 18, /* so that the next one fits, too */
    GENERATIONS_KEPT = 2,
    LOCK_ATTEMPTS = 3,
    TAIL_BYTES = 21, /* of a manifest: its own checksum */
    LABEL_BYTES = PATH_MAX + 64,
    NEW_FILE = O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC,
};

#define MANIFEST_BYTES_MAX (UINT64_C(1) << 28)

static const char format_name[] = "poseidon-checkpoint";

static const struct {
    const char *prefix;
    const char *suffix;
    const char *temporary;
} kinds[KINDS] = {
    [PSI_CHECKPOINT_PARAMS] = {"params-", ".safetensors", ".params.tmp"},
    [PSI_CHECKPOINT_STATE] = {"state-", ".safetensors", ".state.tmp"},
    [PSI_CHECKPOINT_MANIFEST] = {"manifest-", ".json", ".manifest.tmp"},
};

/* --------------------------------------------------------------------------------- the disk --- */

static int
system_open(void *self, int directory, const char *name, int flags)
{
    return openat(directory, name, flags, 0666);
}

static int
system_reserve(void *self, int fd, uint64_t bytes)
{
    const int code = bytes > INT64_MAX ? EFBIG : posix_fallocate(fd, 0, (off_t)bytes);

    if (code == 0 || code == EOPNOTSUPP) {
        return 0; /* a file system that cannot promise space may still have it */
    }
    errno = code;
    return -1;
}

static ssize_t
system_write(void *self, int fd, const void *data, size_t bytes)
{
    return write(fd, data, bytes);
}

static ssize_t
system_read(void *self, int fd, void *data, size_t bytes, uint64_t offset)
{
    return pread(fd, data, bytes, (off_t)offset);
}

static int
system_sync(void *self, int fd)
{
    return fdatasync(fd);
}

static int
system_sync_directory(void *self, int fd)
{
    return fsync(fd);
}

static int
system_rename(void *self, int directory, const char *from, const char *to)
{
    return renameat(directory, from, directory, to);
}

static int
system_remove(void *self, int directory, const char *name)
{
    return unlinkat(directory, name, 0);
}

const struct psi_disk psi_disk_system = {
    .open = system_open,
    .reserve = system_reserve,
    .write = system_write,
    .read = system_read,
    .sync = system_sync,
    .sync_directory = system_sync_directory,
    .rename = system_rename,
    .remove = system_remove,
};

static int
disk_open(const struct psi_disk *disk, int directory, const char *name, int flags)
{
    int fd;

    do {
        fd = disk->open(disk->self, directory, name, flags);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* All of it, in as many pieces as the system likes. */
static int
disk_write(const struct psi_disk *disk, int fd, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t count = disk->write(disk->self, fd, data, bytes);

        if (count > 0) {
            data += count;
            bytes -= (size_t)count;
        } else if (count == 0 || errno != EINTR) {
            errno = count == 0 ? EIO : errno;
            return -1;
        }
    }
    return 0;
}

/* All of it; a file that ends before is EIO. */
static int
disk_read(const struct psi_disk *disk, int fd, uint8_t *data, size_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        const ssize_t count = disk->read(disk->self, fd, data, bytes, offset);

        if (count > 0) {
            data += count;
            bytes -= (size_t)count;
            offset += (uint64_t)count;
        } else if (count == 0 || errno != EINTR) {
            errno = count == 0 ? EIO : errno;
            return -1;
        }
    }
    return 0;
}

static int
disk_sync(const struct psi_disk *disk, int (*sync)(void *self, int fd), int fd)
{
    int code;

    do {
        code = sync(disk->self, fd);
    } while (code != 0 && errno == EINTR);
    return code;
}

static void
close_fd(int *fd_p)
{
    if (*fd_p >= 0) {
        close(*fd_p); /* what matters was synced before: nothing is left to go wrong */
        *fd_p = -1;
    }
}

/* -------------------------------------------------------------------- files and their names --- */

static void
file_name(char name[48], enum psi_checkpoint_kind kind, uint64_t generation)
{
    snprintf(name, 48, "%s%llu%s", kinds[kind].prefix, (unsigned long long)generation,
             kinds[kind].suffix);
}

struct listed {
    uint64_t generation;
    enum psi_checkpoint_kind kind;
};

struct listing {
    struct listed *items; /* newest first, in each generation the manifest first */
    size_t count;
    size_t capacity;
};

static bool
parse_name(const char *name, struct listed *listed_p)
{
    for (unsigned kind = 0; kind < KINDS; kind++) {
        const size_t prefix = strlen(kinds[kind].prefix);
        const char *digits = name + prefix;
        size_t count;

        if (strncmp(name, kinds[kind].prefix, prefix) != 0) {
            continue;
        }
        count = strspn(digits, "0123456789");
        if (count < 1 || count > GENERATION_DIGITS_MAX || digits[0] == '0' ||
            strcmp(digits + count, kinds[kind].suffix) != 0) {
            return false;
        }
        listed_p->generation = strtoull(digits, NULL, 10);
        listed_p->kind = (enum psi_checkpoint_kind)kind;
        return true;
    }
    return false;
}

static int
newest_first(const void *a, const void *b)
{
    const struct listed *left = a;
    const struct listed *right = b;

    if (left->generation != right->generation) {
        return left->generation > right->generation ? -1 : 1;
    }
    return (int)right->kind - (int)left->kind;
}

static bool
listing_add(struct listing *listing, struct listed listed)
{
    if (listing->count == listing->capacity) {
        const size_t capacity = listing->capacity * 2 + 16;
        struct listed *items = reallocarray(listing->items, capacity, sizeof(*items));

        if (items == NULL) {
            return false;
        }
        listing->items = items;
        listing->capacity = capacity;
    }
    listing->items[listing->count++] = listed;
    return true;
}

/* Reads the directory to its end. errno says why not. */
static int
read_listing(DIR *stream, struct listing *listing)
{
    const struct dirent *entry;
    struct listed listed;

    while (errno = 0, (entry = readdir(stream)) != NULL) {
        if (parse_name(entry->d_name, &listed) && !listing_add(listing, listed)) {
            errno = ENOMEM;
            break;
        }
    }
    return errno == 0 ? 0 : -1;
}

/* The checkpoint files of a directory. The caller frees the items. */
static psd_status
list_files(int directory, const char *path, struct listing *listing_p, struct psd_error *err)
{
    struct listing listing = {0};
    const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    psd_status status = PSD_OK;

    if (stream == NULL || read_listing(stream, &listing) != 0) {
        status = psi_fail_errno(err, errno == ENOMEM ? PSD_ERR_NO_MEMORY : PSD_ERR_IO,
                                "read directory %s", path);
    }
    if (stream != NULL) {
        closedir(stream);
    } else if (fd >= 0) {
        close(fd);
    }
    if (status != PSD_OK) {
        free(listing.items);
        return status;
    }
    if (listing.count > 1) {
        qsort(listing.items, listing.count, sizeof(listing.items[0]), newest_first);
    }
    *listing_p = listing;
    return PSD_OK;
}

/* ---------------------------------------------------------------------------------- writing --- */

enum output_state { OUTPUT_ABSENT, OUTPUT_TEMPORARY, OUTPUT_NAMED };

struct output {
    struct psi_checkpoint_file file;
    enum output_state state;
    uint64_t written;
};

/* Thread: owned by its caller. */
struct psi_checkpoint_writer {
    const struct psi_disk *disk;
    const char *path;
    int directory;
    uint64_t generation;
    struct output outputs[KINDS];
};

/* A new directory's own name must be on the disk as well. */
static psd_status
sync_parent(const struct psi_checkpoint_writer *writer, struct psd_error *err)
{
    const struct psi_disk *disk = writer->disk;
    int fd = disk_open(disk, writer->directory, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    psd_status status = PSD_OK;

    if (fd < 0 || disk_sync(disk, disk->sync_directory, fd) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "sync directory %s/..", writer->path);
    }
    close_fd(&fd);
    return status;
}

static psd_status
open_directory(struct psi_checkpoint_writer *writer, struct psd_error *err)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    bool made = false;

    writer->directory = disk_open(writer->disk, AT_FDCWD, writer->path, flags);
    if (writer->directory < 0 && errno == ENOENT) {
        if (mkdir(writer->path, 0777) != 0 && errno != EEXIST) {
            return psi_fail_errno(err, PSD_ERR_IO, "make directory %s", writer->path);
        }
        made = true;
        writer->directory = disk_open(writer->disk, AT_FDCWD, writer->path, flags);
    }
    if (writer->directory < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "open directory %s", writer->path);
    }
    return made ? sync_parent(writer, err) : PSD_OK;
}

/* Returns the descriptor, -1 with errno. */
static int
open_temporary(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind)
{
    struct output *output = &writer->outputs[kind];

    output->file.fd = disk_open(writer->disk, writer->directory, kinds[kind].temporary, NEW_FILE);
    if (output->file.fd >= 0) {
        output->state = OUTPUT_TEMPORARY;
    }
    return output->file.fd;
}

static psd_status
create_failed(const struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind,
              struct psd_error *err)
{
    return psi_fail_errno(err, PSD_ERR_IO, "create %s/%s", writer->path, kinds[kind].temporary);
}

/* A file system without locks answers otherwise, and gets no protection. */
static bool
locked_by_another(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

static psd_status
busy(const struct psi_checkpoint_writer *writer, struct psd_error *err)
{
    return psi_fail(err, PSD_ERR_BUSY, "save into %s: another save is under way", writer->path);
}

/* The manifest's temporary file exists. Removes it if whoever made it is dead. */
static psd_status
break_lock(const struct psi_checkpoint_writer *writer, struct psd_error *err)
{
    const char *name = kinds[PSI_CHECKPOINT_MANIFEST].temporary;
    const struct psi_disk *disk = writer->disk;
    psd_status status = PSD_OK;
    struct stat ours;
    struct stat there;
    int fd = disk_open(disk, writer->directory, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0) {
        return errno == ENOENT ? PSD_OK
                               : psi_fail_errno(err, PSD_ERR_IO, "open %s/%s", writer->path, name);
    }
    if (locked_by_another(fd)) {
        status = busy(writer, err);
    } else if (fstat(fd, &ours) == 0 && fstatat(writer->directory, name, &there, 0) == 0 &&
               ours.st_ino == there.st_ino && ours.st_dev == there.st_dev &&
               disk->remove(disk->self, writer->directory, name) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "remove %s/%s", writer->path, name);
    }
    close_fd(&fd);
    return status;
}

static psd_status
lock_directory(struct psi_checkpoint_writer *writer, struct psd_error *err)
{
    struct output *output = &writer->outputs[PSI_CHECKPOINT_MANIFEST];

    for (int attempt = 0; attempt < LOCK_ATTEMPTS; attempt++) {
        psd_status status;

        if (open_temporary(writer, PSI_CHECKPOINT_MANIFEST) >= 0) {
            if (!locked_by_another(output->file.fd)) {
                return PSD_OK;
            }
            output->state = OUTPUT_ABSENT; /* taken for dead: now it is the other's to remove */
            return busy(writer, err);
        }
        if (errno != EEXIST) {
            return create_failed(writer, PSI_CHECKPOINT_MANIFEST, err);
        }
        status = break_lock(writer, err);
        if (status != PSD_OK) {
            return status;
        }
    }
    return busy(writer, err);
}

static psd_status
remove_file(const struct psi_checkpoint_writer *writer, const char *name, struct psd_error *err)
{
    if (writer->disk->remove(writer->disk->self, writer->directory, name) != 0 && errno != ENOENT) {
        return psi_fail_errno(err, PSD_ERR_IO, "remove %s/%s", writer->path, name);
    }
    return PSD_OK;
}

/*
 * What dead saves left: temporary files, which are in the way, and data files that no manifest
 * makes a generation. Those only take space: one that cannot be removed is no reason not to save.
 */
static psd_status
remove_leftovers(const struct psi_checkpoint_writer *writer, const struct listing *listing,
                 struct psd_error *err)
{
    psd_status status = PSD_OK;
    uint64_t committed = 0;

    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = remove_file(writer, kinds[kind].temporary, err);
    }
    for (size_t i = 0; i < listing->count && status == PSD_OK; i++) {
        const struct listed *listed = &listing->items[i];

        if (listed->kind == PSI_CHECKPOINT_MANIFEST) {
            committed = listed->generation;
        } else if (listed->generation != committed) {
            char name[48];

            file_name(name, listed->kind, listed->generation);
            (void)remove_file(writer, name, NULL);
        }
    }
    return status;
}

/* Numbers the new generation: one more than any that is or was begun here. */
static psd_status
begin_generation(struct psi_checkpoint_writer *writer, struct psd_error *err)
{
    struct listing listing;
    psd_status status = list_files(writer->directory, writer->path, &listing, err);

    if (status != PSD_OK) {
        return status;
    }
    writer->generation = listing.count == 0 ? 1 : listing.items[0].generation + 1;
    status = remove_leftovers(writer, &listing, err);
    free(listing.items);
    for (unsigned kind = 0; kind < KINDS; kind++) {
        file_name(writer->outputs[kind].file.name, (enum psi_checkpoint_kind)kind,
                  writer->generation);
    }
    return status;
}

static psd_status
reserve(const struct psi_checkpoint_writer *writer, const struct psi_checkpoint_file *file,
        struct psd_error *err)
{
    int code;

    do {
        code = writer->disk->reserve(writer->disk->self, file->fd, file->bytes);
    } while (code != 0 && errno == EINTR);
    if (code != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "reserve %llu bytes for %s/%s",
                              (unsigned long long)file->bytes, writer->path, file->name);
    }
    return PSD_OK;
}

static uint64_t
blocks_of(uint64_t bytes)
{
    return bytes / PSI_CHECKPOINT_BLOCK_BYTES + (bytes % PSI_CHECKPOINT_BLOCK_BYTES != 0);
}

static psd_status
begin_file(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind, uint64_t bytes,
           struct psd_error *err)
{
    struct psi_checkpoint_file *file = &writer->outputs[kind].file;

    psi_assert(bytes > 0);
    file->bytes = bytes;
    file->block_count = blocks_of(bytes);
    file->blocks = calloc(file->block_count, sizeof(file->blocks[0]));
    if (file->blocks == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "save %s/%s: no memory for checksums", writer->path,
                        file->name);
    }
    if (open_temporary(writer, kind) < 0) {
        return create_failed(writer, kind, err);
    }
    return reserve(writer, file, err);
}

psd_status
psi_checkpoint_writer_create(const struct psi_disk *disk, const char *path,
                             const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES],
                             struct psi_checkpoint_writer **writer_p, struct psd_error *err)
{
    struct psi_checkpoint_writer *writer = calloc(1, sizeof(*writer));
    psd_status status;

    if (writer == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "save into %s: no memory", path);
    }
    writer->disk = disk;
    writer->path = path;
    for (unsigned kind = 0; kind < KINDS; kind++) {
        writer->outputs[kind].file.fd = -1;
    }
    status = open_directory(writer, err);
    if (status == PSD_OK) {
        status = lock_directory(writer, err);
    }
    if (status == PSD_OK) {
        status = begin_generation(writer, err);
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = begin_file(writer, (enum psi_checkpoint_kind)kind, bytes[kind], err);
    }
    if (status != PSD_OK) {
        psi_checkpoint_writer_destroy(writer);
        return status;
    }
    *writer_p = writer;
    return PSD_OK;
}

/* On the way out: what cannot be removed now is left for the next save. */
static void
discard(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind,
        enum output_state state)
{
    struct output *output = &writer->outputs[kind];

    if (output->state == state) {
        (void)remove_file(writer, state == OUTPUT_NAMED ? output->file.name : kinds[kind].temporary,
                          NULL);
        output->state = OUTPUT_ABSENT;
    }
}

void
psi_checkpoint_writer_destroy(struct psi_checkpoint_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    discard(writer, PSI_CHECKPOINT_MANIFEST, OUTPUT_NAMED);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        discard(writer, (enum psi_checkpoint_kind)kind, OUTPUT_NAMED);
        discard(writer, (enum psi_checkpoint_kind)kind, OUTPUT_TEMPORARY);
    }
    discard(writer, PSI_CHECKPOINT_MANIFEST, OUTPUT_TEMPORARY); /* the lock: last */
    for (unsigned kind = 0; kind < KINDS; kind++) {
        close_fd(&writer->outputs[kind].file.fd);
        free(writer->outputs[kind].file.blocks);
    }
    close_fd(&writer->directory);
    free(writer);
}

/* The bytes at `at` join the file's checksum and those of their blocks. */
static void
add_to_checksums(struct psi_checkpoint_file *file, uint64_t at, const uint8_t *data, size_t bytes)
{
    file->checksum = psi_crc32c(file->checksum, data, bytes);
    while (bytes > 0) {
        uint32_t *block = &file->blocks[at / PSI_CHECKPOINT_BLOCK_BYTES];
        const size_t room = PSI_CHECKPOINT_BLOCK_BYTES - (size_t)(at % PSI_CHECKPOINT_BLOCK_BYTES);
        const size_t count = bytes < room ? bytes : room;

        *block = psi_crc32c(*block, data, count);
        at += count;
        data += count;
        bytes -= count;
    }
}

psd_status
psi_checkpoint_write(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind,
                     const void *data, size_t bytes, struct psd_error *err)
{
    struct output *output = &writer->outputs[kind];

    psi_assert(kind != PSI_CHECKPOINT_MANIFEST);
    psi_assert(bytes <= output->file.bytes - output->written);
    if (disk_write(writer->disk, output->file.fd, data, bytes) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "write %s/%s", writer->path, output->file.name);
    }
    add_to_checksums(&output->file, output->written, data, bytes);
    output->written += bytes;
    return PSD_OK;
}

/* Bytes to the disk, then the name. A file that could not be synced is given up: the system may
 * have dropped what it could not write and say so only once. */
static psd_status
publish(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind, struct psd_error *err)
{
    const struct psi_disk *disk = writer->disk;
    struct output *output = &writer->outputs[kind];

    if (disk_sync(disk, disk->sync, output->file.fd) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "sync %s/%s", writer->path, output->file.name);
    }
    if (disk->rename(disk->self, writer->directory, kinds[kind].temporary, output->file.name) !=
        0) {
        return psi_fail_errno(err, PSD_ERR_IO, "rename %s/%s to %s", writer->path,
                              kinds[kind].temporary, output->file.name);
    }
    output->state = OUTPUT_NAMED;
    if (disk_sync(disk, disk->sync_directory, writer->directory) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "sync directory %s for %s", writer->path,
                              output->file.name);
    }
    return PSD_OK;
}

static void
put_file(FILE *out, const struct psi_checkpoint_file *file)
{
    fprintf(out, "{\"name\":\"%s\",\"bytes\":%llu,\"crc32c\":%u,\"blocks\":[", file->name,
            (unsigned long long)file->bytes, file->checksum);
    for (size_t i = 0; i < file->block_count; i++) {
        fprintf(out, "%s%u", i > 0 ? "," : "", file->blocks[i]);
    }
    fputs("]}", out);
}

static void
put_table(FILE *out, const struct psi_checkpoint_table *table)
{
    fputs("{\"name\":", out);
    psi_json_put_string(out, table->name);
    fputs(",\"spec\":", out);
    psi_json_put_string(out, table->spec);
    fprintf(out, ",\"updates\":%llu,\"step\":%llu}", (unsigned long long)table->updates,
            (unsigned long long)table->step);
}

/* The manifest but for its own checksum. One table or file per line: people read it, too. */
static void
put_manifest(FILE *out, const struct psi_checkpoint_writer *writer, uint64_t step,
             const struct psi_checkpoint_table *tables, size_t count)
{
    fprintf(out,
            "{\"format\":\"%s\",\"version\":%d,\"generation\":%llu,\"step\":%llu,"
            "\"block_bytes\":%d,\n\"tables\":[",
            format_name, FORMAT_VERSION, (unsigned long long)writer->generation,
            (unsigned long long)step, PSI_CHECKPOINT_BLOCK_BYTES);
    for (size_t i = 0; i < count; i++) {
        fputs(i > 0 ? ",\n" : "\n", out);
        put_table(out, &tables[i]);
    }
    fputs("],\n\"files\":[", out);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        fputs(kind > 0 ? ",\n" : "\n", out);
        put_file(out, &writer->outputs[kind].file);
    }
    fputs("],\n", out);
}

struct manifest_text {
    char *data;
    size_t bytes;
};

/* The whole text. The caller frees it. */
static psd_status
make_manifest(const struct psi_checkpoint_writer *writer, uint64_t step,
              const struct psi_checkpoint_table *tables, size_t count, struct manifest_text *text_p,
              struct psd_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    bool failed = out == NULL;

    if (out != NULL) {
        put_manifest(out, writer, step, tables, count);
        failed = fflush(out) != 0; /* sets text and bytes */
        if (!failed) {
            fprintf(out, "\"crc32c\":\"%08x\"}\n", psi_crc32c(0, text, bytes));
        }
        failed = ferror(out) != 0 || failed;
        failed = fclose(out) != 0 || failed;
    }
    if (failed || bytes > MANIFEST_BYTES_MAX) {
        free(text);
        return psi_fail(err, failed ? PSD_ERR_NO_MEMORY : PSD_ERR_TOO_BIG,
                        "save %s/%s: a manifest of %zu tables does not fit", writer->path,
                        writer->outputs[PSI_CHECKPOINT_MANIFEST].file.name, count);
    }
    text_p->data = text;
    text_p->bytes = bytes;
    return PSD_OK;
}

static psd_status
write_manifest(struct psi_checkpoint_writer *writer, uint64_t step,
               const struct psi_checkpoint_table *tables, size_t count, struct psd_error *err)
{
    struct psi_checkpoint_file *file = &writer->outputs[PSI_CHECKPOINT_MANIFEST].file;
    struct manifest_text text = {0};
    psd_status status = make_manifest(writer, step, tables, count, &text, err);

    if (status != PSD_OK) {
        return status;
    }
    file->bytes = text.bytes;
    status = reserve(writer, file, err);
    if (status == PSD_OK &&
        disk_write(writer->disk, file->fd, (uint8_t *)text.data, text.bytes) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "write %s/%s", writer->path, file->name);
    }
    free(text.data);
    return status == PSD_OK ? publish(writer, PSI_CHECKPOINT_MANIFEST, err) : status;
}

/* The save has succeeded: an old generation that cannot be removed now is one for the next save. */
static void
remove_old(const struct psi_checkpoint_writer *writer)
{
    struct listing listing;
    unsigned seen = 0;

    if (list_files(writer->directory, writer->path, &listing, NULL) != PSD_OK) {
        return;
    }
    for (size_t i = 0; i < listing.count; i++) {
        char name[48];

        seen += listing.items[i].kind == PSI_CHECKPOINT_MANIFEST;
        if (seen > GENERATIONS_KEPT) {
            file_name(name, listing.items[i].kind, listing.items[i].generation);
            (void)remove_file(writer, name, NULL);
        }
    }
    free(listing.items);
}

psd_status
psi_checkpoint_commit(struct psi_checkpoint_writer *writer, uint64_t step,
                      const struct psi_checkpoint_table *tables, size_t count,
                      struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        psi_assert(writer->outputs[kind].written == writer->outputs[kind].file.bytes);
        status = publish(writer, (enum psi_checkpoint_kind)kind, err);
    }
    if (status == PSD_OK) {
        status = write_manifest(writer, step, tables, count, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    for (unsigned kind = 0; kind < KINDS; kind++) {
        writer->outputs[kind].state = OUTPUT_ABSENT; /* no longer ours to discard */
    }
    remove_old(writer);
    return PSD_OK;
}

/* ----------------------------------------------------------------------- reading a manifest --- */

static bool
read_field(struct psi_json *json, bool *first_p, const char *expected)
{
    char key[32];

    if (!psi_json_more(json, '}', first_p)) {
        return psi_json_fail(json, "a field is missing");
    }
    if (!psi_json_string(json, key, sizeof(key))) {
        return false;
    }
    if (strcmp(key, expected) != 0) {
        return psi_json_fail(json, "unexpected field");
    }
    return psi_json_take(json, ':');
}

static void
read_text(struct psi_json *json, bool *first_p, const char *key, char *text, size_t size)
{
    if (read_field(json, first_p, key)) {
        psi_json_string(json, text, size);
    }
}

static uint64_t
read_number(struct psi_json *json, bool *first_p, const char *key)
{
    uint64_t value = 0;

    if (read_field(json, first_p, key)) {
        psi_json_number(json, &value);
    }
    return value;
}

/* A number that can only be this one. */
static void
read_constant(struct psi_json *json, bool *first_p, const char *key, uint64_t expected)
{
    if (read_number(json, first_p, key) != expected) {
        psi_json_fail(json, key);
    }
}

static void
read_tables(struct psi_json *json, struct psi_checkpoint *checkpoint)
{
    size_t capacity = 0;

    psi_json_take(json, '[');
    for (bool first = true; psi_json_more(json, ']', &first);) {
        struct psi_checkpoint_table *table;
        bool first_field = true;

        if (checkpoint->table_count == capacity) {
            capacity = capacity * 2 + 16;
            table = reallocarray(checkpoint->tables, capacity, sizeof(*table));
            if (table == NULL) {
                psi_json_no_memory(json);
                return;
            }
            checkpoint->tables = table;
        }
        table = &checkpoint->tables[checkpoint->table_count++];
        memset(table, 0, sizeof(*table));
        psi_json_take(json, '{');
        read_text(json, &first_field, "name", table->name, sizeof(table->name));
        read_text(json, &first_field, "spec", table->spec, sizeof(table->spec));
        table->updates = read_number(json, &first_field, "updates");
        table->step = read_number(json, &first_field, "step");
        psi_json_take(json, '}');
    }
}

static void
read_blocks(struct psi_json *json, struct psi_checkpoint_file *file)
{
    size_t capacity = 0;

    psi_json_take(json, '[');
    for (bool first = true; psi_json_more(json, ']', &first);) {
        uint64_t block = 0;

        if (file->block_count == capacity) {
            uint32_t *blocks;

            capacity = capacity * 2 + 64;
            blocks = reallocarray(file->blocks, capacity, sizeof(*blocks));
            if (blocks == NULL) {
                psi_json_no_memory(json);
                return;
            }
            file->blocks = blocks;
        }
        psi_json_number(json, &block);
        if (block > UINT32_MAX) {
            psi_json_fail(json, "checksum beyond 32 bits");
        }
        file->blocks[file->block_count++] = (uint32_t)block;
    }
    if (file->block_count != blocks_of(file->bytes)) {
        psi_json_fail(json, "blocks do not add up to bytes");
    }
}

/* The name must be the one expected: a manifest cannot point elsewhere. */
static void
read_file_entry(struct psi_json *json, struct psi_checkpoint_file *file)
{
    char name[sizeof(file->name)] = "";
    bool first = true;
    uint64_t checksum;

    psi_json_take(json, '{');
    read_text(json, &first, "name", name, sizeof(name));
    if (strcmp(name, file->name) != 0) {
        psi_json_fail(json, "name of another file");
    }
    file->bytes = read_number(json, &first, "bytes");
    checksum = read_number(json, &first, "crc32c");
    if (checksum > UINT32_MAX) {
        psi_json_fail(json, "checksum beyond 32 bits");
    }
    file->checksum = (uint32_t)checksum;
    if (read_field(json, &first, "blocks")) {
        read_blocks(json, file);
    }
    psi_json_take(json, '}');
}

static void
read_manifest(struct psi_json *json, struct psi_checkpoint *checkpoint)
{
    char text[32] = "";
    bool first = true;

    psi_json_take(json, '{');
    read_text(json, &first, "format", text, sizeof(text));
    if (strcmp(text, format_name) != 0) {
        psi_json_fail(json, "not a manifest of a checkpoint");
    }
    read_constant(json, &first, "version", FORMAT_VERSION);
    read_constant(json, &first, "generation", checkpoint->generation);
    checkpoint->step = read_number(json, &first, "step");
    read_constant(json, &first, "block_bytes", PSI_CHECKPOINT_BLOCK_BYTES);
    if (read_field(json, &first, "tables")) {
        read_tables(json, checkpoint);
    }
    if (read_field(json, &first, "files")) {
        psi_json_take(json, '[');
        read_file_entry(json, &checkpoint->files[PSI_CHECKPOINT_PARAMS]);
        psi_json_take(json, ',');
        read_file_entry(json, &checkpoint->files[PSI_CHECKPOINT_STATE]);
        psi_json_take(json, ']');
    }
    read_text(json, &first, "crc32c", text, sizeof(text));
    psi_json_take(json, '}');
    psi_json_end(json);
}

struct psi_checkpoint *
psi_checkpoint_create(uint64_t generation)
{
    struct psi_checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));

    if (checkpoint == NULL) {
        return NULL;
    }
    checkpoint->generation = generation;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        checkpoint->files[kind].fd = -1;
        file_name(checkpoint->files[kind].name, (enum psi_checkpoint_kind)kind, generation);
    }
    return checkpoint;
}

psd_status
psi_checkpoint_parse(struct psi_checkpoint *checkpoint, const char *file, const char *text,
                     size_t bytes, struct psd_error *err)
{
    char tail[TAIL_BYTES + 1];
    struct psi_json json;

    if (bytes < TAIL_BYTES) {
        return psi_fail(err, PSD_ERR_CORRUPT, "%s: only %zu bytes", file, bytes);
    }
    snprintf(tail, sizeof(tail), "\"crc32c\":\"%08x\"}\n", psi_crc32c(0, text, bytes - TAIL_BYTES));
    if (memcmp(text + bytes - TAIL_BYTES, tail, TAIL_BYTES) != 0) {
        return psi_fail(err, PSD_ERR_CORRUPT, "%s: its checksum does not match", file);
    }
    psi_json_init(&json, file, text, bytes, err);
    read_manifest(&json, checkpoint);
    return json.status;
}

/* ----------------------------------------------------------------------- reading data files --- */

/* A file that is gone or unreadable is damaged; other failures say nothing about it. */
static psd_status
read_failed(struct psd_error *err, const char *what, const char *path, const char *name)
{
    const bool damaged = errno == ENOENT || errno == EIO;

    return psi_fail_errno(err, damaged ? PSD_ERR_CORRUPT : PSD_ERR_IO, "%s %s/%s", what, path,
                          name);
}

static psd_status
open_input(const struct psi_checkpoint *checkpoint, int directory, const char *name, int *fd_p,
           uint64_t *bytes_p, struct psd_error *err)
{
    /* O_NONBLOCK: a pipe of that name must not stop us. */
    int fd = disk_open(checkpoint->disk, directory, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat stat;
    psd_status status = PSD_OK;

    if (fd < 0 || fstat(fd, &stat) != 0) {
        status = read_failed(err, "open", checkpoint->path, name);
    } else if (!S_ISREG(stat.st_mode)) {
        status = psi_fail(err, PSD_ERR_CORRUPT, "open %s/%s: not a regular file", checkpoint->path,
                          name);
    }
    if (status != PSD_OK) {
        close_fd(&fd);
        return status;
    }
    *fd_p = fd;
    *bytes_p = (uint64_t)stat.st_size;
    return PSD_OK;
}

/* One block of a file into checkpoint->block, as its checksum says it was. */
static psd_status
read_block(const struct psi_checkpoint *checkpoint, const struct psi_checkpoint_file *file,
           uint64_t index, size_t *bytes_p, struct psd_error *err)
{
    const uint64_t begin = index * PSI_CHECKPOINT_BLOCK_BYTES;
    const uint64_t rest = file->bytes - begin;
    const size_t bytes =
        rest < PSI_CHECKPOINT_BLOCK_BYTES ? (size_t)rest : PSI_CHECKPOINT_BLOCK_BYTES;

    if (disk_read(checkpoint->disk, file->fd, checkpoint->block, bytes, begin) != 0) {
        return read_failed(err, "read", checkpoint->path, file->name);
    }
    if (psi_crc32c(0, checkpoint->block, bytes) != file->blocks[index]) {
        return psi_fail(err, PSD_ERR_CORRUPT,
                        "%s/%s: damaged between bytes %llu and %llu: checksum does not match",
                        checkpoint->path, file->name, (unsigned long long)begin,
                        (unsigned long long)(begin + bytes));
    }
    *bytes_p = bytes;
    return PSD_OK;
}

static psd_status
verify_file(const struct psi_checkpoint *checkpoint, const struct psi_checkpoint_file *file,
            struct psd_error *err)
{
    uint32_t checksum = 0;

    for (uint64_t index = 0; index < file->block_count; index++) {
        size_t bytes = 0;
        const psd_status status = read_block(checkpoint, file, index, &bytes, err);

        if (status != PSD_OK) {
            return status;
        }
        checksum = psi_crc32c(checksum, checkpoint->block, bytes);
    }
    if (checksum != file->checksum) {
        return psi_fail(err, PSD_ERR_CORRUPT, "%s/%s: damaged: checksum does not match",
                        checkpoint->path, file->name);
    }
    return PSD_OK;
}

static psd_status
read_bytes(const struct psi_checkpoint *checkpoint, const struct psi_checkpoint_file *file,
           uint64_t at, size_t bytes, uint8_t *to, struct psd_error *err)
{
    while (bytes > 0) {
        const size_t skip = (size_t)(at % PSI_CHECKPOINT_BLOCK_BYTES);
        size_t count = 0;
        const psd_status status =
            read_block(checkpoint, file, at / PSI_CHECKPOINT_BLOCK_BYTES, &count, err);

        if (status != PSD_OK) {
            return status;
        }
        psi_assert(count > skip);
        count = count - skip < bytes ? count - skip : bytes;
        memcpy(to, checkpoint->block + skip, count);
        at += count;
        to += count;
        bytes -= count;
    }
    return PSD_OK;
}

static psd_status
read_head(const struct psi_checkpoint *checkpoint, struct psi_checkpoint_file *file,
          struct psd_error *err)
{
    uint8_t length[PSI_SAFETENSORS_LENGTH_BYTES] = {0};
    const size_t length_bytes = file->bytes < sizeof(length) ? 0 : sizeof(length);
    char label[LABEL_BYTES];
    uint8_t *head = NULL;
    size_t bytes = 0;
    psd_status status;

    snprintf(label, sizeof(label), "%s/%s", checkpoint->path, file->name);
    status = read_bytes(checkpoint, file, 0, length_bytes, length, err);
    if (status == PSD_OK) {
        status = psi_safetensors_head_bytes(label, length, file->bytes, &bytes, err);
    }
    if (status == PSD_OK) {
        head = malloc(bytes);
        status = head == NULL ? psi_fail(err, PSD_ERR_NO_MEMORY, "%s: no %zu bytes for its header",
                                         label, bytes)
                              : read_bytes(checkpoint, file, 0, bytes, head, err);
    }
    if (status == PSD_OK) {
        status = psi_safetensors_parse(label, head, bytes, file->bytes, &file->tensors, err);
    }
    free(head);
    return status;
}

static psd_status
open_file(const struct psi_checkpoint *checkpoint, int directory, struct psi_checkpoint_file *file,
          struct psd_error *err)
{
    uint64_t bytes;
    psd_status status = open_input(checkpoint, directory, file->name, &file->fd, &bytes, err);

    if (status == PSD_OK && bytes != file->bytes) {
        status = psi_fail(err, PSD_ERR_CORRUPT, "%s/%s: %llu bytes, the manifest says %llu",
                          checkpoint->path, file->name, (unsigned long long)bytes,
                          (unsigned long long)file->bytes);
    }
    if (status == PSD_OK) {
        status = verify_file(checkpoint, file, err);
    }
    return status == PSD_OK ? read_head(checkpoint, file, err) : status;
}

static psd_status
open_manifest(struct psi_checkpoint *checkpoint, int directory, struct psd_error *err)
{
    char label[LABEL_BYTES];
    char name[48];
    uint64_t bytes;
    char *text;
    int fd;
    psd_status status;

    file_name(name, PSI_CHECKPOINT_MANIFEST, checkpoint->generation);
    snprintf(label, sizeof(label), "%s/%s", checkpoint->path, name);
    status = open_input(checkpoint, directory, name, &fd, &bytes, err);
    if (status != PSD_OK) {
        return status;
    }
    text = bytes > MANIFEST_BYTES_MAX ? NULL : malloc(bytes + 1);
    if (text == NULL) {
        status = psi_fail(err, bytes > MANIFEST_BYTES_MAX ? PSD_ERR_CORRUPT : PSD_ERR_NO_MEMORY,
                          "%s: %llu bytes are too many", label, (unsigned long long)bytes);
    } else if (disk_read(checkpoint->disk, fd, (uint8_t *)text, bytes, 0) != 0) {
        status = read_failed(err, "read", checkpoint->path, name);
    } else {
        status = psi_checkpoint_parse(checkpoint, label, text, bytes, err);
    }
    free(text);
    close_fd(&fd);
    return status;
}

static psd_status
open_generation(const struct psi_disk *disk, const char *path, int directory, uint64_t generation,
                struct psi_checkpoint **checkpoint_p, struct psd_error *err)
{
    struct psi_checkpoint *checkpoint = psi_checkpoint_create(generation);
    psd_status status;

    if (checkpoint != NULL) {
        checkpoint->block = malloc(PSI_CHECKPOINT_BLOCK_BYTES);
    }
    if (checkpoint == NULL || checkpoint->block == NULL) {
        psi_checkpoint_destroy(checkpoint);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "load %s: no memory", path);
    }
    checkpoint->disk = disk;
    checkpoint->path = path;
    status = open_manifest(checkpoint, directory, err);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = open_file(checkpoint, directory, &checkpoint->files[kind], err);
    }
    if (status != PSD_OK) {
        psi_checkpoint_destroy(checkpoint);
        return status;
    }
    *checkpoint_p = checkpoint;
    return PSD_OK;
}

/* Newest first; err keeps what was wrong with the first one passed over. */
static psd_status
open_newest(const struct psi_disk *disk, const char *path, int directory,
            const struct listing *listing, struct psi_checkpoint **checkpoint_p,
            struct psd_error *err)
{
    psd_status status = PSD_OK;
    struct psd_error newest = {0};

    for (size_t i = 0; i < listing->count; i++) {
        struct psd_error reason = {0};

        if (listing->items[i].kind != PSI_CHECKPOINT_MANIFEST) {
            continue;
        }
        status = open_generation(disk, path, directory, listing->items[i].generation, checkpoint_p,
                                 &reason);
        if (status != PSD_OK && status != PSD_ERR_CORRUPT) {
            *err = reason;
            return status;
        }
        if (newest.status == PSD_OK) {
            newest = reason;
        }
        if (status == PSD_OK) {
            *err = newest;
            return PSD_OK;
        }
    }
    if (newest.status == PSD_OK) {
        return psi_fail(err, PSD_ERR_IO, "load %s: no checkpoint there", path);
    }
    *err = newest;
    return newest.status;
}

psd_status
psi_checkpoint_open(const struct psi_disk *disk, const char *path,
                    struct psi_checkpoint **checkpoint_p, struct psd_error *err)
{
    int directory = disk_open(disk, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct listing listing;
    psd_status status;

    if (directory < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "open directory %s", path);
    }
    status = list_files(directory, path, &listing, err);
    if (status == PSD_OK) {
        status = open_newest(disk, path, directory, &listing, checkpoint_p, err);
        free(listing.items);
    }
    close_fd(&directory);
    return status;
}

void
psi_checkpoint_destroy(struct psi_checkpoint *checkpoint)
{
    if (checkpoint == NULL) {
        return;
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        close_fd(&checkpoint->files[kind].fd);
        free(checkpoint->files[kind].blocks);
        psi_tensors_fini(&checkpoint->files[kind].tensors);
    }
    free(checkpoint->tables);
    free(checkpoint->block);
    free(checkpoint);
}

psd_status
psi_checkpoint_read(struct psi_checkpoint *checkpoint, enum psi_checkpoint_kind kind,
                    const struct psi_tensor *tensor, uint64_t first, size_t bytes, void *to,
                    struct psd_error *err)
{
    const struct psi_checkpoint_file *file = &checkpoint->files[kind];

    psi_assert(first <= tensor->end - tensor->begin);
    psi_assert(bytes <= tensor->end - tensor->begin - first);
    return read_bytes(checkpoint, file, file->tensors.data_begin + tensor->begin + first, bytes, to,
                      err);
}

const struct psi_checkpoint_table *
psi_checkpoint_table(const struct psi_checkpoint *checkpoint, const char *name)
{
    for (size_t i = 0; i < checkpoint->table_count; i++) {
        if (strcmp(checkpoint->tables[i].name, name) == 0) {
            return &checkpoint->tables[i];
        }
    }
    return NULL;
}
