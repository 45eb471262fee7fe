/*
 * disk.h - the system calls through which a checkpoint reaches the disk and comes back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_DISK_H
#define PSI_CHECKPOINT_DISK_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * The calls; they behave like those named, errno included. Tests put failing ones in here.
 * Thread: immutable; self belongs to whoever made it.
 */
struct psi_disk {
    void *self;
    int (*open)(void *self, int directory, const char *name, int flags); /* openat */
    int (*reserve)(void *self, int fd, uint64_t bytes);                  /* fallocate */
    ssize_t (*write)(void *self, int fd, const void *data, size_t bytes,
                     uint64_t offset);                                              /* pwrite */
    ssize_t (*read)(void *self, int fd, void *data, size_t bytes, uint64_t offset); /* pread */
    int (*sync)(void *self, int fd);                                                /* fdatasync */
    int (*sync_directory)(void *self, int fd);                                      /* fsync */
    int (*rename)(void *self, int directory, const char *from, const char *to);     /* renameat */
    int (*remove)(void *self, int directory, const char *name);                     /* unlinkat */
};

extern const struct psi_disk psi_disk_system;

/* Flags for a file that must not be there yet, not even as a link. */
enum { PSI_DISK_NEW = O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC };

/* The same, gone on with after interrupts. 0 or a descriptor; -1 with errno. */
int psi_disk_open(const struct psi_disk *disk, int directory, const char *name, int flags);
int psi_disk_reserve(const struct psi_disk *disk, int fd, uint64_t bytes);
int psi_disk_sync(const struct psi_disk *disk, int fd);
int psi_disk_sync_directory(const struct psi_disk *disk, int fd);

/* All of it, in as many pieces as the system likes. A file that ends before is EIO. */
int psi_disk_write(const struct psi_disk *disk, int fd, const void *data, size_t bytes,
                   uint64_t offset);
int psi_disk_read(const struct psi_disk *disk, int fd, void *data, size_t bytes, uint64_t offset);

/* Sets it to -1, which is allowed before, too. */
void psi_disk_close(int *fd_p);

#endif
