/*
 * loop.c - one epoll set: descriptors, timers, waking.
 *
 * What the kernel reports carries slot and generation, never a pointer: between the wait and the
 * dispatch another thread may have closed the connection, and its slot may serve another one.
 *
 * What a core asks of the world (connect, listen, lend) is in world/world.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/loop/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/loop/lookup.h"
#include "transport/loop/loop_state.h"
#include "transport/shm/bell.h"

enum {
    CONNS_DEFAULT = 4096,
    STRANGERS_DEFAULT = 256,
    STRANGERS_FROM_ONE_DEFAULT = 16,
    STRANGER_MS_DEFAULT = 5000,
    OTHER_SLOTS = 64, /* listeners and watched descriptors */
};

struct psi_env *
psi_loop_env(struct psi_loop *loop)
{
    return &loop->env;
}

/* ---- Slots: what the kernel's reports refer to ---- */

static bool
create_slots(struct psi_loop *loop, uint32_t count)
{
    loop->slots = calloc(count, sizeof(*loop->slots));
    if (loop->slots == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        loop->slots[i].next_free = i + 1;
    }
    loop->slot_count = count;
    return true;
}

static uint64_t
slot_id(const struct psi_loop *loop, uint32_t slot)
{
    return (uint64_t)loop->slots[slot].generation << 32 | slot;
}

static struct psi_source *
find_source(const struct psi_loop *loop, uint64_t id)
{
    const uint32_t slot = (uint32_t)id;

    psi_assert(slot < loop->slot_count);
    return slot_id(loop, slot) == id ? loop->slots[slot].source : NULL;
}

psd_status
psi_loop_add(struct psi_loop *loop, struct psi_source *source, uint32_t events,
             struct psd_error *err)
{
    if (source->fd >= 0) {
        const uint32_t slot = loop->free_slot;
        struct epoll_event event = {.events = events};

        if (slot == loop->slot_count) {
            return psi_fail(err, PSD_ERR_BUSY, "loop: all %u slots are taken", loop->slot_count);
        }
        event.data.u64 = slot_id(loop, slot);
        if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, source->fd, &event) != 0) {
            return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "loop: watch a descriptor");
        }
        loop->free_slot = loop->slots[slot].next_free;
        loop->slots[slot].source = source;
        source->slot = slot;
        source->events = events;
    }
    TAILQ_INSERT_TAIL(&loop->sources, source, link);
    return PSD_OK;
}

void
psi_loop_change(struct psi_loop *loop, struct psi_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events};
    int code;

    if (source->fd < 0 || source->events == events) {
        return;
    }
    event.data.u64 = slot_id(loop, source->slot);
    code = epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, source->fd, &event);
    psi_assert(code == 0);
    source->events = events;
}

psd_status
psi_loop_swap(struct psi_loop *loop, struct psi_source *source, int fd, uint32_t events,
              struct psd_error *err)
{
    struct epoll_event event = {.events = events, .data.u64 = slot_id(loop, source->slot)};

    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "loop: watch a descriptor");
    }
    (void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
    source->fd = fd;
    source->events = events;
    return PSD_OK;
}

void
psi_loop_retire(struct psi_loop *loop, struct psi_source *source)
{
    if (source->fd >= 0) {
        struct psi_slot *slot = &loop->slots[source->slot];

        (void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
        slot->source = NULL;
        slot->generation++;
        slot->next_free = loop->free_slot;
        loop->free_slot = source->slot;
    }
    TAILQ_REMOVE(&loop->sources, source, link);
    if (loop->dispatching) {
        TAILQ_INSERT_TAIL(&loop->retired, source, link);
    } else {
        free(source->object);
    }
}

static void
free_retired(struct psi_loop *loop)
{
    struct psi_source *source;

    while ((source = TAILQ_FIRST(&loop->retired)) != NULL) {
        TAILQ_REMOVE(&loop->retired, source, link);
        free(source->object);
    }
}

/* ---- Timers ---- */

void
psi_timer_disarm(struct psi_loop *loop, struct psi_timer *timer)
{
    if (timer->armed) {
        TAILQ_REMOVE(&loop->timers, timer, link);
        timer->armed = false;
    }
}

/* Deadlines are a few fixed distances from now, so a new one belongs near the end. */
void
psi_timer_arm(struct psi_loop *loop, struct psi_timer *timer, uint64_t at_ns)
{
    struct psi_timer *before;

    psi_timer_disarm(loop, timer);
    timer->at_ns = at_ns;
    timer->armed = true;
    before = TAILQ_LAST(&loop->timers, psi_timer_list);
    while (before != NULL && before->at_ns > at_ns) {
        before = TAILQ_PREV(before, psi_timer_list, link);
    }
    if (before == NULL) {
        TAILQ_INSERT_HEAD(&loop->timers, timer, link);
    } else {
        TAILQ_INSERT_AFTER(&loop->timers, before, timer, link);
    }
}

/* A timer armed meanwhile is later than now, so this ends. */
static void
fire_timers(struct psi_loop *loop)
{
    struct psi_timer *timer = TAILQ_FIRST(&loop->timers);
    uint64_t now;

    if (timer == NULL) {
        return;
    }
    now = psi_monotonic_ns();
    while (timer != NULL && timer->at_ns < now) {
        psi_timer_disarm(loop, timer);
        timer->fire(timer->object);
        timer = TAILQ_FIRST(&loop->timers);
    }
}

uint64_t
psi_loop_next_ns(const struct psi_loop *loop)
{
    const struct psi_timer *timer = TAILQ_FIRST(&loop->timers);

    return timer != NULL ? timer->at_ns : UINT64_MAX;
}

/* ---- Watched descriptors ---- */

struct watch {
    struct psi_source source;
    struct psi_loop *loop;
    void (*handler)(void *owner);
    void *owner;
};

static void
watch_ready(void *object, uint32_t events)
{
    const struct watch *watch = object;

    (void)events;
    watch->handler(watch->owner);
}

static void
watch_close(void *object)
{
    struct watch *watch = object;

    psi_loop_retire(watch->loop, &watch->source);
}

psd_status
psi_loop_watch(struct psi_loop *loop, int fd, void (*handler)(void *owner), void *owner,
               struct psd_error *err)
{
    struct watch *watch = malloc(sizeof(*watch));
    psd_status status;

    if (watch == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "loop: no %zu bytes", sizeof(*watch));
    }
    *watch = (struct watch){
        .source = {.ready = watch_ready, .close = watch_close, .object = watch, .fd = fd},
        .loop = loop,
        .handler = handler,
        .owner = owner,
    };
    status = psi_loop_add(loop, &watch->source, EPOLLIN, err);
    if (status != PSD_OK) {
        free(watch);
    }
    return status;
}

void
psi_loop_wake(struct psi_loop *loop)
{
    const int code = errno;
    const uint64_t one = 1;
    const ssize_t written = write(loop->wake_fd, &one, sizeof(one));

    (void)written; /* a full counter wakes just as well */
    errno = code;
}

static void
drain_wake(void *owner)
{
    const struct psi_loop *loop = owner;
    uint64_t count;
    const ssize_t got = read(loop->wake_fd, &count, sizeof(count));

    (void)got; /* another thread may have been first */
}

/* ---- Life ---- */

static uint32_t
or_default(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

static void
set_config(struct psi_loop *loop, const struct psi_loop_config *config)
{
    loop->config = *config;
    loop->config.conns_max = or_default(config->conns_max, CONNS_DEFAULT);
    loop->config.strangers_max = or_default(config->strangers_max, STRANGERS_DEFAULT);
    loop->config.strangers_from_one =
        or_default(config->strangers_from_one, STRANGERS_FROM_ONE_DEFAULT);
    loop->config.stranger_ms = or_default(config->stranger_ms, STRANGER_MS_DEFAULT);
    loop->config.auth_ms = or_default(config->auth_ms, PSI_AUTH_TIMEOUT_MS);
}

static void
close_fd(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

/* What peers on this host need of us. Without a meeting place they are served like any other. */
static psd_status
create_neighbourhood(struct psi_loop *loop, struct psd_error *err)
{
    loop->rings = calloc(loop->config.conns_max, sizeof(*loop->rings));
    if (loop->rings == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "loop: no memory for %u connections",
                        loop->config.conns_max);
    }
    if (loop->config.lends && psi_shm_meet_open(&loop->meet, NULL) != PSD_OK) {
        loop->config.lends = false;
    }
    return psi_segment_create(&loop->bell, sizeof(struct psi_bell), err);
}

psd_status
psi_loop_create(const struct psi_loop_config *config, struct psi_loop **loop_p,
                struct psd_error *err)
{
    struct psi_loop *loop = calloc(1, sizeof(*loop));
    psd_status status;

    if (loop == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "loop: no %zu bytes", sizeof(*loop));
    }
    loop->env.ops = &psi_world_ops;
    set_config(loop, config);
    TAILQ_INIT(&loop->sources);
    TAILQ_INIT(&loop->retired);
    TAILQ_INIT(&loop->timers);
    TAILQ_INIT(&loop->strangers);
    TAILQ_INIT(&loop->queued);
    TAILQ_INIT(&loop->corked_streams);
    loop->meet.fd = -1;
    loop->bell.fd = -1;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (loop->epoll_fd < 0 || loop->wake_fd < 0) {
        status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "loop: open its descriptors");
    } else if (!create_slots(loop, loop->config.conns_max + OTHER_SLOTS)) {
        status = psi_fail(err, PSD_ERR_NO_MEMORY, "loop: no memory for %u connections",
                          loop->config.conns_max);
    } else {
        status = psi_loop_watch(loop, loop->wake_fd, drain_wake, loop, err);
    }
    if (status == PSD_OK) {
        status = create_neighbourhood(loop, err);
    }
    if (status != PSD_OK) {
        psi_loop_destroy(loop);
        return status;
    }
    *loop_p = loop;
    return PSD_OK;
}

void
psi_loop_destroy(struct psi_loop *loop)
{
    struct psi_source *source;

    if (loop == NULL) {
        return;
    }
    psi_assert(!loop->dispatching);
    while ((source = TAILQ_FIRST(&loop->sources)) != NULL) {
        source->close(source->object);
    }
    psi_lookups_fini(loop);
    psi_loop_free_deferred(loop);
    psi_shm_meet_close(&loop->meet);
    psi_segment_destroy(&loop->bell);
    psi_lending_fini(&loop->lending);
    close_fd(loop->epoll_fd);
    close_fd(loop->wake_fd);
    close_fd(loop->spare_fd);
    free((void *)loop->rings);
    free(loop->copies);
    free(loop->slots);
    free(loop);
}

void
psi_loop_take_crew(struct psi_loop *loop, struct psi_crew *crew)
{
    loop->crew = crew;
}

int
psi_loop_fd(const struct psi_loop *loop)
{
    return loop->epoll_fd;
}

/* ---- Handling ---- */

/* Whoever is heard next must not come before frames that are heard already, but for their payloads. */
static void
hear_copies(struct psi_loop *loop)
{
    if (loop->hear_copies != NULL) {
        loop->hear_copies(loop);
    }
}

/* What is due anyway may begin together. */
static void
prepare(struct psi_loop *loop, const struct psi_loop_ready *ready)
{
    const uint64_t now_ns = psi_monotonic_ns();
    const struct psi_timer *timer;

    for (int i = 0; i < ready->count; i++) {
        const struct psi_source *source = find_source(loop, ready->event[i].id);

        if (source != NULL && source->prepare != NULL) {
            source->prepare(source->object, ready->event[i].events);
        }
    }
    TAILQ_FOREACH(timer, &loop->timers, link)
    {
        if (timer->at_ns >= now_ns) {
            break;
        }
        if (timer->prepare != NULL) {
            timer->prepare(timer->object);
        }
    }
}

void
psi_loop_dispatch(struct psi_loop *loop, const struct psi_loop_ready *ready)
{
    psi_assert(!loop->dispatching);
    loop->dispatching = true;
    if (loop->crew != NULL) {
        prepare(loop, ready);
    }
    for (int i = 0; i < ready->count; i++) {
        struct psi_source *source = find_source(loop, ready->event[i].id);

        if (source != NULL) {
            source->ready(source->object, ready->event[i].events);
            hear_copies(loop);
        }
    }
    psi_loop_hear_rings(loop);
    hear_copies(loop);
    fire_timers(loop);
    loop->dispatching = false;
    free_retired(loop);
    psi_loop_free_deferred(loop);
}

/* timeout_ms, or less if a timer is due before. */
static int
shorten(const struct psi_loop *loop, int timeout_ms)
{
    const uint64_t next = psi_loop_next_ns(loop);
    uint64_t now;
    uint64_t wait_ms;

    if (next == UINT64_MAX) {
        return timeout_ms;
    }
    now = psi_monotonic_ns();
    wait_ms = next <= now ? 0 : (next - now) / 1000000 + 1;
    if (timeout_ms >= 0 && wait_ms > (uint64_t)timeout_ms) {
        return timeout_ms;
    }
    return wait_ms > INT_MAX ? INT_MAX : (int)wait_ms;
}

psd_status
psi_loop_run_once(struct psi_loop *loop, int timeout_ms, struct psd_error *err)
{
    struct psi_loop_ready ready;
    const psd_status status = psi_loop_wait(loop, shorten(loop, timeout_ms), &ready, err);

    if (status == PSD_OK) {
        psi_loop_dispatch(loop, &ready);
    }
    return status;
}
