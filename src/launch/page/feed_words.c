/*
 * feed_words.c - who is waited for, in one sentence.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "launch/page/feed_state.h"

enum {
    WORTH_SAYING = 15, /* per cent of a step */
};

/* Of the time of servers: what it sleeps more than this has little to do. */
static const double idle_share = 0.6;

/* Of a machine: so many processes for a core that they wait for it. */
static const double crowd_share = 1.5;

static unsigned
per_cent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (unsigned)((100 * part + whole / 2) / whole) : 0;
}

/* "worker 3 on node7" */
static void
name_member(const struct feed_member *member, const char *role, uint32_t index, char *text_p,
            size_t size)
{
    if (member->host[0] != '\0') {
        snprintf(text_p, size, "%s %u on %s", role, index, member->host);
    } else {
        snprintf(text_p, size, "%s %u", role, index);
    }
}

static const char *
the_others(const struct feed *feed)
{
    return feed->workers == 2 ? "the other" : "everybody";
}

/* It was not slow at computing if most of the time it had not even begun. */
static void
say_why(const struct waits_sum *sum, char *text_p, size_t size)
{
    if (2 * sum->late_us > sum->worker_us) {
        snprintf(text_p, size,
                 "which went on late: it was stopped, had no core, or its values came late");
    } else {
        snprintf(text_p, size, "which computed %.1fx as long as the median", (double)sum->ratio);
    }
}

static void
say_worker(const struct feed *feed, const struct waits_sum *sum, char *text_p, size_t size)
{
    char name[FEED_HOST_BYTES + 32];
    char why[96];

    name_member(&feed->members[1 + feed->servers + sum->worker], "worker", sum->worker, name,
                sizeof(name));
    say_why(sum, why, sizeof(why));
    snprintf(text_p, size, "step %llu: %u %% of the time %s waited for %s, %s",
             (unsigned long long)sum->step, per_cent(sum->worker_us, sum->total_us),
             the_others(feed), name, why);
}

/* The lane that has most to do says whether it is the server, or the way there. False: none has told
 * twice, and nobody knows. */
static bool
look_at_server(const struct feed_member *member, double *asleep_p, double *in_bytes_s_p)
{
    bool known = false;

    *asleep_p = 1;
    *in_bytes_s_p = 0;
    for (uint32_t lane = 0; lane < member->count; lane++) {
        const struct feed_counts *counts = &member->counts[lane];

        if (counts->has_rates) {
            known = true;
            *asleep_p = counts->asleep < *asleep_p ? counts->asleep : *asleep_p;
            *in_bytes_s_p += counts->in_bytes_s;
        }
    }
    return known;
}

/* Is it one of them that is waited for most of the time, and worth its name? */
static bool
is_one_server(const struct feed *feed, const struct waits_sum *sum)
{
    return sum->server < feed->servers && sum->server_stands_out &&
           2 * sum->named_us > sum->waited_us &&
           per_cent(sum->named_us, sum->total_us) >= WORTH_SAYING;
}

/* Between processes of one machine there is no link. */
static bool
has_link(const struct feed *feed, const struct feed_member *server)
{
    for (uint32_t slot = 1 + feed->servers; slot < feed->slots; slot++) {
        if (feed->members[slot].known && strcmp(feed->members[slot].host, server->host) != 0) {
            return true;
        }
    }
    return false;
}

bool
feed_is_crowded(const struct feed *feed)
{
    return feed->load_cores > 0 && feed->load > crowd_share * feed->load_cores;
}

static bool
is_crowded(const struct feed *feed, const struct feed_member *member)
{
    return member->host[0] != '\0' && strcmp(member->host, feed->load_host) == 0 &&
           feed_is_crowded(feed);
}

/* A lane that has something to do and no core does not run either: only its machine shows the
 * difference. */
static void
say_what_server_did(const struct feed *feed, const struct feed_member *member, char *text_p,
                    size_t size)
{
    double in_bytes_s;
    double asleep;

    if (!look_at_server(member, &asleep, &in_bytes_s)) {
        return;
    }
    if (asleep < idle_share) {
        snprintf(text_p, size, ", which was busy %.0f %% of it", 100 * (1 - asleep));
    } else if (is_crowded(feed, member)) {
        snprintf(text_p, size,
                 ", which ran %.0f %% of it: %.0f processes want to run on the %u core%s there",
                 100 * (1 - asleep), feed->load, feed->load_cores,
                 feed->load_cores == 1 ? "" : "s");
    } else if (has_link(feed, member)) {
        snprintf(text_p, size, ", which slept %.0f %% of it: its link brought %.1f MB/s",
                 100 * asleep, in_bytes_s / 1e6);
    } else {
        snprintf(text_p, size, ", which ran %.0f %% of it", 100 * (1 - asleep));
    }
}

/* The machine's load explains it where all workers are on it. */
static bool
are_crowded(const struct feed *feed)
{
    for (uint32_t slot = 1 + feed->servers; slot < feed->slots; slot++) {
        if (!is_crowded(feed, &feed->members[slot])) {
            return false;
        }
    }
    return true;
}

/* ": 17 processes want to run on the 2 cores there"; "" where they have their cores. */
static void
say_crowd(const struct feed *feed, char *text_p, size_t size)
{
    text_p[0] = '\0';
    if (are_crowded(feed)) {
        snprintf(text_p, size, ": %.0f processes want to run on the %u core%s there", feed->load,
                 feed->load_cores, feed->load_cores == 1 ? "" : "s");
    }
}

static void
say_server(const struct feed *feed, const struct waits_sum *sum, char *text_p, size_t size)
{
    const struct feed_member *member;
    char name[FEED_HOST_BYTES + 32];
    char why[96];
    int used;

    if (!is_one_server(feed, sum)) {
        say_crowd(feed, why, sizeof(why));
        snprintf(text_p, size, "step %llu: %u %% of the time everybody waited for the servers%s",
                 (unsigned long long)sum->step, per_cent(sum->server_us, sum->total_us), why);
        return;
    }
    member = &feed->members[1 + sum->server];
    name_member(member, "server", sum->server, name, sizeof(name));
    used = snprintf(text_p, size, "step %llu: %u %% of the time everybody waited for %s",
                    (unsigned long long)sum->step, per_cent(sum->named_us, sum->total_us), name);
    if (used >= 0 && (size_t)used < size) {
        say_what_server_did(feed, member, text_p + used, size - (size_t)used);
    }
}

static void
say_one_another(const struct feed *feed, const struct waits_sum *sum, char *text_p, size_t size)
{
    char why[96];

    say_crowd(feed, why, sizeof(why));
    snprintf(text_p, size,
             "step %llu: %u %% of the time workers waited for one another, and none of them stands "
             "out%s",
             (unsigned long long)sum->step, per_cent(sum->workers_us, sum->total_us), why);
}

enum waited { WAITED_NOBODY, WAITED_WORKER, WAITED_ONE_ANOTHER, WAITED_SERVER };

static enum waited
who(const struct feed *feed, const struct waits_sum *sum)
{
    const unsigned worker = per_cent(sum->worker_us, sum->total_us);
    const unsigned workers = per_cent(sum->workers_us, sum->total_us);
    const unsigned server = per_cent(sum->server_us, sum->total_us);

    if (sum->worker < feed->workers && sum->worker_stands_out && worker >= WORTH_SAYING &&
        worker >= server) {
        return WAITED_WORKER;
    }
    if (workers >= WORTH_SAYING && workers >= server) {
        return WAITED_ONE_ANOTHER;
    }
    return server >= WORTH_SAYING ? WAITED_SERVER : WAITED_NOBODY;
}

bool
feed_waited_for(const struct feed *feed, psd_role *role_p, uint32_t *index_p, double *share_p)
{
    const struct waits_sum sum = waits_sum(&feed->waits, feed->servers);
    const enum waited waited = sum.rows >= WAITS_LOOK_MIN ? who(feed, &sum) : WAITED_NOBODY;

    if (waited == WAITED_WORKER) {
        *role_p = PSD_ROLE_WORKER;
        *index_p = sum.worker;
        *share_p = (double)sum.worker_us / (double)sum.total_us;
        return true;
    }
    if (waited == WAITED_SERVER && is_one_server(feed, &sum)) {
        *role_p = PSD_ROLE_SERVER;
        *index_p = sum.server;
        *share_p = (double)sum.named_us / (double)sum.total_us;
        return true;
    }
    return false;
}

void
feed_say(const struct feed *feed, char *text_p, size_t size)
{
    const struct waits_sum sum = waits_sum(&feed->waits, feed->servers);

    text_p[0] = '\0';
    if (sum.rows < WAITS_LOOK_MIN) {
        return;
    }
    switch (who(feed, &sum)) {
    case WAITED_WORKER:
        say_worker(feed, &sum, text_p, size);
        break;
    case WAITED_ONE_ANOTHER:
        say_one_another(feed, &sum, text_p, size);
        break;
    case WAITED_SERVER:
        say_server(feed, &sum, text_p, size);
        break;
    case WAITED_NOBODY:
        snprintf(text_p, size, "step %llu: nobody waits long: %u %% of the time is computing",
                 (unsigned long long)sum.step, per_cent(sum.compute_us, sum.total_us));
        break;
    }
}

/* ---- the whole job ------------------------------------------------------------------------- */

enum { NAMED_MAX = 3, WORTH_ADDING = 5 /* per cent of all steps */ };

struct share {
    uint32_t slot; /* of the member */
    uint64_t us;
};

/* The longest first. What falls out of its place goes to the next. */
static void
rank_share(struct share named[NAMED_MAX], struct share share)
{
    for (unsigned i = 0; i < NAMED_MAX; i++) {
        if (share.us > named[i].us) {
            const struct share next = named[i];

            named[i] = share;
            share = next;
        }
    }
}

static void
find_shares(const struct feed *feed, struct share named[NAMED_MAX])
{
    const struct waits_whole *whole = &feed->waits.whole;

    for (uint32_t server = 0; server < feed->servers && server < PSI_SERVERS_MAX; server++) {
        rank_share(named, (struct share){.slot = 1 + server, .us = whole->server_us[server]});
    }
    for (uint32_t rank = 0; rank < feed->workers && rank < feed->waits.workers; rank++) {
        rank_share(named,
                   (struct share){.slot = 1 + feed->servers + rank, .us = whole->worker_us[rank]});
    }
}

void
feed_say_whole(const struct feed *feed, char *text_p, size_t size)
{
    const struct waits_whole *whole = &feed->waits.whole;
    struct share named[NAMED_MAX] = {0};
    char name[FEED_HOST_BYTES + 32];
    size_t used;

    text_p[0] = '\0';
    if (whole->steps < WAITS_LOOK_MIN || whole->total_us == 0) {
        return;
    }
    find_shares(feed, named);
    used = (size_t)snprintf(text_p, size, "over %llu steps: %u %% of the time was computing",
                            (unsigned long long)whole->steps,
                            per_cent(whole->compute_us, whole->total_us));
    for (unsigned i = 0; i < NAMED_MAX && used < size; i++) {
        const unsigned share = per_cent(named[i].us, whole->total_us);
        const bool is_server = named[i].slot <= feed->servers;

        if (share < WORTH_ADDING) {
            break;
        }
        name_member(&feed->members[named[i].slot], is_server ? "server" : "worker",
                    is_server ? named[i].slot - 1 : named[i].slot - 1 - feed->servers, name,
                    sizeof(name));
        used += (size_t)snprintf(text_p + used, size - used, ", %u %% waiting for %s", share, name);
    }
}

/* Is it by more than chance that this one was waited for longest? */
static bool
stood_out(const struct feed *feed, const struct share *share)
{
    const struct waits_whole *whole = &feed->waits.whole;

    return share->slot <= feed->servers
               ? blame_stands_out(&whole->servers, share->us, feed->servers)
               : blame_stands_out(&whole->workers, share->us, feed->workers);
}

void
feed_say_verdict(const struct feed *feed, char *text_p, size_t size)
{
    const struct waits_whole *whole = &feed->waits.whole;
    struct share named[NAMED_MAX] = {0};
    char name[FEED_HOST_BYTES + 32];
    unsigned share;
    bool is_server;

    text_p[0] = '\0';
    if (whole->steps < WAITS_LOOK_MIN || whole->total_us == 0) {
        return;
    }
    find_shares(feed, named);
    share = per_cent(named[0].us, whole->total_us);
    if (share < WORTH_SAYING || !stood_out(feed, &named[0])) {
        return;
    }
    is_server = named[0].slot <= feed->servers;
    name_member(&feed->members[named[0].slot], is_server ? "server" : "worker",
                is_server ? named[0].slot - 1 : named[0].slot - 1 - feed->servers, name,
                sizeof(name));
    snprintf(text_p, size, "over all %llu steps, %u %% of the time %s waited for %s",
             (unsigned long long)whole->steps, share, is_server ? "everybody" : the_others(feed),
             name);
}

void
feed_sentence(struct feed *feed, char *text_p, size_t size)
{
    pthread_mutex_lock(&feed->lock);
    feed_say(feed, text_p, size);
    pthread_mutex_unlock(&feed->lock);
}

void
feed_waiting(struct feed *feed, char *text_p, size_t size)
{
    struct waits_sum sum;

    text_p[0] = '\0';
    pthread_mutex_lock(&feed->lock);
    sum = waits_sum(&feed->waits, feed->servers);
    pthread_mutex_unlock(&feed->lock);
    if (sum.rows < WAITS_LOOK_MIN) {
        return;
    }
    switch (who(feed, &sum)) {
    case WAITED_WORKER:
        snprintf(text_p, size, "waiting for worker %u (%u %%)", sum.worker,
                 per_cent(sum.worker_us, sum.total_us));
        break;
    case WAITED_ONE_ANOTHER:
        snprintf(text_p, size, "workers wait for one another (%u %%)",
                 per_cent(sum.workers_us, sum.total_us));
        break;
    case WAITED_SERVER:
        if (is_one_server(feed, &sum)) {
            snprintf(text_p, size, "waiting for server %u (%u %%)", sum.server,
                     per_cent(sum.named_us, sum.total_us));
        } else {
            snprintf(text_p, size, "waiting for the servers (%u %%)",
                     per_cent(sum.server_us, sum.total_us));
        }
        break;
    case WAITED_NOBODY:
        break;
    }
}
