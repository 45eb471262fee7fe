/*
 * joiner.c - a psd_run that joins the job of another one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/joiner.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/signalfd.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "base/monotonic.h"
#include "launch/agent/agent.h"
#include "launch/agent/keeper.h"
#include "launch/link/link.h"
#include "launch/meet/join_hello.h"
#include "launch/meet/join_line.h"
#include "launch/system/close_fd.h"
#include "launch/system/reach.h"
#include "launch/system/signal_fd.h"
#include "rpc/identity.h"
#include "secure/tls.h"
#include "transport/address.h"
#include "transport/loop/loop.h"

enum {
    RETRY_MS = 500,     /* between two attempts to find and reach the coordinator */
    TICK_MS = 1000,     /* between two signs of life */
    TELL_MS = 10000,    /* between two lines about waiting */
    VERDICT_MS = 20000, /* for the coordinator to say how it ended, after all here did */
    SAVED_MS = 60000,   /* for the job to be saved, and stopped, before this one leaves */
    LINGER_MS = 1000,   /* for the last word to leave */
};

/* What became of a life. */
enum outcome { OUTCOME_NONE, OUTCOME_AGAIN, OUTCOME_EXIT };

/* Thread: owned by the main thread. */
struct joiner {
    const struct joiner_config *config;
    struct psi_secret *secret;
    int signals;
    uint64_t tick_ms;
    uint64_t tell_ms;
    uint64_t give_up_ms; /* while there is no coordinator */
    uint32_t lives;

    /* of one life */
    struct agent_handle agent; /* pid 0: collected */
    struct psi_tls *tls;
    struct psi_loop *loop;
    struct psi_conn *conn; /* NULL: none */
    struct join_line line;
    char address[JOINER_ADDRESS_BYTES]; /* of the coordinator */
    char obstacle[900];                 /* why there is none yet */
    uint64_t retry_ms;
    bool welcome;
    uint64_t verdict_ms; /* until when the coordinator may say how it ended; UINT64_MAX: not yet */
    enum outcome outcome;
    int code;
    int asked;         /* the signal that asked it to leave when the job is saved; 0: none did */
    uint64_t leave_ms; /* at the latest */
};

static void
end_with(struct joiner *joiner, enum outcome outcome, int code)
{
    if (joiner->outcome == OUTCOME_NONE) {
        joiner->outcome = outcome;
        joiner->code = code;
    }
}

/* ----------------------------------------------------------------------------- conversation --- */

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    (void)owner;
    (void)conn;
    return join_frame_size(prefix, size_p, err);
}

static void
say_hello(struct joiner *joiner)
{
    const struct joiner_config *config = joiner->config;
    struct join_hello hello = {.member = {.rank = config->rank,
                                          .incarnation = config->incarnation + joiner->lives,
                                          .pid = (int)getpid(),
                                          .host = "?"},
                               .size = config->size,
                               .version = PSD_VERSION};
    struct join_member *member = &hello.member;
    struct psi_address coordinator;
    struct words words = {0};

    gethostname(member->host, sizeof(member->host) - 1);
    if (psi_address_parse(joiner->address, &coordinator, NULL) == PSD_OK) {
        reach_source(coordinator.host, member->address);
        snprintf(member->seen, sizeof(member->seen), "%.63s", coordinator.host);
    }
    if (config->advertised != NULL) {
        snprintf(member->advertised, sizeof(member->advertised), "%.63s", config->advertised);
    }
    join_hello_write(&hello, &words);
    join_send_words(joiner->conn, JOIN_HELLO, 0, &words);
    words_fini(&words);
}

static void
on_open(void *owner, struct psi_conn *conn)
{
    (void)conn;
    say_hello(owner);
}

static psd_status
take_welcome(struct joiner *joiner, struct psd_error *err)
{
    psd_status status;

    if (joiner->welcome) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "welcome twice");
    }
    joiner->welcome = true;
    fprintf(stderr, "psd_run: rank %u of %u has joined the job at %s\n", joiner->config->rank,
            joiner->config->size, joiner->address);
    status = join_line_adopt(&joiner->line, joiner->conn, joiner->agent.fd, err);
    joiner->agent.fd = -1;
    return status;
}

static psd_status
on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes, void *payload,
         size_t payload_bytes, struct psd_error *err)
{
    struct joiner *joiner = owner;
    struct join_frame frame;
    psd_status status = join_frame_read(head, head_bytes, &frame, err);

    (void)conn;
    (void)payload;
    (void)payload_bytes;
    if (status != PSD_OK) {
        return status;
    }
    switch ((enum join_kind)frame.kind) {
    case JOIN_WELCOME:
        return take_welcome(joiner, err);
    case JOIN_REFUSED:
        fprintf(stderr, "psd_run: refused: %.*s\n", (int)frame.bytes, frame.data);
        end_with(joiner, OUTCOME_EXIT, frame.number);
        return PSD_OK;
    case JOIN_OVER:
        end_with(joiner, OUTCOME_EXIT, frame.number);
        return PSD_OK;
    case JOIN_AGAIN:
        fprintf(stderr, "psd_run: the job starts again: %.*s\n", (int)frame.bytes, frame.data);
        end_with(joiner, OUTCOME_AGAIN, 0);
        return PSD_OK;
    case JOIN_BYTES:
    case JOIN_TAKEN:
        return joiner->welcome ? join_line_take(&joiner->line, &frame, err) : PSD_OK;
    default:
        return PSD_OK;
    }
}

static void
on_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    struct joiner *joiner = owner;

    (void)conn;
    joiner->conn = NULL;
    joiner->line.conn = NULL;
    snprintf(joiner->obstacle, sizeof(joiner->obstacle), "%s: %s", joiner->address, reason->text);
    if (joiner->welcome && joiner->outcome == OUTCOME_NONE) {
        fprintf(stderr, "psd_run: the coordinator is lost: %s\n", joiner->obstacle);
        end_with(joiner, OUTCOME_AGAIN, 0);
    }
}

static const struct psi_conn_events conn_events = {
    .on_open = on_open, .on_prefix = on_prefix, .on_frame = on_frame, .on_close = on_close};

/* ---------------------------------------------------------------------------------- finding --- */

static psd_status
connect_to(struct joiner *joiner, struct psd_error *err)
{
    struct psi_env *env = psi_loop_env(joiner->loop);
    struct psi_address address;
    struct psi_address numeric;
    char text[PSI_ADDRESS_BYTES];
    char from[PSI_IDENTITY_BYTES];
    char pair[2 * PSI_IDENTITY_BYTES];
    psd_status status = psi_address_parse(joiner->address, &address, err);

    snprintf(from, sizeof(from), "rank:%u", joiner->config->rank);
    psi_identity_pair(pair, from, JOIN_COORDINATOR);
    status = status == PSD_OK ? psi_address_resolve(&address, &numeric, err) : status;
    status = status == PSD_OK ? psi_address_format(&numeric, text, err) : status;
    if (status == PSD_OK) {
        snprintf(joiner->address, sizeof(joiner->address), "%s", text);
        status = env->ops->connect(env, text, pair, &conn_events, joiner, &joiner->conn, err);
    }
    return status;
}

static void
look_for_coordinator(struct joiner *joiner, uint64_t now_ms)
{
    struct psd_error err = {0};
    int code = 0;
    psd_status status;

    if (joiner->conn != NULL || joiner->welcome || now_ms < joiner->retry_ms) {
        return;
    }
    joiner->retry_ms = now_ms + RETRY_MS;
    status = joiner->config->find(joiner->config->context, joiner->address, &code, &err);
    if (status == PSD_OK) {
        status = connect_to(joiner, &err);
        if (status != PSD_OK) {
            snprintf(joiner->obstacle, sizeof(joiner->obstacle), "%s: %s", joiner->address,
                     err.text);
        }
        return;
    }
    if (status == PSD_ERR_STATE) {
        end_with(joiner, OUTCOME_EXIT, code);
    } else if (status == PSD_PENDING) {
        snprintf(joiner->obstacle, sizeof(joiner->obstacle), "%s", err.text);
    } else {
        fprintf(stderr, "psd_run: %s\n", err.text);
        end_with(joiner, OUTCOME_EXIT, PSI_EXIT_CANNOT_START);
    }
}

static void
tell_progress(struct joiner *joiner, uint64_t now_ms)
{
    if (joiner->welcome) {
        return;
    }
    if (now_ms >= joiner->give_up_ms) {
        fprintf(stderr,
                "psd_run: rank %u of %u found no coordinator (rank 0) within %u s (--max_wait): "
                "%s\n",
                joiner->config->rank, joiner->config->size, joiner->config->wait_ms / 1000,
                joiner->obstacle);
        end_with(joiner, OUTCOME_EXIT, PSI_EXIT_START_TIMEOUT);
    } else if (now_ms >= joiner->tell_ms) {
        joiner->tell_ms = now_ms + TELL_MS;
        fprintf(stderr, "psd_run: rank %u of %u waits for the coordinator (rank 0): %s%s%s\n",
                joiner->config->rank, joiner->config->size, joiner->obstacle,
                joiner->config->hint != NULL ? "; " : "",
                joiner->config->hint != NULL ? joiner->config->hint : "");
    }
}

/* ------------------------------------------------------------------------------------- life --- */

static void
keep_signs_of_life(struct joiner *joiner, uint64_t now_ms)
{
    const struct joiner_config *config = joiner->config;
    struct psd_error err = {0};

    if (now_ms < joiner->tick_ms) {
        return;
    }
    joiner->tick_ms = now_ms + TICK_MS;
    if (config->beat != NULL && config->beat(config->context, &err) != PSD_OK) {
        fprintf(stderr, "psd_run: %s\n", err.text);
        end_with(joiner, OUTCOME_EXIT, PSI_EXIT_FENCED);
    }
}

static void
leave(struct joiner *joiner, int number)
{
    if (joiner->conn != NULL) {
        join_send(joiner->conn, JOIN_LEAVING, number, NULL, 0);
    }
    fprintf(stderr, "psd_run: rank %u leaves: %s\n", joiner->config->rank, strsignal(number));
    joiner->outcome = OUTCOME_NONE; /* the last word is the signal's */
    end_with(joiner, OUTCOME_EXIT, 128 + number);
}

/* A batch system takes this one away, and may bring it back: the coordinator has the job saved first, and begins it anew. */
static bool
waits_for_saving(struct joiner *joiner, int number)
{
    if (!joiner->config->saves || number != SIGTERM || joiner->asked != 0 || !joiner->welcome ||
        joiner->conn == NULL) {
        return false;
    }
    joiner->asked = number;
    joiner->leave_ms = psi_monotonic_ms() + SAVED_MS;
    join_send(joiner->conn, JOIN_ASKED, number, NULL, 0);
    fprintf(stderr,
            "psd_run: rank %u was asked to leave (%s), and does when the job is saved, in %d s at "
            "the latest\n",
            joiner->config->rank, strsignal(number), SAVED_MS / 1000);
    return true;
}

static void
handle_signals(struct joiner *joiner)
{
    struct signalfd_siginfo info;

    while (read(joiner->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (!waits_for_saving(joiner, (int)info.ssi_signo)) {
            leave(joiner, (int)info.ssi_signo);
        }
    }
    if (joiner->asked != 0 && joiner->outcome == OUTCOME_NONE &&
        psi_monotonic_ms() >= joiner->leave_ms) {
        leave(joiner, joiner->asked);
    }
}

/* Between agent and coordinator. When the agent ends, the coordinator has the word. */
static void
move_bytes(struct joiner *joiner)
{
    if (joiner->line.fd < 0 || join_line_move(&joiner->line)) {
        return;
    }
    join_line_close(&joiner->line);
    if (!keeper_collect(joiner->agent.pid)) {
        end_with(joiner, OUTCOME_AGAIN, 0); /* it was killed: a new one may take its place */
    } else if (joiner->conn != NULL) {
        join_send(joiner->conn, JOIN_CLOSED, 0, NULL, 0);
        joiner->verdict_ms = psi_monotonic_ms() + VERDICT_MS;
    }
    joiner->agent.pid = 0;
}

static int
wait_ms(const struct joiner *joiner, uint64_t now_ms)
{
    const uint64_t next_ns = psi_loop_next_ns(joiner->loop);
    uint64_t until_ms = joiner->tick_ms;

    if (next_ns != UINT64_MAX && next_ns / 1000000 + 1 < until_ms) {
        until_ms = next_ns / 1000000 + 1;
    }
    if (!joiner->welcome && joiner->conn == NULL && joiner->retry_ms < until_ms) {
        until_ms = joiner->retry_ms;
    }
    return until_ms <= now_ms ? 0 : (int)(until_ms - now_ms);
}

static void
turn(struct joiner *joiner)
{
    struct pollfd polls[] = {
        {.fd = joiner->signals, .events = POLLIN},
        {.fd = psi_loop_fd(joiner->loop), .events = POLLIN},
        {.fd = joiner->line.fd, .events = join_line_wants(&joiner->line)},
    };
    uint64_t now_ms;

    poll(polls, sizeof(polls) / sizeof(polls[0]), wait_ms(joiner, psi_monotonic_ms()));
    handle_signals(joiner);
    psi_loop_run_once(joiner->loop, 0, NULL);
    move_bytes(joiner);
    now_ms = psi_monotonic_ms();
    keep_signs_of_life(joiner, now_ms);
    look_for_coordinator(joiner, now_ms);
    tell_progress(joiner, now_ms);
    if (now_ms >= joiner->verdict_ms) {
        end_with(joiner, OUTCOME_AGAIN, 0);
    }
}

static psd_status
begin_life(struct joiner *joiner, struct psd_error *err)
{
    psd_status status =
        agent_fork(&joiner->agent, joiner->config->environment, NULL, LINK_LEASE_MS, false, err);

    joiner->line = (struct join_line){.fd = -1};
    joiner->conn = NULL;
    joiner->welcome = false;
    joiner->outcome = OUTCOME_NONE;
    joiner->retry_ms = joiner->lives == 0 ? 0 : psi_monotonic_ms() + RETRY_MS;
    joiner->verdict_ms = UINT64_MAX;
    joiner->give_up_ms = psi_monotonic_ms() + joiner->config->wait_ms;
    joiner->tell_ms = psi_monotonic_ms() + TELL_MS;
    snprintf(joiner->obstacle, sizeof(joiner->obstacle), "not looked for yet");
    if (status != PSD_OK) {
        return status;
    }
    status = psi_tls_create(joiner->secret, NULL, &joiner->tls, err);
    if (status == PSD_OK) {
        status = psi_loop_create(&(struct psi_loop_config){.auth = &psi_tls_auth,
                                                           .credentials = joiner->tls,
                                                           .give_up_ms = JOIN_GIVE_UP_MS},
                                 &joiner->loop, err);
    }
    return status;
}

/* The last word leaves, as far as the network lets it. */
static void
close_connection(struct joiner *joiner)
{
    const uint64_t until_ms = psi_monotonic_ms() + LINGER_MS;

    while (joiner->conn != NULL && joiner->conn->ops->queued_bytes(joiner->conn) > 0 &&
           psi_monotonic_ms() < until_ms) {
        psi_loop_run_once(joiner->loop, 20, NULL);
    }
}

/* Everything that runs here ends: the agent sees to it when its line closes. */
static void
end_life(struct joiner *joiner)
{
    join_line_close(&joiner->line);
    close_fd(&joiner->agent.fd);
    if (joiner->loop != NULL) {
        close_connection(joiner);
    }
    if (joiner->agent.pid > 0) {
        keeper_collect(joiner->agent.pid);
        joiner->agent.pid = 0;
    }
    psi_loop_destroy(joiner->loop);
    psi_tls_destroy(joiner->tls);
    joiner->loop = NULL;
    joiner->tls = NULL;
    joiner->lives++;
}

int
joiner_run(const struct joiner_config *config)
{
    static const int leaving[] = {SIGINT, SIGTERM, SIGHUP};
    /* The coordinator, which batch systems tell too, forwards these. */
    static const int ignored[] = {SIGUSR1, SIGUSR2, SIGTSTP, SIGPIPE};
    struct joiner joiner = {.config = config, .agent = {.fd = -1}};
    struct psd_error err = {0};
    psd_status status = psi_secret_from_fd(config->secret_fd, &joiner.secret, &err);

    joiner.signals = signal_fd_open(leaving, sizeof(leaving) / sizeof(leaving[0]));
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        signal(ignored[i], SIG_IGN);
    }
    do {
        status = status == PSD_OK ? begin_life(&joiner, &err) : status;
        while (status == PSD_OK && joiner.outcome == OUTCOME_NONE) {
            turn(&joiner);
        }
        end_life(&joiner);
    } while (status == PSD_OK && joiner.outcome == OUTCOME_AGAIN && joiner.asked == 0);
    if (joiner.outcome == OUTCOME_AGAIN) {
        joiner.code = 128 + joiner.asked;
    }
    close(joiner.signals);
    psi_secret_destroy(joiner.secret);
    if (status != PSD_OK) {
        fprintf(stderr, "psd_run: %s\n", err.text);
        return PSI_EXIT_CANNOT_START;
    }
    return joiner.code;
}
