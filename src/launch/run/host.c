/*
 * host.c - psd_run's view of one machine.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#include "base/fail.h"
#include "launch/system/close_fd.h"
#include "launch/system/reach.h"
#include "launch/system/spawn.h"
#include "launch/system/wall_clock.h"
#include "launch/text/command.h"
#include "launch/text/variables.h"

enum { GOODBYE_MS = 1000 }; /* for ssh or srun to end after its line did */

/* Descriptors of a child and their other ends. */
struct pipes {
    int input[2];
    int output[2];
    int error[2];
};

static void
close_pair(const int pair[2])
{
    close(pair[0]);
    close(pair[1]);
}

static bool
open_pipes(struct pipes *pipes)
{
    if (pipe2(pipes->input, O_CLOEXEC) != 0) {
        return false;
    }
    if (pipe2(pipes->output, O_CLOEXEC) != 0) {
        close_pair(pipes->input);
        return false;
    }
    if (pipe2(pipes->error, O_CLOEXEC) != 0) {
        close_pair(pipes->input);
        close_pair(pipes->output);
        return false;
    }
    return true;
}

psd_status
host_call(struct host *host, struct psd_error *err)
{
    struct words argv = {0};
    struct pipes pipes;
    struct words environment = {0};
    const char *program = remote_shell_program(&host->shell);
    char *path = command_find(program, variables_get(environ, "PATH"));
    psd_status status = remote_shell_arguments(&host->shell, &argv, err);
    struct spawn_args args = {.path = path,
                              .extra_fd = -1,
                              .secret_fd = -1,
                              .note_fd = -1,
                              .outlives = remote_shell_ends_with_its_agent(&host->shell)};
    int code;

    if (status == PSD_OK && path == NULL) {
        status = psi_fail(err, PSD_ERR_IO, "%s: no such program; install it (Debian: %s)", program,
                          host->shell.way == REMOTE_SHELL_SRUN ? "slurm-client" : "openssh-client");
    }
    remote_shell_environment(&host->shell, environ, &environment);
    if (status == PSD_OK && !open_pipes(&pipes)) {
        status = psi_fail_errno(err, PSD_ERR_IO, "pipes for %s %s", program, host->machine->name);
    }
    if (status == PSD_OK) {
        args.argv = argv.list;
        args.environment = environment.list;
        args.input_fd = pipes.input[0];
        args.output_fd = pipes.output[1];
        args.error_fd = pipes.error[1];
        code = spawn_start(&args, &host->pid);
        close(pipes.input[0]);
        close(pipes.output[1]);
        close(pipes.error[1]);
        host->status = -1;
        host->stderr_tail[0] = '\0';
        fcntl(pipes.error[0], F_SETFL, O_NONBLOCK);
        host->stderr_fd = pipes.error[0];
        link_init(&host->link, pipes.output[0], pipes.input[1]);
        host->state = HOST_CALLING;
        host->tries++;
        status = code == 0 ? PSD_OK : psi_fail(err, PSD_ERR_IO, "%s: %s", program, strerror(code));
    }
    words_fini(&argv);
    words_fini(&environment);
    free(path);
    return status;
}

void
host_adopt(struct host *host, pid_t agent, int line)
{
    host->pid = agent;
    host->status = -1;
    link_init(&host->link, line, line);
    host->state = HOST_CALLING;
}

void
host_welcome(struct host *host, const struct join_member *member, int line)
{
    const struct host former = *host;

    /* Others that start meanwhile are told where it was, until it says where it is. */
    host->worker_ports = NULL;
    host_fini(host);
    *host = (struct host){.machine = former.machine,
                          .stderr_fd = -1,
                          .lost = former.lost,
                          .worker_ports = former.worker_ports};
    memcpy(host->address, former.address, sizeof(host->address));
    memcpy(host->hostname, former.hostname, sizeof(host->hostname));
    host_adopt(host, 0, line);
    memcpy(host->its_address, member->address, sizeof(host->its_address));
    memcpy(host->our_address, member->seen, sizeof(host->our_address));
    memcpy(host->advertised, member->advertised, sizeof(host->advertised));
}

void
host_kill(const struct host *host)
{
    if (host->pid > 0) {
        kill(host->pid, SIGKILL);
    }
}

void
host_fini(struct host *host)
{
    close_fd(&host->stderr_fd);
    link_fini(&host->link);
    words_fini(&host->addresses);
    words_fini(&host->problems);
    words_fini(&host->notes);
    free(host->knows_flags);
    free(host->worker_ports);
    host->knows_flags = NULL;
    host->worker_ports = NULL;
}

/* The end of what was said matters more than its beginning. */
void
host_read_stderr(struct host *host)
{
    char bytes[1024];
    ssize_t count;

    while (host->stderr_fd >= 0 && (count = read(host->stderr_fd, bytes, sizeof(bytes))) != 0) {
        size_t used = strlen(host->stderr_tail);
        size_t drop;

        if (count < 0) {
            if (errno == EINTR) {
                continue;
            }
            return;
        }
        drop = used + (size_t)count >= sizeof(host->stderr_tail)
                   ? used + (size_t)count - sizeof(host->stderr_tail) + 1
                   : 0;
        drop = drop > used ? used : drop;
        memmove(host->stderr_tail, host->stderr_tail + drop, used - drop + 1);
        used -= drop;
        memcpy(host->stderr_tail + used, bytes, (size_t)count);
        host->stderr_tail[used + (size_t)count] = '\0';
    }
    close_fd(&host->stderr_fd);
}

/* Waits for the process behind the line, a moment; then ends it. */
static void
collect(struct host *host)
{
    struct pollfd wait = {.fd = pidfd_open(host->pid, 0), .events = POLLIN};

    if (wait.fd < 0 || poll(&wait, 1, GOODBYE_MS) == 0) {
        kill(host->pid, SIGKILL);
    }
    if (waitpid(host->pid, &host->status, 0) != host->pid) {
        host->status = -1;
    }
    close_fd(&wait.fd);
    host->pid = 0;
}

void
host_close(struct host *host)
{
    link_fini(&host->link);
    if (host->pid > 0) {
        collect(host);
    }
    host_read_stderr(host);
    if (host->stderr_fd >= 0) { /* a persistent master of ssh may hold it open */
        close(host->stderr_fd);
        host->stderr_fd = -1;
    }
}

/* ------------------------------------------------------------------------------------ hello --- */

psd_status
host_meet(struct host *host, const struct words *hello, struct psd_error *err)
{
    char *const *list = hello->list;
    const char *clock_ms = variables_text(list, "clock_ms");

    snprintf(host->version, sizeof(host->version), "%.31s", variables_text(list, "version"));
    snprintf(host->hostname, sizeof(host->hostname), "%.255s", variables_text(list, "hostname"));
    host->computer = strtoull(variables_text(list, "computer"), NULL, 16);
    host->cores = (uint32_t)strtoul(variables_text(list, "cores"), NULL, 10);
    if (!host->machine->joined && !host->machine->here) { /* those may have said it long ago */
        host->clock_ahead_ms = strtoll(clock_ms, NULL, 10) - (int64_t)wall_clock_ms();
    }
    sscanf(variables_text(list, "line"), "%63s %63s", host->our_address, host->its_address);
    for (size_t i = 0; i < hello->count; i++) {
        if (strncmp(list[i], "address=", 8) == 0) {
            words_add(&host->addresses, list[i] + 8);
        }
    }
    host->state = HOST_MET;
    if (strcmp(host->version, PSD_VERSION) != 0) {
        return psi_fail(
            err, PSD_ERR_REFUSED,
            "%s has psd_run %.31s, this is %s: install the same version on all machines",
            host->machine->name, host->version, PSD_VERSION);
    }
    return PSD_OK;
}

/* Containers of one computer that share its network but have names of their own count as several.
 */
bool
host_is_same_computer(const struct host *one, const struct host *other)
{
    return one->computer == other->computer && strcmp(one->hostname, other->hostname) == 0 &&
           (one->computer != 0 || one->machine->joined || other->machine->joined);
}

const struct host *
host_first_of_computer(const struct host *hosts, const struct host *host)
{
    while (hosts != host && !host_is_same_computer(hosts, host)) {
        hosts++;
    }
    return hosts;
}

void
host_describe(const struct host *host, char *text_p, size_t size)
{
    const char *name = host->machine->here ? "this machine" : host->machine->name;

    if (host->machine->here || host->address[0] == '\0' || strcmp(name, host->address) == 0) {
        snprintf(text_p, size, "%s", name);
    } else {
        snprintf(text_p, size, "%s (%s)", name, host->address);
    }
}

/* -------------------------------------------------------------------------------- addresses --- */

/* The address of an entry "INTERFACE ADDRESS". */
static const char *
address_of(const char *entry)
{
    const char *blank = strchr(entry, ' ');

    return blank != NULL ? blank + 1 : entry;
}

static bool
has_address(const struct host *host, const char *address)
{
    for (size_t i = 0; i < host->addresses.count; i++) {
        if (strcmp(address_of(host->addresses.list[i]), address) == 0) {
            return true;
        }
    }
    return false;
}

bool
host_interface(const struct host *host, char *name_p, size_t size)
{
    for (size_t i = 0; i < host->addresses.count; i++) {
        const char *entry = host->addresses.list[i];

        if (strcmp(address_of(entry), host->address) == 0 && strchr(entry, ' ') != NULL) {
            snprintf(name_p, size, "%.*s", (int)strcspn(entry, " "), entry);
            return true;
        }
    }
    return false;
}

/* Whether an address lies in "NETWORK/BITS". */
static bool
is_in_network(const char *address, const char *network)
{
    const char *slash = strchr(network, '/');
    uint8_t own[16];
    uint8_t wanted[16];
    char text[64];
    unsigned bits;
    int family;

    if (slash == NULL || (size_t)(slash - network) >= sizeof(text)) {
        return false;
    }
    snprintf(text, sizeof(text), "%.*s", (int)(slash - network), network);
    bits = (unsigned)strtoul(slash + 1, NULL, 10);
    family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;
    if (inet_pton(family, text, wanted) != 1 || inet_pton(family, address, own) != 1 ||
        bits > (family == AF_INET6 ? 128u : 32u)) {
        return false;
    }
    for (unsigned i = 0; i < bits; i++) {
        const unsigned mask = 0x80u >> (i % 8);

        if ((own[i / 8] & mask) != (wanted[i / 8] & mask)) {
            return false;
        }
    }
    return true;
}

/* An entry is "INTERFACE ADDRESS"; wanted an interface, a network or an address. */
static bool
matches(const char *entry, const char *wanted)
{
    const size_t bytes = strlen(wanted);

    if (strchr(wanted, '/') != NULL) {
        return is_in_network(address_of(entry), wanted);
    }
    return (strncmp(entry, wanted, bytes) == 0 && entry[bytes] == ' ') ||
           strcmp(address_of(entry), wanted) == 0;
}

static bool
is_usual_interface(const char *entry)
{
    static const char *const inner[] = {"docker", "virbr", "cni", "br-", "veth", "lxc", "podman"};

    for (size_t i = 0; i < sizeof(inner) / sizeof(inner[0]); i++) {
        if (strncmp(entry, inner[i], strlen(inner[i])) == 0) {
            return false;
        }
    }
    return !reach_is_loopback(address_of(entry));
}

static void
take_first(struct host *host, const char *wanted, char address_p[HOST_ADDRESS_BYTES])
{
    for (size_t i = 0; i < host->addresses.count; i++) {
        const char *entry = host->addresses.list[i];

        if (wanted != NULL ? matches(entry, wanted) : is_usual_interface(entry)) {
            snprintf(address_p, HOST_ADDRESS_BYTES, "%.63s", address_of(entry));
            return;
        }
    }
}

/* The candidates in their order: the first that the machine has and that others can use. */
static void
guess_address(struct host *host, const struct host *any)
{
    char routed[HOST_ADDRESS_BYTES] = "";
    const char *candidates[] = {host->machine->name, host->its_address, "", routed};

    if (host->machine->here && any != NULL) {
        candidates[2] = any->our_address;
        reach_source(any->its_address[0] != '\0' ? any->its_address : any->machine->name, routed);
    }
    for (size_t i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
        if (candidates[i][0] != '\0' && !reach_is_loopback(candidates[i]) &&
            has_address(host, candidates[i])) {
            snprintf(host->address, sizeof(host->address), "%.63s", candidates[i]);
            return;
        }
    }
    take_first(host, NULL, host->address);
}

/* What it has, too: a name that is almost right is found at a glance. */
static psd_status
fail_without(const struct host *host, const char *wanted, struct psd_error *err)
{
    char list[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < host->addresses.count && used < sizeof(list); i++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "",
                                 host->addresses.list[i]);
    }
    return psi_fail(err, PSD_ERR_IO, "%s has no address of interface or network %s; it has %s",
                    host->machine->name, wanted, list[0] != '\0' ? list : "none");
}

psd_status
host_choose_address(struct host *host, const char *wanted, const struct host *any, bool together,
                    struct psd_error *err)
{
    host->address[0] = '\0';
    if (wanted != NULL) {
        take_first(host, wanted, host->address);
        if (host->address[0] == '\0') {
            return fail_without(host, wanted, err);
        }
    } else if (host->advertised[0] != '\0') {
        if (!has_address(host, host->advertised)) {
            return psi_fail(
                err, PSD_ERR_IO,
                "%s (%s) is to be reached at %s (--advertise_addr), which is none of its own "
                "addresses: servers listen on the address that they tell others (in a container, "
                "use --network host or a network that all share)",
                host->machine->name, host->hostname, host->advertised);
        }
        snprintf(host->address, sizeof(host->address), "%s", host->advertised);
    } else if (host->machine->address[0] != '\0') {
        snprintf(host->address, sizeof(host->address), "%s", host->machine->address);
    } else if (any == NULL) {
        snprintf(host->address, sizeof(host->address), "127.0.0.1"); /* everybody is here */
    } else {
        guess_address(host, any);
        if (host->address[0] == '\0' && together) {
            snprintf(host->address, sizeof(host->address), "127.0.0.1");
        } else if (host->address[0] == '\0') {
            return psi_fail(err, PSD_ERR_IO,
                            "%s has no address that others could reach; name one as \"addr\" in "
                            "the cluster file, or give --interface",
                            host->machine->name);
        }
    }
    return PSD_OK;
}
