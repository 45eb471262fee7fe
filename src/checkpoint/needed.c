/*
 * needed.c - which generations must stay, because newer ones refer to them.
 *
 * A generation refers to the file that has the bytes, never to one that refers on: so one look into its
 * manifest says all.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/needed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "checkpoint/manifest_file.h"

void
psi_needed_fini(struct psi_needed *needed)
{
    free(needed->list);
    memset(needed, 0, sizeof(*needed));
}

bool
psi_needed_has(const struct psi_needed *needed, uint64_t generation)
{
    for (size_t i = 0; i < needed->count; i++) {
        if (needed->list[i] == generation) {
            return true;
        }
    }
    return needed->all;
}

static void
add(struct psi_needed *needed, uint64_t generation)
{
    uint64_t *list;

    if (psi_needed_has(needed, generation)) {
        return;
    }
    list = reallocarray(needed->list, needed->count + 1, sizeof(*list));
    if (list == NULL) {
        needed->all = true;
        return;
    }
    needed->list = list;
    list[needed->count++] = generation;
}

void
psi_needed_add(struct psi_needed *needed, const struct psi_directory *directory,
               uint64_t generation)
{
    struct psi_manifest manifest;

    psi_manifest_init(&manifest, generation);
    add(needed, generation);
    if (psi_manifest_load(&manifest, directory, NULL) != PSD_OK) {
        needed->all = true;
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        const struct psi_ranges *earlier = &manifest.files[kind].earlier;

        for (size_t i = 0; i < earlier->count; i++) {
            add(needed, earlier->list[i].generation);
        }
    }
    for (size_t i = 0; i < manifest.rows_count; i++) {
        for (size_t j = 0; j < manifest.rows[i].count; j++) {
            add(needed, manifest.rows[i].files[j].generation);
        }
    }
    psi_manifest_fini(&manifest);
}

uint64_t
psi_needed_base(const struct psi_directory *directory, uint64_t generation)
{
    struct psi_needed needed = {0};
    uint64_t base = generation;

    psi_needed_add(&needed, directory, generation);
    for (size_t i = 0; i < needed.count; i++) {
        base = needed.list[i] < base ? needed.list[i] : base;
    }
    psi_needed_fini(&needed);
    return base;
}

/* The newest that is older than what all that are kept need; 0: there is no such need, or none. */
static uint64_t
independent(const struct psi_generations *generations, const struct psi_directory *directory,
            uint32_t kept)
{
    uint64_t base = 0;
    uint32_t seen = 0;
    uint64_t older = 0;

    for (size_t i = 0; i < generations->count; i++) {
        const struct psi_generation *file = &generations->list[i];
        struct psi_needed needed = {0};

        if (file->kind != PSI_CHECKPOINT_MANIFEST) {
            continue;
        }
        seen++;
        if (seen == 1) {
            base = psi_needed_base(directory, file->number);
        } else if (seen <= kept) {
            psi_needed_add(&needed, directory, file->number);
            base = psi_needed_has(&needed, base) ? base : 0;
            psi_needed_fini(&needed);
        }
        if (older == 0 && file->number < base) {
            older = file->number;
        }
    }
    return base == 0 ? 0 : older;
}

static void
remove_others(const struct psi_generations *generations, const struct psi_directory *directory,
              uint32_t kept, uint64_t spared)
{
    const uint64_t older = independent(generations, directory, kept);
    struct psi_needed needed = {0};
    uint32_t seen = 0;

    for (size_t i = 0; i < generations->count; i++) {
        const struct psi_generation *file = &generations->list[i];

        if (file->kind == PSI_CHECKPOINT_MANIFEST) {
            seen++;
            if (seen <= kept || file->number == spared || file->number == older) {
                psi_needed_add(&needed, directory, file->number);
            }
        }
    }
    for (size_t i = 0; i < generations->count && seen > kept; i++) {
        const struct psi_generation *file = &generations->list[i];

        if (file->kind != PSI_CHECKPOINT_TEMPORARY && !psi_needed_has(&needed, file->number)) {
            (void)psi_directory_remove(directory, file->name, NULL);
        }
    }
    psi_needed_fini(&needed);
}

void
psi_needed_remove_others(const struct psi_directory *directory, uint32_t kept, uint64_t spared)
{
    struct psi_generations generations;

    if (psi_generations_init(&generations, directory, NULL) == PSD_OK) {
        remove_others(&generations, directory, kept, spared);
        psi_generations_fini(&generations);
    }
}

int
psi_needed_open(const struct psi_directory *directory, enum psi_checkpoint_kind kind,
                uint64_t generation, char name_p[PSI_CHECKPOINT_NAME_BYTES])
{
    const int flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC;
    int fd;

    psi_checkpoint_name(name_p, kind, generation);
    fd = psi_disk_open(directory->disk, directory->fd, name_p, flags);
    if (fd < 0 && errno == ENOENT) {
        psi_checkpoint_changes_name(name_p, kind, generation);
        fd = psi_disk_open(directory->disk, directory->fd, name_p, flags);
    }
    return fd;
}

/* Of one generation: is its file as long as that? */
static psd_status
check_one(const struct psi_directory *directory, enum psi_checkpoint_kind kind, uint64_t generation,
          uint64_t end, struct psd_error *err)
{
    char name[PSI_CHECKPOINT_NAME_BYTES];
    struct stat stat;
    int fd = psi_needed_open(directory, kind, generation, name);
    psd_status status = PSD_OK;

    if (fd < 0 || fstat(fd, &stat) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "open %s/%s, which the new generation refers to",
                                directory->path, name);
    } else if ((uint64_t)stat.st_size < end) {
        status = psi_fail(
            err, PSD_ERR_IO, "%s/%s: %llu bytes, the new generation refers to %llu of it",
            directory->path, name, (unsigned long long)stat.st_size, (unsigned long long)end);
    }
    psi_disk_close(&fd);
    return status;
}

psd_status
psi_needed_check(const struct psi_directory *directory, enum psi_checkpoint_kind kind,
                 const struct psi_ranges *ranges, struct psd_error *err)
{
    struct psi_needed seen = {0};
    psd_status status = PSD_OK;

    for (size_t i = ranges->count; i-- > 0 && status == PSD_OK;) { /* the last of each ends last */
        const struct psi_range *range = &ranges->list[i];

        if (!psi_needed_has(&seen, range->generation)) {
            add(&seen, range->generation);
            status = check_one(directory, kind, range->generation, range->end, err);
        }
    }
    psi_needed_fini(&seen);
    return status;
}
