/*
 * harden_test.c - what a hardened process can no longer do, and what it still can.
 *
 * There is no way back, so every attempt is made by a child of its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/harden.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORKED = 0, DENIED = 1, OTHERWISE = 2 };

/* What was there before. Thread: owned by one test, then by its child. */
struct world {
    int listener;
    int socket;     /* TCP, unused */
    int channel[2]; /* two ends of a unix socket that carries descriptors */
    struct sockaddr_in address;
    const char *lookup;      /* a name that is still to be looked up, or NULL */
    const char *master_file; /* says where the master is, or NULL */
    bool shares;             /* memory with other servers of this host */
    int neighbour;           /* a unix socket of another process ... */
    int meet;                /* ... and one that was made before the hardening */
    char line[512];          /* what psi_harden() logged last */
};

typedef int attempt(struct world *world);

static void
keep_line(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    struct world *world = sink;

    snprintf(world->line, sizeof(world->line), "%d %s %s", (int)level, id, text);
}

/* How a call that returns -1 on failure ended. */
static int
outcome(long result)
{
    if (result >= 0) {
        return WORKED;
    }
    return errno == EPERM || errno == EACCES ? DENIED : OTHERWISE;
}

static void
open_world(struct world *world)
{
    socklen_t bytes = sizeof(world->address);

    memset(world, 0, sizeof(*world));
    world->address.sin_family = AF_INET;
    world->address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    world->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(world->listener >= 0);
    assert_int_equal(bind(world->listener, (struct sockaddr *)&world->address, bytes), 0);
    assert_int_equal(listen(world->listener, 4), 0);
    assert_int_equal(getsockname(world->listener, (struct sockaddr *)&world->address, &bytes), 0);
    world->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(world->socket >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, world->channel), 0);
    world->neighbour = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    world->meet = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(world->neighbour >= 0 && world->meet >= 0);
    assert_int_equal(bind(world->neighbour, /* without a name: the kernel gives it one of its own */
                          (const struct sockaddr *)&(struct sockaddr_un){.sun_family = AF_UNIX},
                          sizeof(sa_family_t)),
                     0);
}

static void
close_world(struct world *world)
{
    close(world->listener);
    close(world->socket);
    close(world->channel[0]);
    close(world->channel[1]);
    close(world->neighbour);
    close(world->meet);
}

static void
harden(struct world *world, enum psi_harden_role role, bool on)
{
    const struct psi_log log = {.write = keep_line, .sink = world, .level = PSI_LOG_INFO};
    const struct psi_harden_args args = {
        .on = on,
        .role = role,
        .connect_port = ntohs(world->address.sin_port),
        .master_file = world->master_file,
        .connects_to_servers = world->shares,
        .shares_with_servers = world->shares,
        .lookup = world->lookup,
    };

    psi_harden(&args, &log);
}

/* The child's wait status: its exit code is the attempt's outcome. */
static int
try_as(enum psi_harden_role role, const char *lookup, bool shares, attempt *act)
{
    struct world world;
    int status = 0;
    pid_t child;

    open_world(&world);
    world.lookup = lookup;
    world.shares = shares;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        harden(&world, role, true);
        _exit(act(&world));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    close_world(&world);
    return status;
}

static int
try_in_child(enum psi_harden_role role, attempt *act)
{
    return try_as(role, NULL, false, act);
}

static void
expect(enum psi_harden_role role, attempt *act, int wanted)
{
    const int status = try_in_child(role, act);

    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), wanted);
}

static void
expect_killed(enum psi_harden_role role, attempt *act)
{
    const int status = try_in_child(role, act);

    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSYS);
}

/* Instrumented builds are not hardened; seccomp also needs its library. */
static void
need_hardening(bool seccomp)
{
#ifdef PSI_INSTRUMENTED
    print_message("instrumented build: not hardened\n");
    skip();
#endif
#ifndef PSI_HAVE_SECCOMP
    if (seccomp) {
        print_message("built without libseccomp\n");
        skip();
    }
#endif
    (void)seccomp;
}

/* What files and ports need: 0 where the kernel lacks it. */
static long
landlock_abi(void)
{
    const long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);

    return abi > 0 ? abi : 0;
}

/* ---- what kills -------------------------------------------------------------------------- */

static int
try_execve(struct world *world)
{
    char *const argv[] = {(char *)(uintptr_t) "/bin/true", NULL};
    char *const environment[] = {NULL};

    (void)world;
    return outcome(execve("/bin/true", argv, environment));
}

static int
try_execveat(struct world *world)
{
    (void)world;
    return outcome(syscall(SYS_execveat, AT_FDCWD, "/bin/true", NULL, NULL, 0));
}

static int
try_ptrace(struct world *world)
{
    (void)world;
    return outcome(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL));
}

static int
try_read_parent(struct world *world)
{
    struct iovec here = {.iov_base = world->line, .iov_len = 8};
    struct iovec there = {.iov_base = world->line, .iov_len = 8};

    return outcome(process_vm_readv(getppid(), &here, 1, &there, 1, 0));
}

/* If this fails, an intruder in a daemon can start programs or reach into other processes. */
static void
test_hostile_calls_kill(void **state)
{
    (void)state;
    need_hardening(true);
    for (int role = PSI_HARDEN_MASTER; role <= PSI_HARDEN_SERVER; role++) {
        expect_killed((enum psi_harden_role)role, try_execve);
        expect_killed((enum psi_harden_role)role, try_execveat);
        expect_killed((enum psi_harden_role)role, try_ptrace);
        expect_killed((enum psi_harden_role)role, try_read_parent);
    }
}

/* ---- what is denied ---------------------------------------------------------------------- */

static int
try_write_file(struct world *world)
{
    (void)world;
    return outcome(open("/dev/null", O_WRONLY | O_CLOEXEC));
}

static int
try_create_file(struct world *world)
{
    char path[64];
    int fd;

    (void)world;
    snprintf(path, sizeof(path), "/tmp/psd_harden_test.%d", (int)getppid());
    fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        unlink(path);
    }
    return outcome(fd);
}

static int
try_read_passwords(struct world *world)
{
    (void)world;
    return outcome(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
}

static int
try_remove_file(struct world *world)
{
    (void)world;
    return outcome(unlink("/tmp/psd_harden_test_that_is_not_there"));
}

static int
try_fork(struct world *world)
{
    (void)world;
    return outcome(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL));
}

static int
try_executable_memory(struct world *world)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)world;
    if (page == MAP_FAILED) {
        return OTHERWISE;
    }
    return outcome(mprotect(page, 4096, PROT_READ | PROT_EXEC));
}

static int
try_executable_mapping(struct world *world)
{
    const void *page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)world;
    return outcome(page == MAP_FAILED ? -1 : 0);
}

static int
try_signal_parent(struct world *world)
{
    (void)world;
    return outcome(kill(getppid(), 0));
}

static int
try_tgkill_parent(struct world *world)
{
    (void)world;
    return outcome(syscall(SYS_tgkill, getppid(), getppid(), 0));
}

static int
try_unix_socket(struct world *world)
{
    (void)world;
    return outcome(socket(AF_UNIX, SOCK_STREAM, 0));
}

static int
try_unix_datagrams(struct world *world)
{
    (void)world;
    return outcome(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

static int
try_unix_pair(struct world *world)
{
    int ends[2];

    (void)world;
    return outcome(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
}

static int
try_unix_datagram_pair(struct world *world)
{
    int ends[2];

    (void)world;
    return outcome(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends));
}

static int
try_tell_neighbour(struct world *world)
{
    struct sockaddr_un address;
    socklen_t bytes = sizeof(address);

    if (getsockname(world->neighbour, (struct sockaddr *)&address, &bytes) != 0) {
        return outcome(-1);
    }
    return outcome(
        sendto(world->meet, "x", 1, MSG_NOSIGNAL, (const struct sockaddr *)&address, bytes));
}

static int
try_event(struct world *world)
{
    (void)world;
    return outcome(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

static int
try_second_descriptor(struct world *world)
{
    return outcome(fcntl(world->channel[0], F_DUPFD_CLOEXEC, 3));
}

static int
try_raw_socket(struct world *world)
{
    (void)world;
    return outcome(socket(AF_INET, SOCK_RAW, IPPROTO_TCP));
}

static int
try_mptcp(struct world *world)
{
    (void)world;
    return outcome(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 262));
}

static int
try_sctp(struct world *world)
{
    (void)world;
    return outcome(socket(AF_INET6, SOCK_STREAM, IPPROTO_SCTP));
}

static int
try_udp(struct world *world)
{
    (void)world;
    return outcome(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

static int
try_udp_v6(struct world *world)
{
    (void)world;
    return outcome(socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0));
}

static int
try_udp_lite(struct world *world)
{
    (void)world;
    return outcome(socket(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE));
}

/* To the port that is allowed: it is the way that is forbidden, whatever the port. */
static int
try_fast_open(struct world *world)
{
    return outcome(sendto(world->socket, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL,
                          (struct sockaddr *)&world->address, sizeof(world->address)));
}

static int
try_fast_open_message(struct world *world)
{
    struct iovec iov = {.iov_base = world->line, .iov_len = 1};
    const struct msghdr message = {.msg_name = &world->address,
                                   .msg_namelen = sizeof(world->address),
                                   .msg_iov = &iov,
                                   .msg_iovlen = 1};

    return outcome(sendmsg(world->socket, &message, MSG_FASTOPEN | MSG_NOSIGNAL));
}

static int
try_fast_open_messages(struct world *world)
{
    struct iovec iov = {.iov_base = world->line, .iov_len = 1};
    struct mmsghdr message = {.msg_hdr = {.msg_name = &world->address,
                                          .msg_namelen = sizeof(world->address),
                                          .msg_iov = &iov,
                                          .msg_iovlen = 1}};

    return outcome(sendmmsg(world->socket, &message, 1, MSG_FASTOPEN | MSG_NOSIGNAL));
}

static int
try_signal_by_descriptor(struct world *world)
{
    return outcome(fcntl(world->socket, F_SETOWN, getppid()));
}

static int
try_second_listener(struct world *world)
{
    return outcome(listen(world->listener, 1));
}

static int
try_io_uring(struct world *world)
{
    (void)world;
    return outcome(syscall(SYS_io_uring_setup, 1, NULL));
}

static int
try_priority_of_parent(struct world *world)
{
    (void)world;
    return outcome(setpriority(PRIO_PROCESS, (id_t)getppid(), 19));
}

/* If this fails, an intruder in a daemon can change files, run code of its own or reach further. */
static void
test_needless_calls_are_denied(void **state)
{
    attempt *const denied[] = {
        try_write_file,
        try_create_file,
        try_remove_file,
        try_fork,
        try_signal_parent,
        try_signal_by_descriptor,
        try_executable_memory,
        try_executable_mapping,
        try_tgkill_parent,
        try_unix_socket,
        try_unix_datagrams,
        try_unix_pair,
        try_event,
        try_second_descriptor,
        try_raw_socket,
        try_mptcp,
        try_sctp,
        try_udp,
        try_udp_v6,
        try_udp_lite,
        try_fast_open,
        try_fast_open_message,
        try_fast_open_messages,
        try_io_uring,
        try_second_listener,
        try_priority_of_parent,
    };

    (void)state;
    need_hardening(true);
    for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++) {
        expect(PSI_HARDEN_MASTER, denied[i], DENIED);
        expect(PSI_HARDEN_SERVER, denied[i], DENIED);
    }
    if (landlock_abi() >= 1) {
        expect(PSI_HARDEN_MASTER, try_read_passwords, DENIED);
        expect(PSI_HARDEN_SERVER, try_read_passwords, DENIED);
    }
}

static int
connect_to(const struct world *world, uint16_t port)
{
    struct sockaddr_in address = world->address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return outcome(fd);
    }
    address.sin_port = htons(port);
    return outcome(connect(fd, (struct sockaddr *)&address, sizeof(address)));
}

static int
try_connect_master(struct world *world)
{
    return connect_to(world, ntohs(world->address.sin_port));
}

static int
try_connect_elsewhere(struct world *world)
{
    return connect_to(world, (uint16_t)(ntohs(world->address.sin_port) ^ 1));
}

/* If this fails, the roles are mixed up: a server cannot reach its master,
 * or a master reaches out. */
static void
test_only_a_server_connects_and_only_to_its_master(void **state)
{
    (void)state;
    need_hardening(true);
    expect(PSI_HARDEN_MASTER, try_connect_master, DENIED);
    expect(PSI_HARDEN_SERVER, try_connect_master, WORKED);
    if (landlock_abi() >= 4) {
        expect(PSI_HARDEN_SERVER, try_connect_elsewhere, DENIED);
    }
}

/* Two files, of which one says where the master is, and comes when the process is hardened. */
struct folders {
    char base[32];
    char folder[48];
    char file[64];
    char other[64];
};

static struct folders folders;

static void
write_one(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "1", 1), 1);
    close(fd);
}

static int
try_read_master_file(struct world *world)
{
    char byte;
    const int fd = open(world->master_file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    return outcome(fd >= 0 ? read(fd, &byte, 1) - 1 : -1);
}

static int
try_read_beside(struct world *world)
{
    (void)world;
    return outcome(open(folders.other, O_RDONLY | O_CLOEXEC));
}

static int
try_write_master_file(struct world *world)
{
    return outcome(open(world->master_file, O_WRONLY | O_CLOEXEC));
}

static int
try_list_folder(struct world *world)
{
    (void)world;
    return outcome(open(folders.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/* The file is replaced after the hardening, as it is when a master moves. */
static void
expect_of_one_that_looks(attempt *act, int wanted)
{
    struct world world;
    int go[2];
    int status = 0;
    char byte;
    pid_t child;

    open_world(&world);
    world.master_file = folders.file;
    assert_int_equal(pipe(go), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        harden(&world, PSI_HARDEN_SERVER, true);
        _exit(read(go[0], &byte, 1) == 1 ? act(&world) : OTHERWISE);
    }
    write_one(folders.other);
    assert_int_equal(rename(folders.other, folders.file), 0);
    write_one(folders.other);
    assert_int_equal(write(go[1], "1", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(go[0]);
    close(go[1]);
    close_world(&world);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), wanted);
}

/* If this fails, a hardened server does not find a master that is elsewhere; or it may read or write more than
 * the one file that says where. */
static void
test_a_server_looks_for_a_master_that_moved(void **state)
{
    (void)state;
    need_hardening(true);
    snprintf(folders.base, sizeof(folders.base), "/tmp/psd-harden-XXXXXX");
    assert_non_null(mkdtemp(folders.base));
    snprintf(folders.folder, sizeof(folders.folder), "%s/master", folders.base);
    snprintf(folders.file, sizeof(folders.file), "%s/address", folders.folder);
    snprintf(folders.other, sizeof(folders.other), "%s/other", folders.base);
    assert_int_equal(mkdir(folders.folder, 0700), 0);
    expect_of_one_that_looks(try_read_master_file, WORKED);
    expect_of_one_that_looks(try_connect_elsewhere, OTHERWISE); /* refused: nobody listens there */
    expect_of_one_that_looks(try_write_master_file, DENIED);
    if (landlock_abi() >= 1) {
        expect_of_one_that_looks(try_read_beside, DENIED);
        expect_of_one_that_looks(try_list_folder, DENIED);
    }
    assert_int_equal(unlink(folders.file) + unlink(folders.other), 0);
    assert_int_equal(rmdir(folders.folder) + rmdir(folders.base), 0);
}

static void
expect_of_one_that_shares(attempt *act, int wanted)
{
    const int status = try_as(PSI_HARDEN_SERVER, NULL, true, act);

    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), wanted);
}

/* If this fails, a server cannot share memory with the copy that it has in another one of its host; or
 * all servers keep the ways out that this needs; or it needs more than it has to. */
static void
test_only_copies_need_their_neighbours(void **state)
{
    attempt *const denied[] = {try_unix_socket,   try_unix_datagrams, try_unix_datagram_pair,
                               try_signal_parent, try_fork,           try_udp,
                               try_write_file,    try_second_listener};

    (void)state;
    need_hardening(true);
    expect_of_one_that_shares(try_unix_pair, WORKED);
    expect_of_one_that_shares(try_tell_neighbour, WORKED);
    for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++) {
        expect_of_one_that_shares(denied[i], DENIED);
    }
    expect(PSI_HARDEN_SERVER, try_unix_pair, DENIED);
    if (landlock_abi() >= 6) {
        expect(PSI_HARDEN_SERVER, try_tell_neighbour, DENIED);
    }
}

static int
try_read_hosts(struct world *world)
{
    (void)world;
    return outcome(open("/etc/hosts", O_RDONLY | O_CLOEXEC));
}

static void
expect_with_lookup(attempt *act, int wanted)
{
    const int status = try_as(PSI_HARDEN_SERVER, "localhost", false, act);

    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), wanted);
}

/* If this fails, a server whose master has an address keeps ways out that only names need, or one
 * whose master has a name cannot look it up. */
static void
test_only_a_lookup_needs_name_services(void **state)
{
    attempt *const denied[] = {try_mptcp,     try_sctp,
                               try_udp_lite,  try_raw_socket,
                               try_fast_open, try_fast_open_message,
                               try_unix_pair, try_fast_open_messages};

    (void)state;
    need_hardening(true);
    expect_with_lookup(try_udp, WORKED);
    expect_with_lookup(try_udp_v6, WORKED);
    expect_with_lookup(try_read_hosts, WORKED);
    expect_with_lookup(try_event, WORKED);
    expect_with_lookup(try_second_descriptor, WORKED);
    for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++) {
        expect_with_lookup(denied[i], DENIED);
    }
    if (landlock_abi() >= 1) {
        expect(PSI_HARDEN_SERVER, try_read_hosts, DENIED);
    }
}

/* ---- what still works -------------------------------------------------------------------- */

static void *
add_one(void *argument)
{
    void *memory = malloc(1 << 20);

    *(int *)argument += memory != NULL;
    free(memory);
    return NULL;
}

static int
use_thread(struct world *world)
{
    pthread_t thread;
    int count = 0;

    (void)world;
    if (pthread_create(&thread, NULL, add_one, &count) != 0 || pthread_join(thread, NULL) != 0) {
        return OTHERWISE;
    }
    return count == 1 ? WORKED : OTHERWISE;
}

static int
use_memory(struct world *world)
{
    const size_t bytes = 64 << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)world;
    if (memory == MAP_FAILED) {
        return outcome(-1);
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    memory[bytes - 1] = 1;
    return outcome(munmap(memory, bytes));
}

/* A spare descriptor is opened again and again by the listener. */
static int
use_spare(struct world *world)
{
    (void)world;
    return outcome(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

/* One byte through a connection that was made and is accepted after hardening. */
static int
use_connection(struct world *world)
{
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char byte = 'p';
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    int server;

    if (connect(client, (struct sockaddr *)&world->address, sizeof(world->address)) != 0) {
        return outcome(-1);
    }
    server = accept4(world->listener, NULL, NULL, SOCK_CLOEXEC);
    if (server < 0 || sendmsg(client, &message, MSG_NOSIGNAL) != 1) {
        return outcome(-1);
    }
    byte = 0;
    return recvmsg(server, &message, 0) == 1 && byte == 'p' ? WORKED : OTHERWISE;
}

enum { SHARED_BYTES = 1 << 20 };

/* Sends `fd`, and who we are, through the channel. */
static bool
send_descriptor(int channel, int fd)
{
    struct ucred who = {.pid = getpid(), .uid = getuid(), .gid = getgid()};
    char byte = 's';
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(fd)) + CMSG_SPACE(sizeof(who))];
    } control = {0};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);

    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(part), &fd, sizeof(fd));
    part = CMSG_NXTHDR(&message, part);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_CREDENTIALS;
    part->cmsg_len = CMSG_LEN(sizeof(who));
    memcpy(CMSG_DATA(part), &who, sizeof(who));
    return sendmsg(channel, &message, MSG_NOSIGNAL) == 1;
}

static int
receive_descriptor(int channel)
{
    char byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr align;
        char bytes[128];
    } control;
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    int fd = -1;

    if (recvmsg(channel, &message, MSG_CMSG_CLOEXEC) != 1) {
        return -1;
    }
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part != NULL;
         part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_type == SCM_RIGHTS) {
            memcpy(&fd, CMSG_DATA(part), sizeof(fd));
        }
    }
    return fd;
}

/* Memory made, sealed, sent and mapped at both ends. */
static int
use_shared_memory(struct world *world)
{
    const int on = 1;
    const int made = memfd_create("shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const int prot = PROT_READ | PROT_WRITE;
    struct stat info;
    char *here;
    char *there;
    int got;

    if (made < 0 || ftruncate(made, SHARED_BYTES) != 0 ||
        fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        setsockopt(world->channel[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
        !send_descriptor(world->channel[0], made)) {
        return outcome(-1);
    }
    got = receive_descriptor(world->channel[1]);
    if (got < 0 || (fcntl(got, F_GET_SEALS) & F_SEAL_SHRINK) == 0 || fstat(got, &info) != 0) {
        return outcome(-1);
    }
    here = mmap(NULL, SHARED_BYTES, prot, MAP_SHARED, made, 0);
    there = mmap(NULL, SHARED_BYTES / 2, prot, MAP_SHARED, got, 0);
    if (here == MAP_FAILED || there == MAP_FAILED) {
        return outcome(-1);
    }
    there = mremap(there, SHARED_BYTES / 2, SHARED_BYTES, MREMAP_MAYMOVE);
    if (there == MAP_FAILED || madvise(here, SHARED_BYTES, MADV_DONTDUMP) != 0 ||
        sched_yield() != 0) {
        return outcome(-1);
    }
    here[SHARED_BYTES - 1] = 's';
    return info.st_size == SHARED_BYTES && there[SHARED_BYTES - 1] == 's' &&
                   munmap(there, SHARED_BYTES) == 0
               ? WORKED
               : OTHERWISE;
}

/* If this fails, a hardened server cannot serve. */
static void
test_serving_still_works(void **state)
{
    (void)state;
    need_hardening(false);
    expect(PSI_HARDEN_SERVER, use_thread, WORKED);
    expect(PSI_HARDEN_SERVER, use_shared_memory, WORKED);
    expect(PSI_HARDEN_SERVER, use_connection, WORKED);
    for (int role = PSI_HARDEN_MASTER; role <= PSI_HARDEN_SERVER; role++) {
        expect((enum psi_harden_role)role, use_memory, WORKED);
        expect((enum psi_harden_role)role, use_spare, WORKED);
    }
}

static int
use_abort(struct world *world)
{
    (void)world;
    abort();
}

/* If this fails, a broken assumption ends in some other way than by SIGABRT, or not at all. */
static void
test_abort_still_aborts(void **state)
{
    int status;

    (void)state;
    need_hardening(true);
    status = try_in_child(PSI_HARDEN_SERVER, use_abort);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_false(WCOREDUMP(status));
}

/* ---- who may look inside ----------------------------------------------------------------- */

enum { NOBODY = 65534 };

/* As a user of its own, on the other end of the channel: hardens when told, ends when told again.
 * A process that changes its user is not dumpable: it was before a daemon began. */
static void
live_as_somebody(struct world *world)
{
    char byte;

    if ((geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0) ||
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0 || write(world->channel[1], "1", 1) != 1 ||
        read(world->channel[1], &byte, 1) != 1) {
        _exit(OTHERWISE);
    }
    harden(world, PSI_HARDEN_SERVER, true);
    _exit(write(world->channel[1], "2", 1) == 1 && read(world->channel[1], &byte, 1) == 1
              ? WORKED
              : OTHERWISE);
}

/* What cannot be dumped belongs to root in /proc: others of its user read neither memory nor
 * descriptors. */
static uid_t
owner_in_proc(pid_t process)
{
    char path[64];
    struct stat about;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)process);
    assert_int_equal(stat(path, &about), 0);
    return about.st_uid;
}

/* If this fails, a daemon leaves cores where limits allow them, and its user may read the secret
 * out of its memory. */
static void
test_memory_is_closed_to_others(void **state)
{
    struct world world;
    int status = 0;
    pid_t child;
    char byte;

    (void)state;
    need_hardening(false);
    open_world(&world);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        live_as_somebody(&world);
    }
    assert_int_equal(read(world.channel[0], &byte, 1), 1);
    assert_int_not_equal(owner_in_proc(child), 0); /* or this test could not fail */
    assert_int_equal(write(world.channel[0], "1", 1), 1);
    assert_int_equal(read(world.channel[0], &byte, 1), 1);
    assert_int_equal(owner_in_proc(child), 0);
    assert_int_equal(write(world.channel[0], "2", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close_world(&world);
}

/* ---- what is said ------------------------------------------------------------------------ */

static int
is_reported(struct world *world)
{
    return strstr(world->line, "HARDENED no_new_privs, no core files, no capabilities, ") != NULL &&
                   strstr(world->line, "landlock") != NULL && strstr(world->line, "seccomp") != NULL
               ? WORKED
               : OTHERWISE;
}

/* If this fails, nobody can tell from the log what a daemon has given up. */
static void
test_one_line_says_what_was_done(void **state)
{
    (void)state;
    need_hardening(false);
    expect(PSI_HARDEN_MASTER, is_reported, WORKED);
    expect(PSI_HARDEN_SERVER, is_reported, WORKED);
}

/* If this fails, harden=off does not switch it off, or does so in silence. */
static void
test_off_means_off_and_says_so(void **state)
{
    struct world world;

    (void)state;
    need_hardening(false);
    open_world(&world);
    harden(&world, PSI_HARDEN_SERVER, false);
    close_world(&world);
    assert_string_equal(world.line, "1 NOT-HARDENED harden=off");
    assert_int_equal(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_calls_kill),
        cmocka_unit_test(test_needless_calls_are_denied),
        cmocka_unit_test(test_only_a_server_connects_and_only_to_its_master),
        cmocka_unit_test(test_a_server_looks_for_a_master_that_moved),
        cmocka_unit_test(test_only_copies_need_their_neighbours),
        cmocka_unit_test(test_only_a_lookup_needs_name_services),
        cmocka_unit_test(test_serving_still_works),
        cmocka_unit_test(test_abort_still_aborts),
        cmocka_unit_test(test_memory_is_closed_to_others),
        cmocka_unit_test(test_one_line_says_what_was_done),
        cmocka_unit_test(test_off_means_off_and_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
