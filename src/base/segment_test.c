/*
 * segment_test.c - what the owner of a segment can do with it, what nobody else can, and what is
 * refused.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { BYTES = 5 * 4096, PAGES = BYTES / 4096, ALL_SEALS = 0 };

static const int needed_seals[] = {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_FUTURE_WRITE};

enum { SEALS = sizeof(needed_seals) / sizeof(needed_seals[0]) };

static unsigned
count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

/* How many mappings of segments this process has. */
static unsigned
count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned count = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count += strstr(line, "/memfd:psd") != NULL;
    }
    fclose(maps);
    return count;
}

/* The descriptor as another process would have it. */
static int
reopen(int fd, int flags)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC);
}

/* A memfd with all seals that are needed but one; ALL_SEALS: with all of them. */
static int
create_sealed(size_t bytes, int without)
{
    const int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int seals = 0;

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    for (unsigned i = 0; i < SEALS; i++) {
        seals |= needed_seals[i] != without ? needed_seals[i] : 0;
    }
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* If this fails, a segment is not zeroed memory, or something of it stays when it is destroyed. */
static void
test_life(void **state)
{
    const unsigned descriptors = count_descriptors();
    struct psi_segment segment = {0};

    (void)state;
    psi_segment_destroy(&segment); /* none */
    assert_int_equal(psi_segment_create(&segment, BYTES, NULL), PSD_OK);
    assert_int_equal(segment.bytes, BYTES);
    assert_int_equal(count_mappings(), 1);
    for (size_t i = 0; i < BYTES; i++) {
        assert_int_equal(segment.base[i], 0);
        segment.base[i] = 1;
    }
    psi_segment_destroy(&segment);
    assert_null(segment.base);
    psi_segment_destroy(&segment); /* none any more */
    assert_int_equal(count_mappings(), 0);
    assert_int_equal(count_descriptors(), descriptors);
}

/* If this fails, the first writes into a segment wait for the kernel. */
static void
test_populate_touches_every_page(void **state)
{
    struct psi_segment segment;
    unsigned char resident[PAGES];

    (void)state;
    assert_int_equal(psi_segment_create(&segment, BYTES, NULL), PSD_OK);
    assert_int_equal(psi_segment_populate(&segment, NULL), PSD_OK);
    assert_int_equal(mincore(segment.base, BYTES, resident), 0);
    for (unsigned i = 0; i < PAGES; i++) {
        assert_true((resident[i] & 1) != 0);
    }
    psi_segment_destroy(&segment);
}

/* If this fails, a peer's pages can vanish under a reader's eyes: SIGBUS. */
static void
test_size_is_final(void **state)
{
    struct psi_segment segment;

    (void)state;
    assert_int_equal(psi_segment_create(&segment, BYTES, NULL), PSD_OK);
    assert_int_equal(ftruncate(segment.fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(segment.fd, BYTES - 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(segment.fd, BYTES + 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fallocate(segment.fd, 0, BYTES, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fcntl(segment.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(errno, EPERM);
    psi_segment_destroy(&segment);
}

/* If this fails, whoever was given the descriptor can change what only the owner may write. */
static void
test_nobody_else_can_write(void **state)
{
    struct psi_segment segment;
    int again;
    void *mapped;

    (void)state;
    assert_int_equal(psi_segment_create(&segment, BYTES, NULL), PSD_OK);
    again = reopen(segment.fd, O_RDWR);
    assert_true(again >= 0);
    assert_int_equal(pwrite(again, "x", 1, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_ptr_equal(mmap(NULL, BYTES, PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
    assert_ptr_equal(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0),
                     MAP_FAILED);
    mapped = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, again, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    assert_int_equal(mprotect(mapped, BYTES, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(errno, EACCES);
    assert_int_equal(madvise(mapped, 4096, MADV_REMOVE), -1);
    munmap(mapped, BYTES);
    close(again);
    psi_segment_destroy(&segment);
}

/* If this fails, zeros can be put in the place of what was written. */
static void
test_no_holes(void **state)
{
    struct psi_segment segment;

    (void)state;
    assert_int_equal(psi_segment_create(&segment, BYTES, NULL), PSD_OK);
    segment.base[0] = 7;
    assert_int_equal(fallocate(segment.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
                     -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(madvise(segment.base, 4096, MADV_REMOVE), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(segment.base[0], 7);
    psi_segment_destroy(&segment);
}

/* If this fails, a reader does not see what the owner writes, or can write itself. */
static void
test_attach_reads_what_the_owner_writes(void **state)
{
    struct psi_segment mine;
    struct psi_segment theirs;

    (void)state;
    assert_int_equal(psi_segment_create(&mine, BYTES, NULL), PSD_OK);
    assert_int_equal(psi_segment_attach(&theirs, dup(mine.fd), BYTES, NULL), PSD_OK);
    assert_int_equal(theirs.bytes, BYTES);
    mine.base[0] = 1;
    mine.base[BYTES - 1] = 2;
    assert_int_equal(theirs.base[0], 1);
    assert_int_equal(theirs.base[BYTES - 1], 2);
    assert_int_equal(mprotect(theirs.base, BYTES, PROT_READ | PROT_WRITE), -1);

    psi_segment_destroy(&mine); /* the owner is gone; its memory is not */
    assert_int_equal(theirs.base[0], 1);
    assert_int_equal(theirs.base[BYTES - 1], 2);
    psi_segment_destroy(&theirs);
    assert_int_equal(count_mappings(), 0);
}

static void
send_descriptor(int socket_fd, int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = "d", .iov_len = 1};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *item = CMSG_FIRSTHDR(&header);

    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(item), &fd, sizeof(int));
    if (sendmsg(socket_fd, &header, 0) != 1) {
        _exit(1);
    }
}

static int
receive_descriptor(int socket_fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    int fd;

    assert_int_equal(recvmsg(socket_fd, &header, MSG_CMSG_CLOEXEC), 1);
    assert_non_null(CMSG_FIRSTHDR(&header));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(int));
    return fd;
}

/* If this fails, the death of a peer takes away what it has shown, or leaves it behind for ever. */
static void
test_owner_killed(void **state)
{
    struct psi_segment theirs;
    int pair[2];
    pid_t child;
    int fd;
    int status;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct psi_segment mine;

        if (psi_segment_create(&mine, BYTES, NULL) != PSD_OK) {
            _exit(1);
        }
        memset(mine.base, 9, BYTES);
        send_descriptor(pair[1], mine.fd);
        for (;;) {
            pause();
        }
    }
    fd = receive_descriptor(pair[0]);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(psi_segment_attach(&theirs, fd, BYTES, NULL), PSD_OK);
    for (size_t i = 0; i < BYTES; i++) {
        assert_int_equal(theirs.base[i], 9);
    }
    psi_segment_destroy(&theirs);
    assert_int_equal(count_mappings(), 0);
    close(pair[0]);
    close(pair[1]);
}

/* Refused, with nothing taken but the descriptor, which is closed. */
static void
refuse(int fd, size_t bytes)
{
    const unsigned descriptors = count_descriptors();
    struct psi_segment segment = {.fd = -7};
    struct psd_error err = {0};

    assert_true(fd >= 0);
    assert_int_equal(psi_segment_attach(&segment, fd, bytes, &err), PSD_ERR_PROTOCOL);
    assert_int_not_equal(err.text[0], '\0');
    assert_null(segment.base);
    assert_int_equal(segment.fd, -7);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(count_descriptors(), descriptors - 1);
}

/* If this fails, a peer can take its pages away, or put others there, after they were checked. */
static void
test_attach_refuses_what_is_not_sealed(void **state)
{
    struct psi_segment segment;

    (void)state;
    for (unsigned i = 0; i < SEALS; i++) {
        refuse(create_sealed(BYTES, needed_seals[i]), BYTES);
    }
    assert_int_equal(psi_segment_attach(&segment, create_sealed(BYTES, ALL_SEALS), BYTES, NULL),
                     PSD_OK);
    psi_segment_destroy(&segment);
}

/* If this fails, a reader goes beyond the end of what there is. */
static void
test_attach_refuses_another_size(void **state)
{
    (void)state;
    refuse(create_sealed(BYTES, ALL_SEALS), BYTES + 1);
    refuse(create_sealed(BYTES, ALL_SEALS), BYTES - 1);
    refuse(create_sealed(BYTES, ALL_SEALS), 2 * BYTES);
    refuse(create_sealed(BYTES, ALL_SEALS), SIZE_MAX);
    refuse(create_sealed(BYTES, ALL_SEALS), 0);
    refuse(create_sealed(0, ALL_SEALS), 0);
}

/* If this fails, any descriptor will do: files can be cut, devices and pipes never end. */
static void
test_attach_refuses_other_descriptors(void **state)
{
    char path[] = "/tmp/psd_segment_XXXXXX";
    struct psi_segment segment = {0};
    int fds[2];
    int file = mkstemp(path);

    (void)state;
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, BYTES), 0);
    assert_int_equal(unlink(path), 0);
    refuse(file, BYTES);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    refuse(fds[0], BYTES);
    refuse(fds[1], BYTES);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    refuse(fds[0], BYTES);
    close(fds[1]);
    refuse(open("/dev/zero", O_RDWR | O_CLOEXEC), BYTES);
    refuse(open("/proc/self/maps", O_RDONLY | O_CLOEXEC), BYTES);
    refuse(open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), BYTES);
    assert_int_equal(psi_segment_attach(&segment, -1, BYTES, NULL), PSD_ERR_PROTOCOL);
}

/* If this fails, a file of the file system in memory passes for a segment: it can be cut. */
static void
test_attach_refuses_files_in_memory(void **state)
{
    char path[] = "/dev/shm/psd_segment_XXXXXX";
    const int file = mkstemp(path);

    (void)state;
    if (file < 0) {
        skip(); /* no /dev/shm here */
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ftruncate(file, BYTES), 0);
    refuse(file, BYTES);
}

/* If this fails, a size that no machine has ends the process instead of the attempt. */
static void
test_create_refuses_what_cannot_be(void **state)
{
    const unsigned descriptors = count_descriptors();
    struct psi_segment segment = {.fd = -7};
    struct psd_error err = {0};

    (void)state;
    assert_int_equal(psi_segment_create(&segment, (size_t)1 << 62, &err), PSD_ERR_NO_MEMORY);
    assert_non_null(strstr(err.text, "4611686018427387904"));
    assert_int_equal(psi_segment_create(&segment, 0, &err), PSD_ERR_NO_MEMORY);
    assert_int_equal(segment.fd, -7);
    assert_int_equal(count_descriptors(), descriptors);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_populate_touches_every_page),
        cmocka_unit_test(test_size_is_final),
        cmocka_unit_test(test_nobody_else_can_write),
        cmocka_unit_test(test_no_holes),
        cmocka_unit_test(test_attach_reads_what_the_owner_writes),
        cmocka_unit_test(test_owner_killed),
        cmocka_unit_test(test_attach_refuses_what_is_not_sealed),
        cmocka_unit_test(test_attach_refuses_another_size),
        cmocka_unit_test(test_attach_refuses_other_descriptors),
        cmocka_unit_test(test_attach_refuses_files_in_memory),
        cmocka_unit_test(test_create_refuses_what_cannot_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
