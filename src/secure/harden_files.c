/*
 * harden_files.c - the files and ports that a daemon keeps (landlock).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/harden.h"
#include "secure/harden_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's interface, of which the headers of older systems know only the beginning. */
enum {
    FILES_WRITE = 1 << 1,
    FILES_READ = 1 << 2,
    FILES_LIST = 1 << 3,
    FILES_REMOVE = 1 << 5,
    FILES_MAKE = 1 << 8,
    FILES_OF_ABI_1 = (1 << 13) - 1, /* execute, read, write, list, remove, make */
    FILES_REFER = 1 << 13,          /* from ABI 2 */
    FILES_TRUNCATE = 1 << 14,       /* from ABI 3 */
    FILES_IOCTL_DEVICE = 1 << 15,   /* from ABI 5 */
    PORTS_CONNECT = 1 << 1,
    PORTS_BIND = 1,
    PORTS_ALL = 3, /* bind and connect, from ABI 4 */
    SCOPE_SIGNALS = 2,
    SCOPES_ALL = 3, /* abstract unix sockets and signals, from ABI 6 */
    GET_VERSION = 1,
    RULE_PATH = 1,
    RULE_PORT = 2,
    DNS_PORT = 53, /* long answers come by tcp */
    PATH_BYTES = 4096,
};

struct ruleset {
    uint64_t files;
    uint64_t ports;
    uint64_t scopes;
};

struct path_rule {
    uint64_t access;
    int32_t fd;
} __attribute__((packed));

struct port_rule {
    uint64_t access;
    uint64_t port;
};

/* The loop keeps a spare descriptor. */
static const char *const plain_files[] = {"/dev/null", NULL};

/* Looking up a name. Single files, not /etc: root may read more there than we want to
 * give away. Under /run they are replaced rather than rewritten, so the folder is named. */
static const char *const naming_files[] = {
    "/dev/null",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/run/systemd/resolve",
    "/run/NetworkManager",
    NULL,
};

static void
allow_files(int ruleset, const char *const *path)
{
    for (; *path != NULL; path++) {
        struct path_rule rule = {.access = FILES_READ, .fd = open(*path, O_PATH | O_CLOEXEC)};

        if (rule.fd >= 0) { /* not every system has all of them */
            (void)syscall(SYS_landlock_add_rule, ruleset, RULE_PATH, &rule, 0);
            close(rule.fd);
        }
    }
}

/* The folder: the file is replaced, not rewritten, and may not be there yet. Nothing else is in it. */
static void
allow_folder_of(int ruleset, const char *file)
{
    const char *slash = strrchr(file, '/');
    char folder[PATH_BYTES];
    const char *const folders[] = {folder, NULL};

    if (slash != NULL && slash != file && (size_t)(slash - file) < sizeof(folder)) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - file), file);
        allow_files(ruleset, folders);
    }
}

/* Files in it are made, written, renamed and removed. */
static void
allow_directory(int ruleset, const char *path, uint64_t access)
{
    struct path_rule rule = {.access = access, .fd = open(path, O_PATH | O_CLOEXEC)};

    if (rule.fd >= 0) {
        (void)syscall(SYS_landlock_add_rule, ruleset, RULE_PATH, &rule, 0);
        close(rule.fd);
    }
}

/* A server that may have to look for the master elsewhere, or for other servers, whose ports nobody
 * knows. */
static bool
connects_anywhere(const struct psi_harden_args *args)
{
    return args->connects_to_servers || args->master_file != NULL;
}

static void
allow_port(int ruleset, uint16_t port)
{
    const struct port_rule rule = {.access = PORTS_CONNECT, .port = port};

    (void)syscall(SYS_landlock_add_rule, ruleset, RULE_PORT, &rule, 0);
}

static int
make_ruleset(long abi, uint64_t ports, uint64_t scopes)
{
    struct ruleset rules = {.files = FILES_OF_ABI_1};
    size_t bytes = sizeof(rules.files);

    rules.files |= abi >= 2 ? FILES_REFER : 0;
    rules.files |= abi >= 3 ? FILES_TRUNCATE : 0;
    rules.files |= abi >= 5 ? FILES_IOCTL_DEVICE : 0;
    if (abi >= 4) {
        rules.ports = ports;
        bytes += sizeof(rules.ports);
    }
    if (abi >= 6) {
        rules.scopes = scopes;
        bytes += sizeof(rules.scopes);
    }
    return (int)syscall(SYS_landlock_create_ruleset, &rules, bytes, 0);
}

void
psi_harden_files(const struct psi_harden_args *args, struct psi_harden_report *report)
{
    const bool lookup = args->lookup != NULL;
    const long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, GET_VERSION);
    int ruleset;

    if (abi < 1) {
        psi_harden_say(report, false, "landlock: this kernel lacks it");
        return;
    }
    ruleset = make_ruleset(abi, connects_anywhere(args) ? PORTS_BIND : PORTS_ALL,
                           args->shares_with_servers ? SCOPE_SIGNALS : SCOPES_ALL);
    if (ruleset >= 0) {
        allow_files(ruleset, lookup ? naming_files : plain_files);
        if (args->role == PSI_HARDEN_SERVER && abi >= 4 && !connects_anywhere(args)) {
            allow_port(ruleset, args->connect_port);
        }
        if (args->master_file != NULL) {
            allow_folder_of(ruleset, args->master_file);
        }
        if (args->checkpoint != NULL) {
            allow_directory(ruleset, args->checkpoint,
                            FILES_WRITE | FILES_READ | FILES_LIST | FILES_REMOVE | FILES_MAKE |
                                (abi >= 3 ? FILES_TRUNCATE : 0));
        }
        if (args->resume != NULL) {
            allow_directory(ruleset, args->resume, FILES_READ);
        }
        if (lookup && abi >= 4 && !connects_anywhere(args)) {
            allow_port(ruleset, DNS_PORT);
        }
    }
    if (ruleset < 0 || syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) {
        psi_harden_say(report, false, "landlock: %s", strerror(errno));
    } else if (abi < 4) {
        psi_harden_say(report, true, "landlock ABI %ld (files; ports need ABI 4)", abi);
    } else {
        psi_harden_say(report, true, "landlock ABI %ld", abi);
    }
    if (ruleset >= 0) {
        close(ruleset);
    }
}
