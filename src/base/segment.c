/*
 * segment.c - memory that another process can read where it is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Without these a peer's pages could vanish under our eyes: cut off, or, where they are huge and
 * few, punched out. */
#define SEALS_NEEDED (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE)

static int
create_memfd(void)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    const int fd = memfd_create("psd", flags | MFD_NOEXEC_SEAL);

    return fd >= 0 || errno != EINVAL ? fd : memfd_create("psd", flags); /* before Linux 6.3 */
}

psd_status
psi_segment_create(struct psi_segment *segment_p, size_t bytes, struct psd_error *err)
{
    const int fd = create_memfd();
    psd_status status;
    void *base;

    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "create a segment of %zu bytes", bytes);
    }
    if (ftruncate(fd, (off_t)bytes) != 0) {
        goto err_close;
    }
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        goto err_close;
    }
    if (fcntl(fd, F_ADD_SEALS, SEALS_NEEDED) != 0) {
        goto err_unmap;
    }
    (void)madvise(base, bytes, MADV_HUGEPAGE); /* a hint: fewer faults where the kernel agrees */
    *segment_p = (struct psi_segment){.base = base, .bytes = bytes, .fd = fd};
    return PSD_OK;

err_unmap:
    munmap(base, bytes);
err_close:
    status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "map a segment of %zu bytes", bytes);
    close(fd);
    return status;
}

/* Piece by piece: while the kernel fills one, no other thread can change the process's mappings. */
psd_status
psi_segment_populate(const struct psi_segment *segment, struct psd_error *err)
{
    enum { PIECE_BYTES = 16 << 20 };

    for (size_t done = 0; done < segment->bytes; done += PIECE_BYTES) {
        const size_t left = segment->bytes - done;
        const size_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;

        if (madvise(segment->base + done, bytes, MADV_POPULATE_WRITE) == 0) {
            continue;
        }
        if (errno != EINVAL) {
            return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "touch a segment of %zu bytes",
                                  segment->bytes);
        }
        memset(segment->base + done, 0, bytes); /* before Linux 5.14 */
    }
    return PSD_OK;
}

psd_status
psi_segment_attach(struct psi_segment *segment_p, int fd, size_t bytes, struct psd_error *err)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat stat;
    psd_status status;
    void *base;

    if (seals < 0 || (seals & SEALS_NEEDED) != SEALS_NEEDED) {
        status = psi_fail(err, PSD_ERR_PROTOCOL, "a segment that is not sealed");
        goto err_close;
    }
    if (fstat(fd, &stat) != 0 || bytes == 0 || stat.st_size != (off_t)bytes) {
        status =
            psi_fail(err, PSD_ERR_PROTOCOL, "a segment that does not have its %zu bytes", bytes);
        goto err_close;
    }
    base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "map a peer's segment of %zu bytes", bytes);
        goto err_close;
    }
    *segment_p = (struct psi_segment){.base = base, .bytes = bytes, .fd = fd};
    return PSD_OK;

err_close:
    close(fd);
    return status;
}

void
psi_segment_close_fd(struct psi_segment *segment)
{
    if (segment->fd >= 0) {
        close(segment->fd);
        segment->fd = -1;
    }
}

void
psi_segment_destroy(struct psi_segment *segment)
{
    if (segment->base != NULL) {
        munmap(segment->base, segment->bytes);
        psi_segment_close_fd(segment);
    }
    *segment = (struct psi_segment){.fd = -1};
}
