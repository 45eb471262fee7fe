/*
 * counts.c - for LD_PRELOAD: counts what a process copies, sends and seals, and writes it into the
 * file $COUNTS_FILE.PID when the process ends.
 *
 *     copied N   bytes in copies of COPY_MIN or more
 *     moved N    bytes through sockets
 *     sealed N   calls that encrypt or decrypt
 *
 * The file is opened at the beginning: later a daemon may not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { COPY_MIN = 16384 }; /* less is heads and records, not payloads */

static atomic_uint_fast64_t copied;
static atomic_uint_fast64_t moved;
static atomic_uint_fast64_t sealed;
static int report_fd = -1;

static void
count(atomic_uint_fast64_t *counter, ssize_t amount)
{
    if (amount > 0) {
        atomic_fetch_add_explicit(counter, (uint64_t)amount, memory_order_relaxed);
    }
}

__attribute__((constructor)) static void
begin(void)
{
    const char *path = getenv("COUNTS_FILE");
    char name[4096];

    if (path != NULL) {
        snprintf(name, sizeof(name), "%s.%d", path, (int)getpid());
        report_fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    }
}

__attribute__((destructor)) static void
end(void)
{
    char text[256];
    const int bytes =
        snprintf(text, sizeof(text), "copied %llu\nmoved %llu\nsealed %llu\n",
                 (unsigned long long)copied, (unsigned long long)moved, (unsigned long long)sealed);

    if (report_fd >= 0 && write(report_fd, text, (size_t)bytes) != bytes) {
        _exit(99);
    }
}

static void *
real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (found == NULL) {
        _exit(98);
    }
    return found;
}

/* ---- Copies; without the library's own, which would be this one again ---- */

static void *
copy(void *to, const void *from, size_t bytes)
{
    unsigned char *put = to;
    const unsigned char *got = from;

    if (bytes >= COPY_MIN) {
        count(&copied, (ssize_t)bytes);
    }
    if (put <= got) {
        for (size_t i = 0; i < bytes; i++) {
            put[i] = got[i];
        }
    } else {
        while (bytes-- > 0) {
            put[bytes] = got[bytes];
        }
    }
    return to;
}

void *
memcpy(void *to, const void *from, size_t bytes)
{
    return copy(to, from, bytes);
}

void *
memmove(void *to, const void *from, size_t bytes)
{
    return copy(to, from, bytes);
}

void *
__memcpy_chk(void *to, const void *from, size_t bytes, size_t room)
{
    (void)room;
    return copy(to, from, bytes);
}

void *
__memmove_chk(void *to, const void *from, size_t bytes, size_t room)
{
    (void)room;
    return copy(to, from, bytes);
}

/* ---- Sockets ---- */

ssize_t
sendmsg(int fd, const struct msghdr *message, int flags)
{
    static ssize_t (*next)(int, const struct msghdr *, int);
    ssize_t done;

    next = next != NULL ? next : real("sendmsg");
    done = next(fd, message, flags);
    count(&moved, done);
    return done;
}

ssize_t
recvmsg(int fd, struct msghdr *message, int flags)
{
    static ssize_t (*next)(int, struct msghdr *, int);
    ssize_t done;

    next = next != NULL ? next : real("recvmsg");
    done = next(fd, message, flags);
    count(&moved, done);
    return done;
}

ssize_t
send(int fd, const void *bytes, size_t size, int flags)
{
    static ssize_t (*next)(int, const void *, size_t, int);
    ssize_t done;

    next = next != NULL ? next : real("send");
    done = next(fd, bytes, size, flags);
    count(&moved, done);
    return done;
}

ssize_t
recv(int fd, void *bytes, size_t size, int flags)
{
    static ssize_t (*next)(int, void *, size_t, int);
    ssize_t done;

    next = next != NULL ? next : real("recv");
    done = next(fd, bytes, size, flags);
    count(&moved, done);
    return done;
}

/* ---- OpenSSL's ---- */

int
SSL_read_ex(void *ssl, void *bytes, size_t size, size_t *done_p)
{
    static int (*next)(void *, void *, size_t, size_t *);

    next = next != NULL ? next : real("SSL_read_ex");
    count(&sealed, 1);
    return next(ssl, bytes, size, done_p);
}

int
SSL_write_ex(void *ssl, const void *bytes, size_t size, size_t *done_p)
{
    static int (*next)(void *, const void *, size_t, size_t *);

    next = next != NULL ? next : real("SSL_write_ex");
    count(&sealed, 1);
    return next(ssl, bytes, size, done_p);
}
