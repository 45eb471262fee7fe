/*
 * harden_calls.c - the system calls that a daemon keeps (seccomp).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/harden.h"
#include "secure/harden_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef PSI_HAVE_SECCOMP
#include <seccomp.h>
#endif

#ifdef PSI_HAVE_SECCOMP

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Nobody but an intruder makes these. */
static const int deadly_calls[] = {
    SCMP_SYS(execve),           SCMP_SYS(execveat),          SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev), SCMP_SYS(bpf),
    SCMP_SYS(init_module),      SCMP_SYS(finit_module),      SCMP_SYS(kexec_load),
};

static const int plain_calls[] = {
    /* connections, and the log */
    SCMP_SYS(accept4),
    SCMP_SYS(close),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(getpeername),
    SCMP_SYS(getsockname),
    SCMP_SYS(getsockopt),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    /* memory */
    SCMP_SYS(brk),
    SCMP_SYS(madvise),
    SCMP_SYS(mremap),
    SCMP_SYS(munlock),
    SCMP_SYS(munmap),
    /* time, chance, and who we are */
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(getegid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getpid),
    SCMP_SYS(getrandom),
    SCMP_SYS(gettid),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getuid),
    /* what libc does on its own: threads, signals, stdio, sizes of the machine */
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(fstat),
    SCMP_SYS(futex),
    SCMP_SYS(getcpu),
    SCMP_SYS(lseek),
    SCMP_SYS(pread64), /* of what it has open: base/resident.h */
    SCMP_SYS(newfstatat),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rseq),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_yield),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(sysinfo),
};

/* A server connects to the master, shares memory with workers of its host, and writes to files that it
 * has open from the start (store/sparse/cold.h). */
static const int server_calls[] = {SCMP_SYS(connect), SCMP_SYS(ftruncate), SCMP_SYS(memfd_create),
                                   SCMP_SYS(fallocate), SCMP_SYS(getrusage)};

/* Files of checkpoints, which landlock keeps to their directory. */
static const int checkpoint_calls[] = {
    SCMP_SYS(fallocate), SCMP_SYS(fdatasync), SCMP_SYS(flock),      SCMP_SYS(fstatfs),
    SCMP_SYS(fsync),     SCMP_SYS(ftruncate), SCMP_SYS(getdents64), SCMP_SYS(pwrite64),
    SCMP_SYS(renameat),  SCMP_SYS(renameat2), SCMP_SYS(unlinkat),
};

/* libc asks for the host's own name before it looks up others; an event tells of the answer. */
static const int naming_calls[] = {SCMP_SYS(eventfd2), SCMP_SYS(uname)};

/* Allowed with some arguments only. */
struct conditional {
    int call;
    unsigned count; /* of the conditions: all must hold */
    struct scmp_arg_cmp when[3];
};

#define WHEN_EQUAL(argument, value)                                                                \
    {                                                                                              \
        argument, SCMP_CMP_MASKED_EQ, UINT32_MAX, (scmp_datum_t)(value)                            \
    }
#define WHEN_NONE_OF(argument, bits)                                                               \
    {                                                                                              \
        argument, SCMP_CMP_MASKED_EQ, (bits), 0                                                    \
    }

/* No memory that can be executed, no file that can be written, no signals by descriptor, and no
 * connection that begins with data: landlock looks at connect() only. */
static const struct conditional plain_conditions[] = {
    {SCMP_SYS(ioctl), 1, {WHEN_EQUAL(1, FIONREAD)}},
    {SCMP_SYS(mmap), 1, {WHEN_NONE_OF(2, PROT_EXEC)}},
    {SCMP_SYS(mprotect), 1, {WHEN_NONE_OF(2, PROT_EXEC)}},
    {SCMP_SYS(openat), 1, {WHEN_NONE_OF(2, O_ACCMODE | O_CREAT | O_TRUNC)}},
    {SCMP_SYS(sendmsg), 1, {WHEN_NONE_OF(2, MSG_FASTOPEN)}},
    {SCMP_SYS(sendto), 1, {WHEN_NONE_OF(3, MSG_FASTOPEN)}},
    {SCMP_SYS(fcntl), 1, {WHEN_EQUAL(1, F_GETFD)}},
    {SCMP_SYS(fcntl), 1, {WHEN_EQUAL(1, F_SETFD)}},
    {SCMP_SYS(fcntl), 1, {WHEN_EQUAL(1, F_GETFL)}},
    {SCMP_SYS(fcntl), 1, {WHEN_EQUAL(1, F_SETFL)}},
};

/* SOCK_STREAM and the like, with or without SOCK_CLOEXEC and SOCK_NONBLOCK. Protocol 0 is the usual
 * one: landlock knows no ports of the others. */
#define WHEN_SOCKET(family, type)                                                                  \
    {                                                                                              \
        WHEN_EQUAL(0, family),                                                                     \
            {1, SCMP_CMP_MASKED_EQ, UINT32_MAX & ~(scmp_datum_t)(SOCK_CLOEXEC | SOCK_NONBLOCK),    \
             type},                                                                                \
            WHEN_EQUAL(2, 0),                                                                      \
    }

/* Threads but no processes, each on cores of its own choice; TCP but no other kind of socket; seals
 * for the memory that is shared. */
static const struct conditional server_conditions[] = {
    {SCMP_SYS(clone), 1, {{0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD}}},
    {SCMP_SYS(fcntl), 1, {WHEN_EQUAL(1, F_ADD_SEALS)}},
    {SCMP_SYS(fcntl), 1, {WHEN_EQUAL(1, F_GET_SEALS)}},
    {SCMP_SYS(sched_setaffinity), 1, {WHEN_EQUAL(0, 0)}},
    {SCMP_SYS(socket), 3, WHEN_SOCKET(AF_INET, SOCK_STREAM)},
    {SCMP_SYS(socket), 3, WHEN_SOCKET(AF_INET6, SOCK_STREAM)},
};

/* ... in a thread of their own, which may give way to the others. */
static const struct conditional checkpoint_conditions[] = {
    {SCMP_SYS(clone), 1, {{0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD}}},
    {SCMP_SYS(openat), 1, {WHEN_NONE_OF(2, O_TRUNC)}},
    {SCMP_SYS(setpriority), 2, {WHEN_EQUAL(0, PRIO_PROCESS), WHEN_EQUAL(1, 0)}},
};

/* Each end has one of a pair of sockets, which it was given through a socket that is there from the
 * start (transport/shm/shm_meet.h). */
static const struct conditional sharing_conditions[] = {
    {SCMP_SYS(socketpair), 3, WHEN_SOCKET(AF_UNIX, SOCK_SEQPACKET)},
};

/* Names are asked for by UDP, in a thread of their own: transport/loop/lookup.c. */
static const struct conditional naming_conditions[] = {
    {SCMP_SYS(fcntl), 1, {WHEN_EQUAL(1, F_DUPFD_CLOEXEC)}},
    {SCMP_SYS(sendmmsg), 1, {WHEN_NONE_OF(3, MSG_FASTOPEN)}},
    {SCMP_SYS(socket), 3, WHEN_SOCKET(AF_INET, SOCK_DGRAM)},
    {SCMP_SYS(socket), 3, WHEN_SOCKET(AF_INET6, SOCK_DGRAM)},
};

static int
add_calls(scmp_filter_ctx filter, uint32_t action, const int *calls, size_t count)
{
    int code = 0;

    for (size_t i = 0; i < count && code == 0; i++) {
        code = seccomp_rule_add(filter, action, calls[i], 0);
    }
    return code;
}

static int
add_conditions(scmp_filter_ctx filter, const struct conditional *rules, size_t count)
{
    int code = 0;

    for (size_t i = 0; i < count && code == 0; i++) {
        code = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, rules[i].call, rules[i].count,
                                      rules[i].when);
    }
    return code;
}

static int
add_server_rules(scmp_filter_ctx filter)
{
    const int code = add_calls(filter, SCMP_ACT_ALLOW, server_calls, COUNT(server_calls));

    return code != 0 ? code : add_conditions(filter, server_conditions, COUNT(server_conditions));
}

static int
add_naming_rules(scmp_filter_ctx filter)
{
    const int code = add_calls(filter, SCMP_ACT_ALLOW, naming_calls, COUNT(naming_calls));

    return code != 0 ? code : add_conditions(filter, naming_conditions, COUNT(naming_conditions));
}

static int
add_checkpoint_rules(scmp_filter_ctx filter)
{
    const int code = add_calls(filter, SCMP_ACT_ALLOW, checkpoint_calls, COUNT(checkpoint_calls));

    return code != 0 ? code
                     : add_conditions(filter, checkpoint_conditions, COUNT(checkpoint_conditions));
}

static int
add_rules(scmp_filter_ctx filter, const struct psi_harden_args *args)
{
    const struct conditional abort_self = {SCMP_SYS(tgkill), 1, {WHEN_EQUAL(0, getpid())}};
    int code = add_calls(filter, SCMP_ACT_KILL_PROCESS, deadly_calls, COUNT(deadly_calls));

    if (code == 0) {
        code = add_calls(filter, SCMP_ACT_ALLOW, plain_calls, COUNT(plain_calls));
    }
    if (code == 0) {
        code = add_conditions(filter, plain_conditions, COUNT(plain_conditions));
    }
    if (code == 0) {
        code = add_conditions(filter, &abort_self, 1);
    }
    /* A filter cannot see the flags of clone3: libc is told to go back to clone. */
    if (code == 0) {
        code = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    }
    if (code == 0 && args->role == PSI_HARDEN_SERVER) {
        code = add_server_rules(filter);
    }
    if (code == 0 && args->shares_with_servers) {
        code = add_conditions(filter, sharing_conditions, COUNT(sharing_conditions));
    }
    if (code == 0 && args->checkpoint != NULL) {
        code = add_checkpoint_rules(filter);
    }
    if (code == 0 && args->lookup != NULL) {
        code = add_naming_rules(filter);
    }
    return code;
}

/* Different calls: those with several conditions stand next to each other. */
static size_t
count_conditions(const struct conditional *rules, size_t count)
{
    size_t calls = 0;

    for (size_t i = 0; i < count; i++) {
        calls += i == 0 || rules[i].call != rules[i - 1].call;
    }
    return calls;
}

static size_t
count_calls(const struct psi_harden_args *args)
{
    size_t calls = COUNT(plain_calls) + 1 /* tgkill */ +
                   count_conditions(plain_conditions, COUNT(plain_conditions));

    if (args->role == PSI_HARDEN_SERVER) { /* fcntl has been counted */
        calls +=
            COUNT(server_calls) - 1 + count_conditions(server_conditions, COUNT(server_conditions));
    }
    if (args->shares_with_servers) {
        calls += count_conditions(sharing_conditions, COUNT(sharing_conditions));
    }
    if (args->checkpoint != NULL) { /* openat, and of a server clone, ftruncate and fallocate,
                                        were counted */
        calls += COUNT(checkpoint_calls) + (args->role == PSI_HARDEN_SERVER ? -2UL : 1);
    }
    if (args->lookup != NULL) { /* fcntl and socket have been counted */
        calls +=
            COUNT(naming_calls) - 2 + count_conditions(naming_conditions, COUNT(naming_conditions));
    }
    return calls;
}

void
psi_harden_calls(const struct psi_harden_args *args, struct psi_harden_report *report)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int code = filter != NULL ? 0 : -ENOMEM;

    if (code == 0) {
        code = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    }
    if (code == 0) {
        /* What was denied is in the kernel's audit log; kernels before 4.14 do without. */
        (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_LOG, 1);
        code = add_rules(filter, args);
    }
    if (code == 0) {
        code = seccomp_load(filter);
    }
    if (code == 0) {
        psi_harden_say(report, true, "seccomp (%zu calls)", count_calls(args));
    } else {
        psi_harden_say(report, false, "seccomp: %s", strerror(-code));
    }
    seccomp_release(filter);
}

#else

void
psi_harden_calls(const struct psi_harden_args *args, struct psi_harden_report *report)
{
    (void)args;
    psi_harden_say(report, false, "seccomp: built without libseccomp");
}

#endif
