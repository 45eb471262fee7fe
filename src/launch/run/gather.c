/*
 * gather.c - brings the machines of a job in.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/gather.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "launch/run/host_setup.h"

enum {
    CALLS_MAX = 16,   /* logins at the same time */
    TRIES_MAX = 6,    /* of one machine whose sshd has too many at once */
    RETRY_MS = 300,   /* after the first try; twice as long after each other */
    OTHERS_MS = 2000, /* for other machines to fail, too: their problems are told together */
};

/* ---------------------------------------------------------------------------------- logins --- */

static uint32_t
count_state(const struct gather *gather, enum host_state state)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < gather->host_count; i++) {
        count += gather->hosts[i].state == state;
    }
    return count;
}

static psd_status
call_machines(struct gather *gather, uint64_t now_ms,
              void (*new_call)(void *context, struct host *host), void *context, uint32_t *host_p,
              struct psd_error *err)
{
    for (uint32_t i = 0; i < gather->host_count; i++) {
        struct host *host = &gather->hosts[i];
        psd_status status;

        if (host->state != HOST_AWAY || host->retry_ms > now_ms) {
            continue;
        }
        if (count_state(gather, HOST_CALLING) >= CALLS_MAX) {
            return PSD_OK;
        }
        status = host_call(host, err);
        if (status != PSD_OK) {
            *host_p = i;
            return status;
        }
        host->heard_ms = now_ms;
        new_call(context, host);
    }
    return PSD_OK;
}

void
gather_refuse(struct gather *gather, struct host *host, const char *why, uint64_t now_ms)
{
    gather->failed_ms = gather->failed_ms != 0 ? gather->failed_ms : now_ms;
    words_add(&host->problems, why);
}

psd_status
gather_closed(struct gather *gather, struct host *host, uint64_t now_ms, struct psd_error *err)
{
    const bool greeted = host->state != HOST_CALLING;
    char noise[HOST_STDERR_BYTES];
    char why[900];

    link_noise(&host->link, noise, sizeof(noise));
    host_close(host);
    if (!greeted && remote_shell_may_try_again(&host->shell, host->stderr_tail) &&
        host->tries < TRIES_MAX) {
        host->state = HOST_AWAY;
        host->retry_ms = now_ms + ((uint64_t)RETRY_MS << (host->tries - 1));
        return PSD_OK;
    }
    host->state = HOST_GONE;
    if (host->machine->here) {
        return psi_fail(err, PSD_ERR_IO,
                        "psd_run's helper process on this machine (psd_agent) was killed");
    }
    if (host->machine->joined) {
        return psi_fail(err, PSD_ERR_IO, "%s left before the job began", host->machine->name);
    }
    remote_shell_explain(&host->shell, host->stderr_tail, noise, host->status, why, sizeof(why));
    gather_refuse(gather, host, why, now_ms);
    return PSD_OK;
}

/* Whether the problems that are known are all that are worth waiting for. */
static bool
knows_failures(const struct gather *gather, uint64_t now_ms)
{
    return count_state(gather, HOST_CALLING) + count_state(gather, HOST_AWAY) == 0 ||
           now_ms >= gather->failed_ms + OTHERS_MS;
}

/* ------------------------------------------------------------------------------------ sync --- */

/* Offers the files to those that have said hello, and sends them to those that want them. */
static void
fill_machines(struct gather *gather)
{
    for (uint32_t i = 0; i < gather->host_count; i++) {
        struct host *host = &gather->hosts[i];

        if (host->state == HOST_MET && (gather->sync == NULL || host->machine->here)) {
            host->state = HOST_FILLED;
        } else if (host->state == HOST_MET) {
            struct words words = {0};

            words_add(&words, gather->sync->directory);
            words_add(&words, gather->sync->digest);
            link_send_words(&host->link, LINK_SYNC, 0, 0, &words);
            words_fini(&words);
            host->state = HOST_ASKED;
        } else if (host->state == HOST_FILLING) {
            sync_send(gather->sync, &host->link, &host->sent, host->wanted);
        }
    }
}

static void
take_synced(struct host *host, int32_t wanted, const struct words *problems)
{
    host->state = wanted > 0 ? HOST_FILLING : HOST_FILLED;
    host->wanted += wanted > 0 ? (size_t)wanted : 0;
    words_add_all(&host->problems, problems);
}

/* ----------------------------------------------------------------------------------- reach --- */

/* Every machine tries those that have a master or a server. */
static void
send_reach(struct gather *gather, uint32_t machine)
{
    struct host *host = &gather->hosts[machine];
    struct words targets = {0};

    for (uint32_t i = 0; i < gather->host_count; i++) {
        if (i != machine && gather->hosts[i].probe_port != 0 &&
            gather->hosts[i].state != HOST_GONE) {
            words_add_format(&targets, "%s %u", gather->hosts[i].address,
                             gather->hosts[i].probe_port);
        }
    }
    link_send_words(&host->link, LINK_REACH, 0, 0, &targets);
    host->state = HOST_REACHING;
    words_fini(&targets);
}

static void
take_reached(struct host *host, const struct words *answers)
{
    for (size_t i = 0; i < answers->count; i++) {
        words_add_format(&host->problems,
                         "cannot reach %s (a firewall? the machines of a job must reach each other "
                         "on all ports; --interface chooses another network)",
                         answers->list[i]);
    }
    host->state = HOST_READY;
}

/* ----------------------------------------------------------------------------------- steps --- */

psd_status
gather_message(struct gather *gather, struct host *host, const struct link_message *message,
               struct psd_error *err)
{
    struct words words = {0};
    psd_status status = link_words(message, &words, err);

    if (status == PSD_OK && message->kind == LINK_HELLO) {
        status = host_meet(host, &words, err);
    } else if (status == PSD_OK && message->kind == LINK_SYNCED) {
        take_synced(host, message->number, &words);
    } else if (status == PSD_OK && message->kind == LINK_SET_UP) {
        host_setup_take(gather, host, &words);
    } else if (status == PSD_OK && message->kind == LINK_REACHED) {
        take_reached(host, &words);
    }
    words_fini(&words);
    return status;
}

/* All that are still with us; with --check some may not be. */
static bool
all_are(const struct gather *gather, enum host_state state)
{
    return count_state(gather, state) + count_state(gather, HOST_GONE) == gather->host_count;
}

/* A machine that was called, or NULL: how it sees us tells our address. */
static const struct host *
any_remote(const struct gather *gather)
{
    for (uint32_t i = 0; i < gather->host_count; i++) {
        if (!gather->hosts[i].machine->here) {
            return &gather->hosts[i];
        }
    }
    return NULL;
}

static bool
is_same_computer(const void *context, uint32_t one, uint32_t other)
{
    const struct gather *gather = context;

    return host_is_same_computer(&gather->hosts[one], &gather->hosts[other]);
}

static void
number_computers(struct gather *gather)
{
    computers_fini(&gather->computers);
    computers_init(&gather->computers, gather->layout, is_same_computer, gather);
}

/* As far as is known: one that is away, or on its way back, says nothing yet. */
static bool
are_all_with(const struct gather *gather, const struct host *host)
{
    for (uint32_t i = 0; i < gather->host_count; i++) {
        const struct host *other = &gather->hosts[i];

        if (other->state >= HOST_MET && other->state != HOST_GONE &&
            !host_is_same_computer(host, other)) {
            return false;
        }
    }
    return true;
}

static psd_status
choose_address(const struct gather *gather, struct host *host, struct psd_error *err)
{
    return host_choose_address(host, gather->args->interface, any_remote(gather),
                               are_all_with(gather, host), err);
}

static psd_status
set_all_up(struct gather *gather, uint32_t *host_p, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (uint32_t i = 0; i < gather->host_count && status == PSD_OK; i++) {
        *host_p = i;
        if (gather->hosts[i].state == HOST_GONE) {
            continue;
        }
        status = choose_address(gather, &gather->hosts[i], err);
        if (status == PSD_OK) {
            status = host_setup_send(gather, i, err);
        }
    }
    return status;
}

/* What is said of a machine's login has its name in front already. */
static bool
names_machine(const struct host *host, const char *problem)
{
    const size_t bytes = strlen(host->machine->name);

    return strncmp(problem, host->machine->name, bytes) == 0 && problem[bytes] == ' ';
}

size_t
gather_tell_problems(const struct gather *gather, void (*tell)(void *context, const char *problem),
                     void *context)
{
    size_t count = 0;

    for (uint32_t i = 0; i < gather->host_count; i++) {
        const struct host *host = &gather->hosts[i];
        const bool named = !host->machine->here || gather->host_count > 1;

        for (size_t k = 0; k < host->problems.count; k++, count++) {
            const char *problem = host->problems.list[k];
            const bool prefix = named && !names_machine(host, problem);
            char *line = NULL;

            if (asprintf(&line, "%s%s%s", prefix ? host->machine->name : "", prefix ? ": " : "",
                         problem) >= 0) {
                tell(context, line);
                free(line);
            }
        }
    }
    return count;
}

/* A text that grows. */
struct joined {
    char *text;
    size_t size;
    size_t used;
};

static void
join_problem(void *context, const char *problem)
{
    struct joined *joined = context;

    if (joined->used < joined->size) {
        joined->used += (size_t)snprintf(joined->text + joined->used, joined->size - joined->used,
                                         "%s%s", joined->used > 0 ? "; " : "", problem);
    }
}

/* The problems of all machines in one text, the first machine's first. */
static psd_status
check_problems(const struct gather *gather, uint32_t *host_p, struct psd_error *err)
{
    char text[sizeof(err->text)] = "";
    struct joined joined = {.text = text, .size = sizeof(text)};

    for (uint32_t i = gather->host_count; i-- > 0;) {
        *host_p = gather->hosts[i].problems.count > 0 ? i : *host_p;
    }
    gather_tell_problems(gather, join_problem, &joined);
    return joined.used == 0 ? PSD_OK : psi_fail(err, PSD_ERR_IO, "%s", text);
}

enum gather_result
gather_step(struct gather *gather, uint64_t now_ms,
            void (*new_call)(void *context, struct host *host), void *context, uint32_t *host_p,
            struct psd_error *err)
{
    psd_status status = call_machines(gather, now_ms, new_call, context, host_p, err);

    if (status == PSD_OK && gather->failed_ms != 0 && !gather->args->check) {
        if (!knows_failures(gather, now_ms)) {
            return GATHER_WAIT;
        }
        status = check_problems(gather, host_p, err);
    }
    if (status == PSD_OK) {
        fill_machines(gather);
    }
    if (status == PSD_OK && all_are(gather, HOST_FILLED)) {
        number_computers(gather);
        status = set_all_up(gather, host_p, err);
    }
    if (status == PSD_OK && all_are(gather, HOST_SET_UP)) {
        status = gather->args->check ? PSD_OK : check_problems(gather, host_p, err);
        for (uint32_t i = 0; i < gather->host_count && status == PSD_OK; i++) {
            if (gather->hosts[i].state == HOST_GONE) {
                continue;
            }
            if (gather->host_count > 1) {
                send_reach(gather, i);
            } else {
                gather->hosts[i].state = HOST_READY;
            }
        }
    }
    if (status == PSD_OK && all_are(gather, HOST_READY)) {
        status = gather->args->check ? PSD_OK : check_problems(gather, host_p, err);
        if (status == PSD_OK) {
            return GATHER_READY;
        }
    }
    return status == PSD_OK ? GATHER_WAIT : GATHER_FAILED;
}

/* What is missing on one machine. */
static psd_status
check_machine(const struct host *host, struct psd_error *err)
{
    return host->problems.count == 0
               ? PSD_OK
               : psi_fail(err, PSD_ERR_IO, "%s: %s", host->machine->name, host->problems.list[0]);
}

enum gather_result
gather_return(struct gather *gather, uint32_t machine, struct psd_error *err)
{
    struct host *host = &gather->hosts[machine];
    psd_status status = PSD_OK;

    fill_machines(gather);
    if (host->state == HOST_FILLED) {
        number_computers(gather);
        status = choose_address(gather, host, err);
        status = status == PSD_OK ? host_setup_send(gather, machine, err) : status;
    } else if (host->state == HOST_SET_UP) {
        /* It reached us, and so the master, which is here. Nobody listens for a mere test now. */
        host->state = HOST_READY;
        status = check_machine(host, err);
        return status == PSD_OK ? GATHER_READY : GATHER_FAILED;
    }
    return status == PSD_OK ? GATHER_WAIT : GATHER_FAILED;
}

bool
gather_files_move(const struct gather *gather)
{
    return count_state(gather, HOST_FILLING) > 0;
}

uint64_t
gather_deadline(const struct gather *gather)
{
    uint64_t until_ms = UINT64_MAX;

    if (gather->failed_ms != 0 && !gather->args->check) {
        return gather->failed_ms + OTHERS_MS;
    }
    for (uint32_t i = 0; i < gather->host_count; i++) {
        const struct host *host = &gather->hosts[i];

        if (host->state == HOST_AWAY && host->retry_ms < until_ms) {
            until_ms = host->retry_ms;
        }
    }
    return count_state(gather, HOST_CALLING) < CALLS_MAX ? until_ms : UINT64_MAX;
}

void
gather_missing(const struct gather *gather, char *text_p, size_t size)
{
    static const char *const states[] = {[HOST_AWAY] = "not called yet",
                                         [HOST_CALLING] = "no answer to ",
                                         [HOST_MET] = "",
                                         [HOST_ASKED] = "does not say which files it has",
                                         [HOST_FILLING] = "gets files",
                                         [HOST_FILLED] = "",
                                         [HOST_SETTING_UP] = "does not say what it has",
                                         [HOST_SET_UP] = "",
                                         [HOST_REACHING] = "tries to reach the others",
                                         [HOST_READY] = "",
                                         [HOST_GONE] = "gone"};
    size_t used = 0;

    text_p[0] = '\0';
    for (uint32_t i = 0; i < gather->host_count && used < size; i++) {
        const struct host *host = &gather->hosts[i];
        const bool calling = host->state == HOST_CALLING;
        const bool forked = host->machine->here && calling;

        if (states[host->state][0] != '\0') {
            used +=
                (size_t)snprintf(text_p + used, size - used, "%s%s (%s%s)", used > 0 ? ", " : "",
                                 host->machine->here ? "this machine" : host->machine->name,
                                 forked ? "its agent has not begun" : states[host->state],
                                 calling && !forked ? remote_shell_program(&host->shell) : "");
        }
    }
}
