/*
 * inproc.c - two ends inside one process, on the same loop or on two.
 *
 * connect() makes a socket pair and hands one end to the listener through a pipe: descriptors are
 * plain numbers inside a process, so four bytes do it, and the listening loop simply finds its pipe
 * readable. The kernel bounds both the pipe and the sockets.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/stream/listener.h"
#include "transport/stream/stream.h"

struct name {
    char text[PSI_ADDRESS_BYTES];
    int read_fd; /* what the listening loop watches; names the listener */
    int write_fd;
    LIST_ENTRY(name) link;
};

/*
 * Who listens in this process: the one thing here that belongs to no loop.
 *
 * Thread: guarded by lock, which is held for a few system calls that cannot block.
 */
static struct {
    pthread_mutex_t lock;
    LIST_HEAD(, name) names;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct name *
find_name_locked(const char *text)
{
    struct name *name;

    LIST_FOREACH(name, &registry.names, link)
    {
        if (strcmp(name->text, text) == 0) {
            break;
        }
    }
    return name;
}

/* Gives fd to whoever listens at address. */
static psd_status
hand_over(const struct psi_address *address, int fd, struct psd_error *err)
{
    const struct name *name;
    psd_status status = PSD_OK;

    pthread_mutex_lock(&registry.lock);
    name = find_name_locked(address->host);
    if (name == NULL) {
        status =
            psi_fail(err, PSD_ERR_PEER_LOST, "connect inproc://%s: nobody listens", address->host);
    } else if (write(name->write_fd, &fd, sizeof(fd)) != sizeof(fd)) {
        status = psi_fail_errno(err, PSD_ERR_PEER_LOST, "connect inproc://%s", address->host);
    }
    pthread_mutex_unlock(&registry.lock);
    return status;
}

static psd_status
inproc_connect(const struct psi_address *address, int *fd_p, struct psd_error *err)
{
    int ends[2];
    psd_status status;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "open a socket pair");
    }
    status = hand_over(address, ends[1], err);
    if (status != PSD_OK) {
        close(ends[0]);
        close(ends[1]);
        return status;
    }
    *fd_p = ends[0];
    return PSD_OK;
}

static psd_status
inproc_connected(int fd, const char *peer, struct psd_error *err)
{
    (void)fd;
    (void)peer;
    (void)err;
    return PSD_OK;
}

static psd_status
enter_name(struct name *name, struct psd_error *err)
{
    psd_status status = PSD_OK;

    pthread_mutex_lock(&registry.lock);
    if (find_name_locked(name->text) != NULL) {
        status = psi_fail(err, PSD_ERR_BUSY, "listen on inproc://%s: name is taken", name->text);
    } else {
        LIST_INSERT_HEAD(&registry.names, name, link);
    }
    pthread_mutex_unlock(&registry.lock);
    return status;
}

static psd_status
inproc_listen(const struct psi_address *address, int *fd_p, char bound_p[PSI_ADDRESS_BYTES],
              struct psd_error *err)
{
    struct name *name = calloc(1, sizeof(*name));
    int ends[2];
    psd_status status;

    if (name == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "listen on inproc://%s: no memory", address->host);
    }
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) {
        status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "open a pipe");
        goto err_free_name;
    }
    psi_assert(strlen(address->host) < sizeof(name->text));
    memcpy(name->text, address->host, strlen(address->host) + 1);
    name->read_fd = ends[0];
    name->write_fd = ends[1];
    status = enter_name(name, err);
    if (status != PSD_OK) {
        goto err_close_pipe;
    }
    (void)psi_address_format(address, bound_p, NULL);
    *fd_p = name->read_fd;
    return PSD_OK;

err_close_pipe:
    close(ends[0]);
    close(ends[1]);
err_free_name:
    free(name);
    return status;
}

static int
inproc_accept(int listen_fd, char peer_p[PSI_ADDRESS_BYTES])
{
    int fd;

    if (read(listen_fd, &fd, sizeof(fd)) != sizeof(fd)) {
        return -1;
    }
    memcpy(peer_p, "inproc://peer", sizeof("inproc://peer"));
    return fd;
}

static bool
inproc_loopback(int fd)
{
    (void)fd;
    return true;
}

static void
inproc_ends(int fd, bool connecting, char ends_p[PSI_ENDS_BYTES])
{
    (void)fd;
    (void)connecting;
    ends_p[0] = '\0';
}

static void
inproc_unlisten(int listen_fd)
{
    struct name *name;
    int fd;

    pthread_mutex_lock(&registry.lock);
    LIST_FOREACH(name, &registry.names, link)
    {
        if (name->read_fd == listen_fd) {
            break;
        }
    }
    psi_assert(name != NULL);
    LIST_REMOVE(name, link);
    pthread_mutex_unlock(&registry.lock);

    close(name->write_fd);
    while (read(listen_fd, &fd, sizeof(fd)) == sizeof(fd)) {
        close(fd); /* connected, and never accepted */
    }
    close(listen_fd);
    free(name);
}

const struct psi_sockets psi_sockets_inproc = {
    .connect = inproc_connect,
    .connected = inproc_connected,
    .listen = inproc_listen,
    .accept = inproc_accept,
    .unlisten = inproc_unlisten,
    .loopback = inproc_loopback,
    .ends = inproc_ends,
};

const struct psi_transport psi_transport_inproc = PSI_STREAM_TRANSPORT(&psi_sockets_inproc);
