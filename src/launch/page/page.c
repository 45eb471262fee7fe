/*
 * page.c - the server behind the page: a listener, a daemon of libmicrohttpd without threads, and a
 * timer, all behind one descriptor that psd_run's loop waits for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/page.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "launch/page/guests.h"
#include "launch/page/mhd.h"
#include "launch/page/requests.h"
#include "launch/page/token.h"
#include "launch/system/close_fd.h"

enum {
    CONNECTION_BYTES = 32 << 10, /* for one request and what is sent at once */
    IDLE_S = 5,                  /* for a request to come */
    BACKLOG = 4096,   /* at the pace of guests.h, nobody in it waits for longer than 4.1 s */
    ACCEPTS_MAX = 64, /* in one turn: the job comes first; ... */
    GONE_MAX = 1024,  /* ... those who have hung up meanwhile cost little */
    RUNS_MAX = 16,    /* likewise */
    DEAF_MS = 1000,   /* without descriptors, until the next try ... */
    PACE_MS = 10,     /* ... and when too many come at once */
};

struct page {
    struct requests requests;
    struct guests guests;
    struct MHD_Daemon *daemon;
    char *certificate; /* owned, with the key: NULL without TLS */
    char *key;
    char host[64]; /* as it stands in an address */
    char name[64]; /* of this machine, where others reach it; "" on loopback */
    uint16_t port;
    int listener;
    int next; /* who has been accepted and waits for the pace; -1: nobody */
    int timer;
    int epoll; /* of the three others */
    uint64_t send_ms;
    uint64_t deaf_ms; /* until then nobody is let in: there are no descriptors; 0: now is fine */
};

/* ------------------------------------------------------------------------------- listening --- */

static psd_status
find_address(const char *address, uint16_t port, struct addrinfo **found_p, struct psd_error *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    char number[8];

    snprintf(number, sizeof(number), "%u", port);
    if (getaddrinfo(address, number, &hints, found_p) != 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--page_address %.64s: this is no address of this machine, like 10.0.0.7",
                        address);
    }
    return PSD_OK;
}

static bool
is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) {
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    }
    return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
}

static psd_status
listen_at(struct page *page, const struct addrinfo *place, struct psd_error *err)
{
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof(bound);
    const int yes = 1;

    page->listener =
        socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (page->listener >= 0) {
        setsockopt(page->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    }
    if (page->listener < 0 || bind(page->listener, place->ai_addr, place->ai_addrlen) != 0 ||
        listen(page->listener, BACKLOG) != 0 ||
        getsockname(page->listener, (struct sockaddr *)&bound, &bytes) != 0) {
        char port[8] = "";

        getnameinfo(place->ai_addr, place->ai_addrlen, NULL, 0, port, sizeof(port), NI_NUMERICSERV);
        return psi_fail_errno(err, PSD_ERR_IO,
                              "the job's page cannot listen at port %s of %s (--page chooses "
                              "another, or --page off)",
                              port, page->host);
    }
    page->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                   : ((struct sockaddr_in *)&bound)->sin_port);
    return PSD_OK;
}

static psd_status
open_listener(struct page *page, const struct page_args *args, struct psd_error *err)
{
    const char *address = args->address != NULL ? args->address : "127.0.0.1";
    struct addrinfo *place = NULL;
    psd_status status = find_address(address, args->port, &place, err);

    if (status != PSD_OK) {
        return status;
    }
    snprintf(page->host, sizeof(page->host), place->ai_family == AF_INET6 ? "[%.45s]" : "%.45s",
             address);
    if (!is_loopback(place->ai_addr) && page->certificate == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID,
                          "--page_address %.64s: others reach that address, so the page is served "
                          "there with TLS only: add --page_cert FILE and --page_key FILE, or leave "
                          "it on 127.0.0.1 and use ssh -L",
                          address);
    } else {
        if (!is_loopback(place->ai_addr) && gethostname(page->name, sizeof(page->name) - 1) != 0) {
            page->name[0] = '\0';
        }
        status = listen_at(page, place, err);
    }
    freeaddrinfo(place);
    return status;
}

/* --------------------------------------------------------------------------------- daemon --- */

static psd_status
open_daemon(struct page *page, struct psd_error *err)
{
    const unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
                           (page->certificate != NULL ? MHD_USE_TLS : 0);
    const struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, page->certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, page->key},
        {MHD_OPTION_END, 0, NULL},
    };

    page->daemon = mhd.start_daemon(
        flags, 0, NULL, NULL, requests_answer, &page->requests, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)PAGE_CLIENTS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_NOTIFY_CONNECTION,
        guests_notice, &page->guests, MHD_OPTION_ARRAY, page->certificate != NULL ? tls : tls + 2,
        MHD_OPTION_END);
    if (page->daemon == NULL) {
        return psi_fail(err, page->certificate != NULL ? PSD_ERR_INVALID : PSD_ERR_IO,
                        page->certificate != NULL
                            ? "the job's page cannot be served: --page_cert and --page_key are no "
                              "certificate in PEM and its key"
                            : "the job's page cannot be served: libmicrohttpd does not start");
    }
    return PSD_OK;
}

static bool
watch(struct page *page, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return epoll_ctl(page->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static psd_status
open_epoll(struct page *page, struct psd_error *err)
{
    const union MHD_DaemonInfo *info = mhd.get_daemon_info(page->daemon, MHD_DAEMON_INFO_EPOLL_FD);

    page->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    page->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (info == NULL || page->timer < 0 || page->epoll < 0 || !watch(page, info->epoll_fd) ||
        !watch(page, page->timer) || !watch(page, page->listener)) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "the job's page cannot be served");
    }
    return PSD_OK;
}

psd_status
page_open(const struct page_args *args, struct page **page_p, struct psd_error *err)
{
    struct page *page = calloc(1, sizeof(*page));
    char token[GATE_SECRET_CHARS + 1];
    psd_status status;

    if (page == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for the job's page");
    }
    page->listener = page->next = page->timer = page->epoll = -1;
    /* What is wrong is wrong on machines without the library, too. */
    status = PSD_OK;
    if (args->certificate != NULL || args->key != NULL) {
        status = token_read_pem(args->certificate, args->key, &page->certificate, &page->key, err);
    }
    if (status == PSD_OK) {
        status = open_listener(page, args, err);
    }
    if (status == PSD_OK) {
        status = token_get(args->token_file, token, err);
    }
    if (status == PSD_OK) {
        gate_init(&page->requests.gate, token, page->host, page->name, page->certificate);
        page->requests.port = page->port;
        page->requests.guests = &page->guests;
        status = mhd_load(err);
    }
    if (status == PSD_OK) {
        status = open_daemon(page, err);
    }
    if (status == PSD_OK) {
        status = open_epoll(page, err);
    }
    if (status != PSD_OK) {
        page_close(page);
        return status;
    }
    *page_p = page;
    return PSD_OK;
}

void
page_close(struct page *page)
{
    if (page == NULL) {
        return;
    }
    if (page->daemon != NULL) {
        streams_drop(&page->requests.streams);
        mhd.run(page->daemon);
        mhd.stop_daemon(page->daemon);
    }
    close_fd(&page->listener);
    close_fd(&page->next);
    close_fd(&page->timer);
    close_fd(&page->epoll);
    if (page->key != NULL) {
        explicit_bzero(page->key, strlen(page->key));
    }
    free(page->certificate);
    free(page->key);
    gate_fini(&page->requests.gate);
    explicit_bzero(page, sizeof(*page));
    free(page);
}

/* ------------------------------------------------------------------------------------ turn --- */

/* Too many who have shown the secret are here already: the next ones are told so, and cost nothing. */
static void
turn_away(int fd)
{
    static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n"
                               "Connection: close\r\n\r\n";

    (void)!send(fd, busy, sizeof(busy) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static bool
has_room(const struct page *page)
{
    const union MHD_DaemonInfo *info =
        mhd.get_daemon_info(page->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);

    return info != NULL && info->num_connections < PAGE_CLIENTS_MAX;
}

/* Without TLS there is no handshake that would cost anything. */
static bool
may_begin(struct page *page, const struct sockaddr *address)
{
    return page->certificate == NULL || guests_may_try(&page->guests, address);
}

/* Strangers make room: who comes may be the owner. */
static bool
find_room(struct page *page)
{
    if (!has_room(page) && guests_make_room(&page->guests)) {
        mhd.run(page->daemon);
    }
    return has_room(page);
}

/* A listener that somebody waits at is readable all the time: without descriptors for him, psd_run would
 * do nothing but look. */
static void
turn_deaf(struct page *page, uint64_t until_ms)
{
    epoll_ctl(page->epoll, EPOLL_CTL_DEL, page->listener, NULL);
    page->deaf_ms = until_ms;
}

static bool
has_hung_up(int fd)
{
    char byte;
    const ssize_t said = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return said == 0 || (said < 0 && errno != EAGAIN && errno != EINTR);
}

/* It may wait for an answer, which it gets if there is time for it. */
static bool
will_say_no_more(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLRDHUP};

    return poll(&look, 1, 0) == 1;
}

/* The next one who is still there, or -1. A neighbour who opens and closes connections as fast as he can
 * fills the kernel's queue with those that he has closed, and what comes to a full queue is dropped: they
 * leave it at once, without waiting for the pace. */
static int
accept_next(struct page *page, uint64_t now_ms, int *gone)
{
    int fd = page->next;

    page->next = -1;
    while (fd < 0 || has_hung_up(fd)) {
        if (fd >= 0) {
            close(fd);
            (*gone)++;
        }
        if (*gone >= GONE_MAX) {
            turn_deaf(page, now_ms + PACE_MS);
            return -1;
        }
        fd = accept4(page->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
                turn_deaf(page, now_ms + DEAF_MS);
            }
            return -1;
        }
    }
    return fd;
}

/* Takes fd. */
static void
let_in(struct page *page, int fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);

    if (getpeername(fd, (struct sockaddr *)&address, &bytes) != 0 ||
        !may_begin(page, (struct sockaddr *)&address)) {
        close(fd);
    } else if (find_room(page)) {
        mhd.add_connection(page->daemon, fd, (struct sockaddr *)&address, bytes);
    } else {
        turn_away(fd);
    }
}

static void
accept_some(struct page *page, uint64_t now_ms)
{
    int gone = 0;

    if (now_ms < page->deaf_ms) {
        return;
    }
    if (page->deaf_ms != 0) {
        page->deaf_ms = 0;
        watch(page, page->listener);
    }
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        const int fd = accept_next(page, now_ms, &gone);

        if (fd < 0) {
            return;
        }
        if (guests_may_come(&page->guests)) {
            let_in(page, fd);
        } else if (will_say_no_more(fd)) {
            close(fd);
            gone++;
        } else {
            page->next = fd;
            turn_deaf(page, now_ms + PACE_MS);
            return;
        }
    }
}

static void
send_news(struct page *page, uint64_t now_ms)
{
    char *json;

    if (page->requests.streams.count == 0 || now_ms < page->send_ms) {
        return;
    }
    page->send_ms = now_ms + PAGE_EVERY_MS;
    json = requests_snapshot(&page->requests, false);
    if (json != NULL) {
        streams_send(&page->requests.streams, "snapshot", json);
    }
    free(json);
}

/* How long the daemon may be left alone, in ms; 0: not at all. */
static uint64_t
daemon_ms(struct page *page)
{
    MHD_UNSIGNED_LONG_LONG ms;

    return mhd.get_timeout(page->daemon, &ms) == MHD_YES ? ms : UINT64_MAX;
}

static void
arm(struct page *page, uint64_t now_ms)
{
    const bool open = page->requests.streams.count > 0;
    uint64_t ms = daemon_ms(page);
    struct itimerspec when = {0};

    if (open) {
        const uint64_t left_ms = page->send_ms > now_ms ? page->send_ms - now_ms : 1;

        ms = left_ms < ms ? left_ms : ms;
    }
    if (page->deaf_ms != 0) {
        const uint64_t left_ms = page->deaf_ms > now_ms ? page->deaf_ms - now_ms : 1;

        ms = left_ms < ms ? left_ms : ms;
    }
    if (ms != UINT64_MAX) {
        ms = ms == 0 ? 1 : ms;
        when.it_value.tv_sec = (time_t)(ms / 1000);
        when.it_value.tv_nsec = (long)(ms % 1000) * 1000000;
    }
    timerfd_settime(page->timer, 0, &when, NULL);
}

void
page_turn(struct page *page)
{
    const uint64_t now_ms = psi_monotonic_ms();
    uint64_t expired;

    (void)!read(page->timer, &expired, sizeof(expired));
    guests_hurry(&page->guests, now_ms);
    accept_some(page, now_ms);
    send_news(page, now_ms);
    for (int i = 0; i < RUNS_MAX; i++) {
        mhd.run(page->daemon);
        if (daemon_ms(page) > 0) {
            break;
        }
    }
    arm(page, now_ms);
}

void
page_end(struct page *page)
{
    const uint64_t until_ms = psi_monotonic_ms() + PAGE_END_MS;
    char *json;

    if (page->requests.streams.count == 0) {
        return;
    }
    json = requests_snapshot(&page->requests, true);
    if (json != NULL) {
        streams_send(&page->requests.streams, "end", json);
    }
    free(json);
    streams_end(&page->requests.streams);
    page->send_ms = UINT64_MAX; /* no more news */
    for (;;) {
        const uint64_t now_ms = psi_monotonic_ms();

        page_turn(page);
        if (page->requests.streams.count == 0 || now_ms >= until_ms) {
            break;
        }
        poll(&(struct pollfd){.fd = page->epoll, .events = POLLIN}, 1, (int)(until_ms - now_ms));
    }
    page->send_ms = 0;
}

/* ------------------------------------------------------------------------------------- rest --- */

void
page_show(struct page *page, const struct page_source *source)
{
    page->requests.source = source != NULL ? *source : (struct page_source){0};
}

int
page_fd(const struct page *page)
{
    return page->epoll;
}

uint16_t
page_port(const struct page *page)
{
    return page->port;
}

void
page_address(const struct page *page, char address_p[PAGE_ADDRESS_BYTES])
{
    snprintf(address_p, PAGE_ADDRESS_BYTES, "%s://%s:%u/?token=%s",
             page->requests.gate.tls ? "https" : "http", page->host, page->port,
             page->requests.gate.token);
}
