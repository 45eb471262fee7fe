/*
 * tls_test.c - the proof of the job's secret, over memory: two ends, and everything that can be
 * done to the bytes between them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/tls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/exit_code.h"
#include "secure/pass.h"
#include "wire/frame.h"
#include "wire/message.h"

enum { TAPE_BYTES = 1 << 16, ROUNDS_MAX = 64 };

static const struct psi_auth_ops *const ops = &psi_tls_auth;

/* Bytes on their way to one end; all that was ever written stays. */
struct tape {
    uint8_t bytes[TAPE_BYTES];
    size_t written;
    size_t read;
};

/* One end: ours, or (raw) OpenSSL in the hands of somebody else. */
struct end {
    void *session;
    psd_status status;
    struct psd_error err;
    struct tape in;
};

/* A job, and the names of two of its members. */
struct job {
    struct psi_secret *secret;
    struct psi_tls *worker;
    struct psi_tls *server;
};

static int
make_job(void **state)
{
    struct job *job = calloc(1, sizeof(*job));

    if (job == NULL || psi_secret_create(&job->secret, NULL) != PSD_OK ||
        psi_tls_create(job->secret, NULL, &job->worker, NULL) != PSD_OK ||
        psi_tls_create(job->secret, "server:0.1", &job->server, NULL) != PSD_OK) {
        return -1;
    }
    *state = job;
    return 0;
}

static int
end_job(void **state)
{
    struct job *job = *state;

    psi_tls_destroy(job->worker);
    psi_tls_destroy(job->server);
    psi_secret_destroy(job->secret);
    free(job);
    return 0;
}

static struct end *
begin_between(struct psi_tls *tls, bool connecting, bool loopback, const char *identity,
              const char *ends)
{
    const struct psi_auth_args args = {
        .connecting = connecting, .loopback = loopback, .identity = identity, .ends = ends};
    struct end *end = calloc(1, sizeof(*end));

    assert_non_null(end);
    end->session = ops->create(tls, &args);
    assert_non_null(end->session);
    end->status = PSD_PENDING;
    return end;
}

static struct end *
begin(struct psi_tls *tls, bool connecting, bool loopback, const char *identity)
{
    return begin_between(tls, connecting, loopback, identity, NULL);
}

static struct end *
dial(const struct job *job, bool loopback)
{
    return begin(job->worker, true, loopback, "worker:3 server:0.1");
}

static struct end *
answer(const struct job *job, bool loopback)
{
    return begin(job->server, false, loopback, NULL);
}

static void
hang_up(struct end *end)
{
    ops->destroy(end->session);
    free(end);
}

static void
put(struct tape *tape, const void *bytes, size_t count)
{
    assert_true(count <= sizeof(tape->bytes) - tape->written);
    memcpy(tape->bytes + tape->written, bytes, count);
    tape->written += count;
}

/* One step with at most `most` of what came; what it says goes to `to`.
 * Returns whether it moved. */
static bool
step(struct end *end, size_t most, struct tape *to)
{
    uint8_t out[PSI_AUTH_BYTES_MAX];
    size_t here = end->in.written - end->in.read;
    size_t consumed = 0;
    size_t made = 0;

    if (end->status != PSD_PENDING) {
        return false;
    }
    here = here < most ? here : most;
    here = here < ops->wants(end->session) ? here : ops->wants(end->session);
    end->status = ops->step(end->session, end->in.bytes + end->in.read, here, &consumed, out,
                            sizeof(out), &made, &end->err);
    assert_true(consumed <= here);
    end->in.read += consumed;
    put(to, out, made);
    return consumed > 0 || made > 0 || end->status != PSD_PENDING;
}

/* Lets both talk, so many bytes at a time, until neither has anything more to say. */
static void
converse_in_pieces(struct end *one, struct end *other, size_t most)
{
    bool moved = true;

    while (moved) {
        moved = step(one, most, &other->in);
        moved = step(other, most, &one->in) || moved;
    }
}

static void
converse(struct end *one, struct end *other)
{
    converse_in_pieces(one, other, SIZE_MAX);
}

static void
expect_refused(const struct end *end, const char *why)
{
    assert_int_equal(end->status, PSD_ERR_REFUSED);
    assert_int_equal(end->err.status, PSD_ERR_REFUSED);
    if (strstr(end->err.text, why) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", why, end->err.text);
    }
}

/* ---- members ---- */

/* If this fails, members cannot get in, or are taken for somebody else. */
static void
test_members_meet(void **state)
{
    const struct job *job = *state;

    for (unsigned loopback = 0; loopback < 2; loopback++) {
        for (size_t most = 1; most < 5000; most = most * 7 + 1) {
            struct end *worker = dial(job, loopback);
            struct end *server = answer(job, loopback);

            converse_in_pieces(worker, server, most);
            assert_int_equal(worker->status, PSD_OK);
            assert_int_equal(server->status, PSD_OK);
            assert_string_equal(ops->peer(server->session), "worker:3");
            assert_int_equal(ops->seals(worker->session), !loopback);
            assert_int_equal(ops->seals(server->session), !loopback);
            hang_up(worker);
            hang_up(server);
        }
    }
}

/* If this fails, the first frame behind the handshake is eaten by it. */
static void
test_bytes_behind_the_handshake_stay(void **state)
{
    static const char frame[] = "PSD1, and the rest of a frame";
    const struct job *job = *state;
    struct end *worker = dial(job, true);
    struct end *server = answer(job, true);

    while (worker->status == PSD_PENDING) {
        step(worker, SIZE_MAX, &server->in);
        if (worker->status == PSD_PENDING) {
            step(server, SIZE_MAX, &worker->in);
        }
    }
    assert_int_equal(server->status, PSD_PENDING);
    put(&server->in, frame, sizeof(frame));
    while (step(server, SIZE_MAX, &worker->in)) {
    }
    assert_int_equal(server->status, PSD_OK);
    assert_int_equal(server->in.written - server->in.read, sizeof(frame));
    assert_memory_equal(server->in.bytes + server->in.read, frame, sizeof(frame));
    assert_int_equal(worker->in.read, worker->in.written); /* nothing more was said either */
    hang_up(worker);
    hang_up(server);
}

/* If this fails, a measurement or a careful user gets plain bytes instead of TLS on loopback. */
static void
test_always_sealed(void **state)
{
    const struct job *job = *state;
    struct end *worker;
    struct end *server;

    psi_tls_seal_always(job->server);
    worker = dial(job, true);
    server = answer(job, true);
    converse(worker, server);
    expect_refused(server, "not allowed here: mode plain");
    hang_up(worker);
    hang_up(server);

    psi_tls_seal_always(job->worker);
    worker = dial(job, true);
    server = answer(job, true);
    converse(worker, server);
    assert_int_equal(worker->status, PSD_OK);
    assert_true(ops->seals(worker->session));
    assert_true(ops->seals(server->session));
    hang_up(worker);
    hang_up(server);
}

/* If this fails, the name under which the rest of the program knows a member is cut short. */
static void
test_longest_names(void **state)
{
    static const char name[] = "server:255.1023@65535.0123456789abcdef";
    const struct job *job = *state;
    char pair[2 * PSI_IDENTITY_BYTES];
    struct end *member;
    struct end *server = answer(job, true);

    snprintf(pair, sizeof(pair), "%s server:0.1", name);
    member = begin(job->worker, true, true, pair);
    converse(member, server);
    assert_int_equal(server->status, PSD_OK);
    assert_string_equal(ops->peer(server->session), name);
    hang_up(member);
    hang_up(server);
}

/* ---- others ---- */

/* If this fails, somebody with another job's secret gets in, or is not told why not. */
static void
test_other_secret(void **state)
{
    const struct job *job = *state;
    void *other_state;
    struct end *stranger;
    struct end *server = answer(job, true);

    assert_int_equal(make_job(&other_state), 0);
    stranger = dial(other_state, true);
    converse(stranger, server);
    expect_refused(server, "do both have the secret of the same job?");
    expect_refused(stranger, "do both have the secret of the same job?");
    assert_null(strchr(stranger->err.text, '(')); /* no word of OpenSSL's: they lead nowhere */
    assert_string_equal(ops->peer(server->session), "");
    hang_up(stranger);
    hang_up(server);
    end_job(&other_state);
}

/* A HELLO of somebody who does without a secret. */
static void
put_hello(struct tape *tape)
{
    const struct psi_frame frame = {.type = PSI_FRAME_HELLO, .payload_bytes = 40};
    uint8_t bytes[PSI_FRAME_BYTES + 40] = {0};

    psi_frame_encode(&frame, bytes);
    put(tape, bytes, sizeof(bytes));
}

/* If this fails, a worker that runs insecure waits a minute at the door of a job with a secret. */
static void
test_plain_caller_is_told(void **state)
{
    const struct job *job = *state;
    struct psi_verdict verdict;
    struct psi_frame frame;

    for (size_t most = 1; most < 100; most += 33) {
        struct end *server = answer(job, true);
        struct tape said = {0};

        put_hello(&server->in);
        while (step(server, most, &said)) {
        }
        expect_refused(server, "it does without a secret");
        assert_true(said.written > PSI_FRAME_BYTES);
        assert_int_equal(psi_frame_decode(said.bytes, &frame, NULL), PSD_OK);
        assert_int_equal(frame.type, PSI_FRAME_REFUSE);
        assert_int_equal(frame.payload_bytes, said.written - PSI_FRAME_BYTES);
        assert_int_equal(
            psi_verdict_decode(said.bytes + PSI_FRAME_BYTES, frame.payload_bytes, &verdict, NULL),
            PSD_OK);
        assert_int_equal(verdict.status, PSD_ERR_REFUSED);
        assert_int_equal(verdict.exit_code, PSI_EXIT_AUTH);
        assert_non_null(strstr(verdict.text, "that job needs a secret"));
        hang_up(server);
    }
}

/* If this fails, strangers on the network learn more of a port than that it does not want them. */
static void
test_plain_caller_from_elsewhere_is_told_nothing(void **state)
{
    const struct job *job = *state;
    struct end *server = answer(job, false);
    struct tape said = {0};

    put_hello(&server->in);
    while (step(server, SIZE_MAX, &said)) {
    }
    expect_refused(server, "not a TLS record");
    assert_int_equal(said.written, 0);
    hang_up(server);
}

/* If this fails, a worker with a secret is told riddles by a job that runs insecure. */
static void
test_plain_listener_is_recognised(void **state)
{
    const struct job *job = *state;

    for (size_t most = 1; most < 100; most += 33) {
        struct end *worker = dial(job, true);
        struct tape said = {0};
        size_t before;

        step(worker, SIZE_MAX, &said);
        before = said.written;
        put_hello(&worker->in); /* any frame will do: what it says is not read */
        while (step(worker, most, &said)) {
        }
        expect_refused(worker, "that job runs --insecure, and this process has a secret");
        assert_int_equal(said.written, before);
        hang_up(worker);
    }
}

/* If this fails, a frame in the middle of a handshake is taken for a caller without a secret. */
static void
test_plain_frame_within_a_handshake(void **state)
{
    const struct job *job = *state;
    struct end *worker = dial(job, true);
    struct end *server = answer(job, true);
    struct tape said = {0};

    step(worker, SIZE_MAX, &server->in);
    while (step(server, SIZE_MAX, &worker->in)) {
    }
    put_hello(&server->in);
    while (step(server, SIZE_MAX, &said)) {
    }
    expect_refused(server, "not a TLS record");
    assert_int_equal(said.written, 0);
    hang_up(worker);
    hang_up(server);
}

/* If this fails, a member is admitted under another name, at another's door or in a weaker mode. */
static void
test_names_and_modes(void **state)
{
    static const struct {
        const char *identity;
        bool from_loopback;
        bool to_loopback;
        const char *why;
    } cases[] = {
        {"worker:3 server:0.0", true, true, "this is not server:0.0"},
        {"worker:3 master", true, true, "this is not master"},
        {"server:0.1 worker:3", true, true, "this is not worker:3"},
        {"server:0.1 server:0.1", true, true, "it claims to be this very process"},
        {"server:0.1@1.00000000000000ff server:0.1", true, true, "it claims to be this very"},
        {"worker:3 server:0.1", true, false, "not allowed here: mode plain"},
        {"worker:3 server:0.1 more", true, true, "an identity that is not ours"},
        {"worker:3", true, true, "an identity that is not ours"},
        {"", true, true, "an identity that is not ours"},
        {NULL, true, true, "an identity that is not ours"},
    };
    const struct job *job = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct end *worker = begin(job->worker, true, cases[i].from_loopback, cases[i].identity);
        struct end *server = answer(job, cases[i].to_loopback);

        converse(worker, server);
        expect_refused(server, cases[i].why);
        assert_int_equal(worker->status, PSD_ERR_REFUSED);
        hang_up(worker);
        hang_up(server);
    }
}

static const char here[] = "tcp://127.0.0.1:40312 tcp://127.0.0.1:5555";

/* If this fails, whoever passes a handshake on owns the plain bytes that follow it. */
static void
test_relay(void **state)
{
    static const char *const others[] = {
        "tcp://127.0.0.1:40313 tcp://127.0.0.1:5555", /* the relay's own connection */
        "tcp://127.0.0.1:40312 tcp://127.0.0.1:5556",
        "tcp://127.0.0.2:40312 tcp://127.0.0.1:5555",
        "tcp://127.0.0.1:5555 tcp://127.0.0.1:40312",
        "tcp://127.0.0.1:40312",
        "",
    };
    const char *const pair = "worker:3 server:0.1";
    const struct job *job = *state;
    struct end *worker = begin_between(job->worker, true, true, pair, here);
    struct end *server = begin_between(job->server, false, true, NULL, here);

    converse(worker, server);
    assert_int_equal(worker->status, PSD_OK);
    assert_int_equal(server->status, PSD_OK);
    hang_up(worker);
    hang_up(server);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        worker = begin_between(job->worker, true, true, pair, others[i]);
        server = begin_between(job->server, false, true, NULL, here);
        converse(worker, server);
        expect_refused(server, others[i][0] == '\0' ? "an identity that is not ours"
                                                    : "somebody relays this connection");
        assert_int_equal(worker->status, PSD_ERR_REFUSED);
        hang_up(worker);
        hang_up(server);
    }
}

/* If this fails, hosts with an address translator between them cannot meet. */
static void
test_translated_addresses_between_hosts(void **state)
{
    const struct job *job = *state;
    struct end *worker = begin_between(job->worker, true, false, "worker:3 server:0.1",
                                       "tcp://10.0.0.7:40312 tcp://192.0.2.1:5555");
    struct end *server =
        begin_between(job->server, false, false, NULL, "tcp://192.0.2.9:1024 tcp://10.9.9.9:5555");

    converse(worker, server);
    assert_int_equal(worker->status, PSD_OK);
    assert_int_equal(server->status, PSD_OK);
    assert_true(ops->seals(server->session));
    hang_up(worker);
    hang_up(server);
}

/* If this fails, what a member said to one process is good for another, or for itself. */
static void
test_reflection(void **state)
{
    const struct job *job = *state;
    struct end *author = begin(job->server, true, true, "server:0.1 master");
    struct end *listener = answer(job, true);

    converse(author, listener); /* somebody connects the author to its own listener */
    expect_refused(listener, "this is not master");
    hang_up(author);
    hang_up(listener);

    author = dial(job, true); /* ... or hands it back its own words */
    while (step(author, SIZE_MAX, &author->in)) {
    }
    expect_refused(author, "authentication failed");
    hang_up(author);
}

/* If this fails, whoever recorded a member's connection can repeat it. */
static void
test_replay(void **state)
{
    const struct job *job = *state;
    struct end *worker = dial(job, false);
    struct end *server = answer(job, false);
    struct end *again = answer(job, false);
    struct end *reborn;
    struct end *client = dial(job, false);
    struct tape lost = {0};
    struct psi_tls *restarted; /* the same listener after a restart: it remembers nothing */

    converse(worker, server);
    assert_int_equal(server->status, PSD_OK);
    put(&again->in, server->in.bytes, server->in.written);
    while (step(again, SIZE_MAX, &lost)) {
    }
    expect_refused(again, "a recorded greeting, said again");
    assert_int_equal(lost.written, 7); /* an alert, and no answer that costs anything */

    assert_int_equal(psi_tls_create(job->secret, "server:0.1", &restarted, NULL), PSD_OK);
    reborn = begin(restarted, false, false, NULL);
    put(&reborn->in, server->in.bytes, server->in.written);
    while (step(reborn, SIZE_MAX, &lost)) {
    }
    expect_refused(reborn, "authentication failed");
    hang_up(reborn);
    psi_tls_destroy(restarted);

    put(&client->in, worker->in.bytes, worker->in.written); /* the server's part, to a client */
    while (step(client, SIZE_MAX, &lost)) {
    }
    expect_refused(client, "authentication failed");
    hang_up(worker);
    hang_up(server);
    hang_up(again);
    hang_up(client);
}

/* If this fails, strangers at a busy listener cannot be told from members,
 * or only by a handshake. */
static void
test_first_bytes_are_recognised(void **state)
{
    const struct job *job = *state;
    struct end *worker = dial(job, false);
    struct end *server = answer(job, false);
    void *other_state;
    struct end *stranger;

    assert_int_equal(make_job(&other_state), 0);
    stranger = dial(other_state, false);
    step(worker, SIZE_MAX, &server->in);
    assert_true(ops->recognises(job->server, server->in.bytes, server->in.written));
    assert_false(ops->recognises(job->server, server->in.bytes, server->in.written / 2));
    assert_false(ops->recognised(server->session));
    step(server, SIZE_MAX, &worker->in);
    step(server, SIZE_MAX, &worker->in);
    assert_true(ops->recognised(server->session));
    assert_false(ops->recognises(job->server, server->in.bytes, server->in.written)); /* used */
    step(stranger, SIZE_MAX, &worker->in);
    assert_false(ops->recognises(job->server, worker->in.bytes, worker->in.written));
    hang_up(worker);
    hang_up(server);
    hang_up(stranger);
    end_job(&other_state);
}

/* If this fails, half a handshake is taken for a whole one. */
static void
test_truncated(void **state)
{
    const struct job *job = *state;
    struct end *worker = dial(job, false);
    struct end *server = answer(job, false);

    converse(worker, server);
    for (size_t cut = 0; cut < server->in.written; cut += cut < 300 ? 7 : 1) {
        struct end *again = answer(job, false);
        struct tape lost = {0};

        put(&again->in, server->in.bytes, cut);
        while (step(again, SIZE_MAX, &lost)) {
        }
        assert_int_not_equal(again->status, PSD_OK);
        hang_up(again);
    }
    hang_up(worker);
    hang_up(server);
}

/* Lets them talk, and changes one bit of what the listener (or the caller) hears. */
static bool
meet_with_a_flip(const struct job *job, bool at_server, size_t position, unsigned bit)
{
    struct end *worker = dial(job, false);
    struct end *server = answer(job, false);
    struct end *victim = at_server ? server : worker;
    bool flipped = false;
    bool both;

    for (unsigned i = 0; i < ROUNDS_MAX; i++) {
        step(worker, SIZE_MAX, &server->in);
        if (!flipped && victim->in.written > position) {
            victim->in.bytes[position] ^= (uint8_t)(1u << bit);
            flipped = true;
        }
        step(server, SIZE_MAX, &worker->in);
        if (!flipped && victim->in.written > position) {
            victim->in.bytes[position] ^= (uint8_t)(1u << bit);
            flipped = true;
        }
    }
    both = worker->status == PSD_OK && server->status == PSD_OK;
    hang_up(worker);
    hang_up(server);
    return both && flipped;
}

/* Where the records' versions lie: the one field that TLS ignores by rule. */
static bool
is_version(const struct tape *tape, size_t position)
{
    size_t at = 0;

    while (at + 5 <= tape->written) {
        if (position == at + 1 || position == at + 2) {
            return true;
        }
        at += 5 + ((size_t)tape->bytes[at + 3] << 8 | tape->bytes[at + 4]);
    }
    return false;
}

/* If this fails, somebody on the way can change a handshake, and so names, mode or keys. */
static void
test_every_byte_counts(void **state)
{
    const struct job *job = *state;
    struct end *worker = dial(job, false);
    struct end *server = answer(job, false);

    converse(worker, server);
    for (unsigned at_server = 0; at_server < 2; at_server++) {
        const struct tape *tape = at_server != 0 ? &server->in : &worker->in;

        for (size_t i = 0; i < tape->written; i++) {
            if (!is_version(tape, i) && meet_with_a_flip(job, at_server != 0, i, i % 8)) {
                fail_msg("byte %zu to the %s changed unnoticed", i,
                         at_server != 0 ? "server" : "worker");
            }
        }
    }
    hang_up(worker);
    hang_up(server);
}

/* If this fails, noise crashes a daemon, is let in, or is waited for although it cannot be TLS. */
static void
test_garbage(void **state)
{
    const unsigned seed = (unsigned)time(NULL);
    const struct job *job = *state;

    print_message("seed %u\n", seed);
    srand(seed);
    for (unsigned round = 0; round < 300; round++) {
        struct end *server = answer(job, round % 2 == 0);
        struct tape lost = {0};
        uint8_t noise[600];

        for (size_t i = 0; i < sizeof(noise); i++) {
            noise[i] = (uint8_t)rand();
        }
        if (round % 3 == 0) { /* a record's head, and noise in it */
            memcpy(noise, (uint8_t[]){22, 3, 1, 2, 0}, 5);
        }
        put(&server->in, noise, sizeof(noise));
        while (step(server, SIZE_MAX, &lost)) {
        }
        assert_int_equal(server->status, PSD_ERR_REFUSED);
        hang_up(server);
    }
}

/* If this fails, silence is an answer. */
static void
test_silence(void **state)
{
    const struct job *job = *state;
    struct end *server = answer(job, false);
    struct end *worker = dial(job, false);
    struct tape lost = {0};

    for (unsigned i = 0; i < 3; i++) {
        step(server, SIZE_MAX, &lost);
        step(worker, SIZE_MAX, &lost);
    }
    assert_int_equal(server->status, PSD_PENDING);
    assert_int_equal(worker->status, PSD_PENDING);
    assert_int_equal(ops->wants(server->session), 5);
    hang_up(server);
    hang_up(worker);
}

/* ---- OpenSSL in other hands ---- */

/* What a raw caller claims. */
struct claim {
    const struct psi_secret *secret; /* NULL: it offers no key at all */
    const char *label;               /* what its key is derived from */
    const uint8_t *identity;
    size_t identity_bytes;
    int version_max;
    const char *groups;
    const char *ends; /* of the server's side */
};

/* Ends both labels with the same right pass. */
static void
write_pass(const struct job *job, char identity[PSI_LABEL_BYTES], char label[PSI_LABEL_BYTES])
{
    struct psi_passes *passes;

    assert_int_equal(psi_passes_create(job->secret, &passes, NULL), PSD_OK);
    assert_true(psi_pass_write(passes, identity));
    strcat(label, strrchr(identity, ' '));
    psi_passes_destroy(passes);
}

static int
claim_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_bytes,
              SSL_SESSION **made_p)
{
    static const unsigned char cipher_id[] = {0x13, 0x01};
    const struct claim *claim = SSL_get_app_data(ssl);
    uint8_t key[PSI_KEY_BYTES];

    (void)md;
    *made_p = NULL;
    if (claim->secret == NULL) {
        return 1;
    }
    *made_p = SSL_SESSION_new();
    *id = claim->identity;
    *id_bytes = claim->identity_bytes;
    return psi_secret_derive(claim->secret, claim->label, key, NULL) == PSD_OK &&
           SSL_SESSION_set1_master_key(*made_p, key, sizeof(key)) == 1 &&
           SSL_SESSION_set_cipher(*made_p, SSL_CIPHER_find(ssl, cipher_id)) == 1 &&
           SSL_SESSION_set_protocol_version(*made_p, TLS1_3_VERSION) == 1;
}

/* Lets OpenSSL talk to one of our ends. Returns whether OpenSSL is satisfied. */
static bool
converse_raw(SSL *ssl, struct end *end)
{
    BIO *in = BIO_new(BIO_s_mem());
    BIO *out = BIO_new(BIO_s_mem());
    struct tape to_raw = {0};

    SSL_set_bio(ssl, in, out);
    for (unsigned i = 0; i < ROUNDS_MAX; i++) {
        uint8_t bytes[PSI_AUTH_BYTES_MAX];
        int made;

        (void)SSL_do_handshake(ssl);
        made = BIO_read(out, bytes, sizeof(bytes));
        put(&end->in, bytes, made > 0 ? (size_t)made : 0);
        step(end, SIZE_MAX, &to_raw);
        BIO_write(in, to_raw.bytes + to_raw.read, (int)(to_raw.written - to_raw.read));
        to_raw.read = to_raw.written;
    }
    return SSL_is_init_finished(ssl) == 1;
}

/* Claims something to a server of the job, which must answer so. */
static void
expect_claim(const struct job *job, struct claim claim, psd_status expected, const char *why)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    struct end *server = begin_between(job->server, false, true, NULL, claim.ends);
    SSL *ssl;

    SSL_CTX_set_psk_use_session_callback(context, claim_session);
    SSL_CTX_set_max_proto_version(context, claim.version_max);
    if (claim.groups != NULL) {
        assert_int_equal(SSL_CTX_set1_groups_list(context, claim.groups), 1);
    }
    ssl = SSL_new(context);
    SSL_set_app_data(ssl, &claim);
    SSL_set_connect_state(ssl);
    (void)converse_raw(ssl, server);
    assert_int_equal(server->status, expected);
    if (expected != PSD_OK) {
        expect_refused(server, why);
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
    hang_up(server);
}

/* As bytes that need not be text, with the key that belongs to them. */
static void
expect_bytes(const struct job *job, const char *identity, size_t bytes, psd_status expected,
             const char *why)
{
    const struct claim claim = {.secret = job->secret,
                                .label = identity,
                                .identity = (const uint8_t *)identity,
                                .identity_bytes = bytes};

    expect_claim(job, claim, expected, why);
}

/* A label with its pass; the key is derived from another one with the same pass. */
static void
expect_labels(const struct job *job, const char *claimed, const char *derived, const char *ends,
              psd_status expected, const char *why)
{
    char identity[PSI_LABEL_BYTES];
    char label[PSI_LABEL_BYTES];
    struct claim claim;

    snprintf(identity, sizeof(identity), "%s", claimed);
    snprintf(label, sizeof(label), "%s", derived);
    write_pass(job, identity, label);
    claim = (struct claim){.secret = job->secret,
                           .label = label,
                           .identity = (const uint8_t *)identity,
                           .identity_bytes = strlen(identity),
                           .ends = ends};
    expect_claim(job, claim, expected, why);
}

static const char good_label[] = "psd1 plain worker:3 server:0.1";

/* If this fails, what a peer calls itself breaks the parser, or is believed beyond its key. */
static void
test_identities(void **state)
{
    static const char *const foreign[] = {
        "psd0 plain worker:3 server:0.1",
        "psd2 plain worker:3 server:0.1",
        "plain worker:3 server:0.1",
        "psd1 plain worker:3",
        "psd1 plain worker:3 server:0.1 ",
        "psd1 plain worker:3 server:0.1 x",
        "psd1 tls worker:3 server:0.1 tcp://127.0.0.1:1 tcp://127.0.0.1:2",
        "psd1 plainplain worker:3 server:0.1",
        "psd1plain worker:3 server:0.1",
        "psd1 plain  worker:3 server:0.1",
        "psd1\tplain worker:3 server:0.1",
        "psd1 plain worker:3 server:0.12345678901234567890123456789012345",
        "psd1 plain worker:345678901234567890123456789012345678 server:0.1",
        "x",
    };
    const struct job *job = *state;
    char lengthy[400];

    expect_labels(job, good_label, good_label, NULL, PSD_OK, "");
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        expect_labels(job, foreign[i], foreign[i], NULL, PSD_ERR_REFUSED,
                      "an identity that is not ours");
    }
    expect_labels(job, "psd1 mac worker:3 server:0.1", "psd1 mac worker:3 server:0.1", NULL,
                  PSD_ERR_REFUSED, "not allowed here: mode mac");
    memset(lengthy, 'x', sizeof(lengthy));
    lengthy[399] = '\0';
    expect_bytes(job, lengthy, PSI_LABEL_BYTES - 1, PSD_ERR_REFUSED, "identity that is not ours");
    expect_bytes(job, lengthy, PSI_LABEL_BYTES, PSD_ERR_REFUSED, "impossible length");
    expect_bytes(job, lengthy, 399, PSD_ERR_REFUSED, "impossible length");
    expect_bytes(job, "a\0b", 4, PSD_ERR_REFUSED, "impossible length");
}

/* If this fails, a label without a pass, or with one that was made for another label, is enough. */
static void
test_pass_is_needed(void **state)
{
    const struct job *job = *state;
    char identity[PSI_LABEL_BYTES] = "psd1 plain worker:3 server:0.1";
    char label[PSI_LABEL_BYTES] = "";

    expect_bytes(job, good_label, strlen(good_label), PSD_ERR_REFUSED, "that is not ours");
    write_pass(job, identity, label);
    identity[18] = '4'; /* worker:4 */
    expect_bytes(job, identity, strlen(identity), PSD_ERR_REFUSED, "authentication failed");
    identity[18] = '3';
    expect_bytes(job, identity, strlen(identity), PSD_OK, "");
    expect_bytes(job, identity, strlen(identity), PSD_ERR_REFUSED, "a recorded greeting");
}

/* If this fails, a member's key is good for another name, direction or mode. */
static void
test_keys_are_bound_to_names(void **state)
{
    static const char *const labels[] = {
        "psd1 plain worker:4 server:0.1", "psd1 plain worker:3 server:0.0",
        "psd1 plain server:0.1 worker:3", "psd1 tls worker:3 server:0.1",
        "psd1 plain master server:0.1",
    };
    const struct job *job = *state;

    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        expect_labels(job, good_label, labels[i], NULL, PSD_ERR_REFUSED, "authentication failed");
    }
}

/* If this fails, a relay corrects the addresses in a handshake that it passes on. */
static void
test_keys_are_bound_to_the_connection(void **state)
{
    const struct job *job = *state;
    char right[PSI_LABEL_BYTES];

    snprintf(right, sizeof(right), "%s %s", good_label, here);
    expect_labels(job, right, right, here, PSD_OK, "");
    expect_labels(job, right,
                  "psd1 plain worker:3 server:0.1 tcp://127.0.0.1:40313 tcp://127.0.0.1:5555", here,
                  PSD_ERR_REFUSED, "authentication failed");
    expect_labels(job, right, good_label, here, PSD_ERR_REFUSED, "authentication failed");
}

/* If this fails, a member whose library begins with another curve is taken for a recording of
 * itself when it says its label for the second time. */
static void
test_member_is_asked_for_another_curve(void **state)
{
    const struct job *job = *state;
    char identity[PSI_LABEL_BYTES] = "psd1 plain worker:3 server:0.1";
    char label[PSI_LABEL_BYTES] = "";

    write_pass(job, identity, label);
    expect_claim(job,
                 (struct claim){.secret = job->secret,
                                .label = identity,
                                .identity = (const uint8_t *)identity,
                                .identity_bytes = strlen(identity),
                                .groups = "P-384:X25519"},
                 PSD_OK, "");
}

/* If this fails, somebody without a key gets an answer, and with it the place of a member. */
static void
test_stranger_who_would_be_asked_for_another_curve(void **state)
{
    static const uint8_t start[] = {22, 3, 1, 0, 0, 1, 0, 0, 0, 3, 3}; /* then 32 bytes */
    static const uint8_t rest[] = {
        0, 0,  2, 0x13, 1, 1, 0,     /* no session, one cipher, no compression */
        0, 0,                        /* extensions: */
        0, 43, 0, 3,    2, 3, 4,     /* TLS 1.3 */
        0, 10, 0, 4,    0, 2, 0, 29, /* X25519, */
        0, 51, 0, 2,    0, 0,        /* and no share of it */
        0, 13, 0, 4,    0, 2, 4, 3,  /* a signature */
    };
    const struct job *job = *state;
    struct end *server = answer(job, true);
    uint8_t bytes[sizeof(start) + 32 + sizeof(rest)] = {0};
    struct tape said = {0};

    memcpy(bytes, start, sizeof(start));
    memcpy(bytes + sizeof(start) + 32, rest, sizeof(rest));
    bytes[4] = (uint8_t)(sizeof(bytes) - 5);
    bytes[8] = (uint8_t)(sizeof(bytes) - 9);
    bytes[sizeof(start) + 32 + 8] = (uint8_t)(sizeof(rest) - 9);
    put(&server->in, bytes, sizeof(bytes));
    while (step(server, SIZE_MAX, &said)) {
    }
    expect_refused(server, "authentication failed");
    assert_int_equal(said.written, 7); /* an alert */
    hang_up(server);
}

/* ---- a client that wants no forward secrecy ---- */

enum {
    RECORD_BYTES = 5, /* in front of a handshake message */
    BINDER_BYTES = 32,
    BINDERS_BYTES = 2 + 1 + BINDER_BYTES, /* the list of one, the last of a ClientHello */
};

static void
hmac(const uint8_t key[BINDER_BYTES], const uint8_t *text, size_t bytes,
     uint8_t mac_p[BINDER_BYTES])
{
    assert_non_null(HMAC(EVP_sha256(), key, BINDER_BYTES, text, bytes, mac_p, NULL));
}

/* HKDF-Expand-Label of RFC 8446, 7.1, for one block. */
static void
expand_label(const uint8_t secret[BINDER_BYTES], const char *label, const uint8_t *context,
             size_t context_bytes, uint8_t key_p[BINDER_BYTES])
{
    uint8_t text[128] = {0, BINDER_BYTES};
    size_t used = 2;

    text[used++] = (uint8_t)(6 + strlen(label));
    used += (size_t)snprintf((char *)text + used, 64, "tls13 %s", label);
    text[used++] = (uint8_t)context_bytes;
    memcpy(text + used, context, context_bytes);
    used += context_bytes;
    text[used++] = 1;
    hmac(secret, text, used, key_p);
}

/* What proves that whoever wrote this ClientHello has the key: RFC 8446, 4.2.11.2. */
static void
write_binder(const uint8_t key[PSI_KEY_BYTES], uint8_t *hello, size_t bytes)
{
    static const uint8_t zeros[BINDER_BYTES];
    const size_t signed_bytes = bytes - RECORD_BYTES - BINDERS_BYTES;
    uint8_t nothing[BINDER_BYTES];
    uint8_t transcript[BINDER_BYTES];
    uint8_t early[BINDER_BYTES];
    uint8_t binder[BINDER_BYTES];
    uint8_t finished[BINDER_BYTES];

    assert_int_equal(PSI_KEY_BYTES, BINDER_BYTES);
    SHA256(zeros, 0, nothing);
    SHA256(hello + RECORD_BYTES, signed_bytes, transcript);
    hmac(zeros, key, PSI_KEY_BYTES, early);
    expand_label(early, "ext binder", nothing, sizeof(nothing), binder);
    expand_label(binder, "finished", zeros, 0, finished);
    hmac(finished, transcript, sizeof(transcript), hello + bytes - BINDER_BYTES);
}

/* Writes what a member says first, with the one key exchange mode that it offers. */
static size_t
write_hello(const struct job *job, uint8_t mode, uint8_t hello[PSI_AUTH_BYTES_MAX])
{
    static const uint8_t modes[] = {0, 45, 0, 2, 1, 1}; /* one: psk_dhe_ke */
    char identity[PSI_LABEL_BYTES];
    char label[PSI_LABEL_BYTES];
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    BIO *out = BIO_new(BIO_s_mem());
    uint8_t key[PSI_KEY_BYTES];
    struct claim claim;
    uint8_t *offered;
    int bytes;

    snprintf(identity, sizeof(identity), "%s", good_label);
    snprintf(label, sizeof(label), "%s", good_label);
    write_pass(job, identity, label);
    claim = (struct claim){.secret = job->secret,
                           .label = label,
                           .identity = (const uint8_t *)identity,
                           .identity_bytes = strlen(identity)};
    SSL_set_psk_use_session_callback(ssl, claim_session);
    SSL_set_app_data(ssl, &claim);
    SSL_set_connect_state(ssl);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
    (void)SSL_do_handshake(ssl);
    bytes = BIO_read(out, hello, PSI_AUTH_BYTES_MAX);
    assert_true(bytes > RECORD_BYTES + BINDERS_BYTES);
    offered = memmem(hello, (size_t)bytes, modes, sizeof(modes));
    assert_non_null(offered);
    offered[5] = mode;
    assert_int_equal(psi_secret_derive(job->secret, label, key, NULL), PSD_OK);
    write_binder(key, hello, (size_t)bytes);
    SSL_free(ssl);
    SSL_CTX_free(context);
    return (size_t)bytes;
}

/* If this fails, whoever learns the secret later can read what was recorded before. */
static void
test_forward_secrecy_is_not_negotiable(void **state)
{
    const struct job *job = *state;

    for (uint8_t mode = 0; mode < 2; mode++) { /* psk_ke, psk_dhe_ke */
        uint8_t hello[PSI_AUTH_BYTES_MAX];
        const size_t bytes = write_hello(job, mode, hello);
        struct end *server = answer(job, true);
        struct tape said = {0};

        put(&server->in, hello, bytes);
        while (step(server, SIZE_MAX, &said)) {
        }
        if (mode == 0) {
            expect_refused(server, "authentication failed");
            assert_int_equal(said.written, 7); /* an alert */
        } else {
            assert_int_equal(server->status, PSD_PENDING); /* the same words, and it goes on */
            assert_true(said.written > 100);
        }
        hang_up(server);
    }
}

/* If this fails, a peer without a key, or with an old TLS, gets in. */
static void
test_no_key_and_old_versions(void **state)
{
    const struct job *job = *state;
    struct claim claim = {.secret = NULL};

    expect_claim(job, claim, PSD_ERR_REFUSED, "authentication failed");
    claim.version_max = TLS1_2_VERSION;
    expect_claim(job, claim, PSD_ERR_REFUSED, "authentication failed");
    claim = (struct claim){.secret = job->secret,
                           .label = good_label,
                           .identity = (const uint8_t *)good_label,
                           .identity_bytes = strlen(good_label),
                           .version_max = TLS1_2_VERSION};
    expect_claim(job, claim, PSD_ERR_REFUSED, "authentication failed");
}

static void
give_certificate(SSL_CTX *context)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();

    assert_non_null(key);
    assert_non_null(certificate);
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    assert_int_equal(SSL_CTX_use_certificate(context, certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(context, key), 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

/* If this fails, whoever takes over a master's port gets the gradients, with any certificate. */
static void
test_impostor_with_a_certificate(void **state)
{
    const struct job *job = *state;

    for (unsigned loopback = 0; loopback < 2; loopback++) {
        SSL_CTX *context = SSL_CTX_new(TLS_server_method());
        struct end *worker = dial(job, loopback);
        SSL *ssl;

        give_certificate(context);
        ssl = SSL_new(context);
        SSL_set_accept_state(ssl);
        (void)converse_raw(ssl, worker);
        expect_refused(worker, "the peer did not use the job's secret");
        SSL_free(ssl);
        SSL_CTX_free(context);
        hang_up(worker);
    }
}

/* ---- readers ---- */

/* A reader's end, with the key that was made from the job's secret. */
static struct psi_tls *
reader_of(const struct job *job, struct psi_secret **key_p)
{
    struct psi_tls *reader = NULL;

    assert_int_equal(psi_secret_for_readers(job->secret, key_p, NULL), PSD_OK);
    assert_int_equal(psi_tls_create(*key_p, NULL, &reader, NULL), PSD_OK);
    return reader;
}

/* If this fails, a reader with the right key does not get in, or is taken for a member where others are turned
 * away. */
static void
test_readers_get_in_with_their_key(void **state)
{
    const struct job *job = *state;
    struct psi_secret *key;
    struct psi_tls *tls = reader_of(job, &key);

    for (unsigned loopback = 0; loopback < 2; loopback++) {
        for (unsigned admitted = 0; admitted < 2; admitted++) {
            struct end *reader = begin(tls, true, loopback, "reader server:0.1");
            struct end *server = answer(job, loopback);

            converse(reader, server);
            if (admitted == 0 && loopback == 0) {
                expect_refused(server, "readers are not admitted here");
                assert_int_equal(psi_tls_admit_readers(job->server, NULL), PSD_OK);
            } else {
                assert_int_equal(reader->status, PSD_OK);
                assert_int_equal(server->status, PSD_OK);
                assert_string_equal(ops->peer(server->session), "reader");
                assert_int_equal(ops->seals(server->session), !loopback);
                assert_false(ops->recognised(server->session));
            }
            hang_up(reader);
            hang_up(server);
        }
    }
    psi_tls_destroy(tls);
    psi_secret_destroy(key);
}

/* If this fails, who has the key of readers joins the job, or who has the job's secret alone passes as somebody
 * whom readers' bounds are for. */
static void
test_readers_prove_no_other_name(void **state)
{
    static const char *const pairs[] = {"worker:3 server:0.1",   "worker:* server:0.1",
                                        "server:0.0 server:0.1", "standby:0.0 server:0.1",
                                        "observer server:0.1",   "reader@1.1 server:0.1",
                                        "readers server:0.1"};
    const struct job *job = *state;
    struct psi_secret *key;
    struct psi_tls *tls = reader_of(job, &key);
    struct end *member;
    struct end *server;

    assert_int_equal(psi_tls_admit_readers(job->server, NULL), PSD_OK);
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct end *reader = begin(tls, true, false, pairs[i]);

        server = answer(job, false);
        converse(reader, server);
        expect_refused(server, "the proof is wrong");
        hang_up(reader);
        hang_up(server);
    }
    member = begin(job->worker, true, false, "reader server:0.1");
    server = answer(job, false);
    converse(member, server);
    expect_refused(server, "the proof is wrong");
    hang_up(member);
    hang_up(server);
    psi_tls_destroy(tls);
    psi_secret_destroy(key);
}

int
main(void)
{
#define TLS_TEST(function) cmocka_unit_test_setup_teardown(function, make_job, end_job)
    const struct CMUnitTest tests[] = {
        TLS_TEST(test_members_meet),
        TLS_TEST(test_bytes_behind_the_handshake_stay),
        TLS_TEST(test_always_sealed),
        TLS_TEST(test_longest_names),
        TLS_TEST(test_other_secret),
        TLS_TEST(test_plain_caller_is_told),
        TLS_TEST(test_plain_caller_from_elsewhere_is_told_nothing),
        TLS_TEST(test_plain_listener_is_recognised),
        TLS_TEST(test_plain_frame_within_a_handshake),
        TLS_TEST(test_names_and_modes),
        TLS_TEST(test_relay),
        TLS_TEST(test_translated_addresses_between_hosts),
        TLS_TEST(test_reflection),
        TLS_TEST(test_replay),
        TLS_TEST(test_first_bytes_are_recognised),
        TLS_TEST(test_truncated),
        TLS_TEST(test_every_byte_counts),
        TLS_TEST(test_garbage),
        TLS_TEST(test_silence),
        TLS_TEST(test_identities),
        TLS_TEST(test_pass_is_needed),
        TLS_TEST(test_member_is_asked_for_another_curve),
        TLS_TEST(test_stranger_who_would_be_asked_for_another_curve),
        TLS_TEST(test_keys_are_bound_to_names),
        TLS_TEST(test_keys_are_bound_to_the_connection),
        TLS_TEST(test_forward_secrecy_is_not_negotiable),
        TLS_TEST(test_no_key_and_old_versions),
        TLS_TEST(test_impostor_with_a_certificate),
        TLS_TEST(test_readers_get_in_with_their_key),
        TLS_TEST(test_readers_prove_no_other_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
