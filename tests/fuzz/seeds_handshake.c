/*
 * seeds_handshake.c - first inputs of fuzz_handshake.c: labels, and whole handshakes in which
 * nothing is encrypted, as that target reads them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "seeds.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "secure/tls.h"

/* The first bytes of an input: see fuzz_handshake.c. */
enum {
    LABEL = 1,
    CONNECTING = 2,
    LOOPBACK = 4,
    ALWAYS_SEALED = 8,
    ENDS = 16,
    FAILURE = 32,
    WHOLE = 255,
};

enum { CAPACITY = 65536, TAG_BYTES = 16, ALERT = 21, HANDSHAKE = 22, DATA = 23 };

static const char pass[] = " 00000000000000010123456789abcdef0123456789abcdef";
static const char ends[] = " tcp://127.0.0.1:40312 tcp://127.0.0.1:5555";

struct input {
    uint8_t bytes[CAPACITY];
    size_t count;
};

static void
add(struct input *input, const void *bytes, size_t count)
{
    psi_assert(count <= sizeof(input->bytes) - input->count);
    memcpy(input->bytes + input->count, bytes, count);
    input->count += count;
}

static void
begin(struct input *input, int what, int most)
{
    input->count = 0;
    add(input, (uint8_t[]){(uint8_t)what, (uint8_t)most}, 2);
}

/* A record as it would be if the cipher did nothing. */
static void
add_record(struct input *input, int type, const void *bytes, size_t count)
{
    const size_t size = count + 1 + TAG_BYTES;
    const uint8_t tag[TAG_BYTES] = {0};

    add(input, (uint8_t[]){DATA, 3, 3, (uint8_t)(size >> 8), (uint8_t)size}, 5);
    add(input, bytes, count);
    add(input, (uint8_t[]){(uint8_t)type}, 1);
    add(input, tag, sizeof(tag));
}

/* ---- labels ---- */

static void
write_label(const char *directory, const char *name, int what, const char *text)
{
    struct input input = {.count = 0};

    add(&input, (uint8_t[]){(uint8_t)what}, 1);
    add(&input, text, strlen(text));
    write_seed(directory, "handshake", name, input.bytes, input.count);
}

static void
write_labels(const char *directory)
{
    static const struct {
        const char *name;
        int what;
        const char *names;
        bool ends;
    } labels[] = {
        {"label-plain", LABEL | LOOPBACK, "psd1 plain worker:3 server:0.1", false},
        {"label-plain-ends", LABEL | LOOPBACK | ENDS, "psd1 plain worker:3 server:0.1", true},
        {"label-no-ends", LABEL | LOOPBACK | ENDS, "psd1 plain worker:3 server:0.1", false},
        {"label-other-ends", LABEL | LOOPBACK | ENDS,
         "psd1 plain worker:3 server:0.1 tcp://127.0.0.1:1 tcp://127.0.0.1:2", false},
        {"label-tls", LABEL, "psd1 tls worker:3@2.0123456789abcdef server:0.1", false},
        {"label-tls-ends", LABEL | ENDS, "psd1 tls worker:3 server:0.1", true},
        {"label-far-plain", LABEL, "psd1 plain worker:3 server:0.1", false},
        {"label-sealed-plain", LABEL | LOOPBACK | ALWAYS_SEALED, "psd1 plain worker:3 server:0.1",
         false},
        {"label-mac", LABEL | LOOPBACK, "psd1 mac worker:3 server:0.1", false},
        {"label-self", LABEL, "psd1 tls server:0.1@1.0123456789abcdef server:0.1", false},
        {"label-other", LABEL, "psd1 tls worker:3 master", false},
        {"label-old", LABEL, "psd0 tls worker:3 server:0.1", false},
        {"label-blanks", LABEL, "psd1  tls worker:3 server:0.1", false},
        {"label-five", LABEL, "psd1 tls worker:3 server:0.1 more", false},
        {"label-three", LABEL, "psd1 tls worker:3", false},
    };

    char long_label[300];

    memset(long_label, 'x', sizeof(long_label));
    long_label[sizeof(long_label) - 1] = '\0';
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        char text[256];

        snprintf(text, sizeof(text), "%s%s%s", labels[i].names, labels[i].ends ? ends : "", pass);
        write_label(directory, labels[i].name, labels[i].what, text);
    }
    write_label(directory, "label-none", LABEL, "");
    write_label(directory, "label-long", LABEL, long_label);
    write_label(directory, "label-no-pass", LABEL, "psd1 tls worker:3 server:0.1");
    write_label(directory, "label-wrong-number", LABEL,
                "psd1 tls worker:3 server:0.1 000000000000000g0123456789abcdef0123456789abcdef");
}

/* ---- handshakes ---- */

/* What both sides said first. */
struct meeting {
    uint8_t hello[PSI_AUTH_BYTES_MAX];
    size_t hello_bytes;
    uint8_t answer[PSI_AUTH_BYTES_MAX];
    size_t answer_bytes;
};

static void
meet(bool loopback, const char *between, struct meeting *meeting_p)
{
    const struct psi_auth_args caller = {.connecting = true,
                                         .loopback = loopback,
                                         .identity = "worker:3 server:0.1",
                                         .ends = between};
    const struct psi_auth_args callee = {.loopback = loopback, .ends = between};
    struct psi_secret *secret;
    struct psi_tls *tls;
    size_t used = 0;
    size_t left;
    const uint8_t *from;
    void *one;
    void *other;

    psi_assert(psi_secret_create(&secret, NULL) == PSD_OK);
    psi_assert(psi_tls_create(secret, "server:0.1", &tls, NULL) == PSD_OK);
    one = psi_tls_auth.create(tls, &caller);
    other = psi_tls_auth.create(tls, &callee);
    psi_assert(psi_tls_auth.step(one, NULL, 0, &used, meeting_p->hello, sizeof(meeting_p->hello),
                                 &meeting_p->hello_bytes, NULL) == PSD_PENDING);
    from = meeting_p->hello;
    left = meeting_p->hello_bytes;
    meeting_p->answer_bytes = 0;
    while (left > 0) {
        const size_t wants = psi_tls_auth.wants(other);

        psi_assert(psi_tls_auth.step(other, from, left < wants ? left : wants, &used,
                                     meeting_p->answer, sizeof(meeting_p->answer),
                                     &meeting_p->answer_bytes, NULL) == PSD_PENDING);
        from += used;
        left -= used;
    }
    psi_tls_auth.destroy(one);
    psi_tls_auth.destroy(other);
    psi_tls_destroy(tls);
    psi_secret_destroy(secret);
}

/* Any 32 bytes will do for the proof. */
static void
add_finished(struct input *input, bool extensions)
{
    uint8_t message[6 + 4 + 32] = {8, 0, 0, 2, 0, 0, 20, 0, 0, 32};
    const size_t skip = extensions ? 0 : 6;

    add_record(input, HANDSHAKE, message + skip, sizeof(message) - skip);
}

/* What may follow: data, a new key, data, and the end. */
static void
add_talk(struct input *input)
{
    static const uint8_t frame[64] = "PSD1";

    add_record(input, DATA, frame, sizeof(frame));
    add_record(input, HANDSHAKE, (uint8_t[]){24, 0, 0, 1, 0}, 5);
    add_record(input, DATA, frame, sizeof(frame));
    add_record(input, ALERT, (uint8_t[]){1, 0}, 2);
}

/* ... data, and then what nobody may say there. */
static void
add_nonsense(struct input *input)
{
    static const uint8_t frame[64] = "PSD1";

    add_record(input, DATA, frame, sizeof(frame));
    add_record(input, 99, frame, sizeof(frame));
}

/* One call after the other fails. */
static void
write_failures(const char *directory, const char *name, int what, const struct input *whole)
{
    for (int call = 1; call <= 16; call++) {
        struct input input = {.count = 0};
        char text[64];

        add(&input, (uint8_t[]){(uint8_t)(what | FAILURE), (uint8_t)call}, 2);
        add(&input, whole->bytes + 1, whole->count - 1);
        snprintf(text, sizeof(text), "fail-%s-%d", name, call);
        write_seed(directory, "handshake", text, input.bytes, input.count);
    }
}

/* To the side that accepts. */
static void
write_calls(const char *directory, const char *name, int what, const struct meeting *meeting)
{
    static const int most[] = {WHOLE, 6};
    struct input input;
    char text[64];

    for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
        begin(&input, what, most[i]);
        add(&input, meeting->hello, meeting->hello_bytes);
        add_finished(&input, false);
        add_talk(&input);
        snprintf(text, sizeof(text), "call-%s-%d", name, most[i]);
        write_seed(directory, "handshake", text, input.bytes, input.count);
        if (i == 0 && what == 0) {
            snprintf(text, sizeof(text), "call-%s", name);
            write_failures(directory, text, what, &input);
        }
    }
}

/* The listener's answer without the session identifier, which this target's callers do not send. */
static void
add_server_hello(struct input *input, const struct meeting *meeting)
{
    enum { AT_SESSION = 5 + 4 + 2 + 32, SESSION_BYTES = 32 };
    const size_t size = 5 + ((size_t)meeting->answer[3] << 8 | meeting->answer[4]);
    uint8_t start[AT_SESSION + 1];

    psi_assert(meeting->answer[AT_SESSION] == SESSION_BYTES);
    memcpy(start, meeting->answer, sizeof(start));
    start[4] = (uint8_t)(start[4] - SESSION_BYTES);
    start[8] = (uint8_t)(start[8] - SESSION_BYTES);
    start[AT_SESSION] = 0;
    add(input, start, sizeof(start));
    add(input, meeting->answer + AT_SESSION + 1 + SESSION_BYTES,
        size - AT_SESSION - 1 - SESSION_BYTES);
}

/* To the side that connects. */
static void
write_answers(const char *directory, const char *name, int what, const struct meeting *meeting)
{
    struct input input;
    char text[64];

    begin(&input, CONNECTING | what, WHOLE);
    add_server_hello(&input, meeting);
    add_finished(&input, true);
    add_talk(&input);
    snprintf(text, sizeof(text), "answer-%s", name);
    write_seed(directory, "handshake", text, input.bytes, input.count);
    if (what == 0) {
        write_failures(directory, text, CONNECTING, &input);
    }
}

static void
write_wire(const char *directory, const char *name, int what, const void *bytes, size_t count)
{
    struct input input;

    begin(&input, what, WHOLE);
    add(&input, bytes, count);
    write_seed(directory, "handshake", name, input.bytes, input.count);
}

void
write_handshake_seeds(const char *directory)
{
    static const uint8_t alert[] = {ALERT, 3, 3, 0, 2, 2, 40};
    static const uint8_t empty[] = {HANDSHAKE, 3, 3, 0, 0};
    static const uint8_t huge[] = {HANDSHAKE, 3, 3, 255, 255, 1};
    static const char garbage[] = "GET / HTTP/1.1\r\n\r\n";
    struct meeting meeting;
    struct input input;

    write_labels(directory);
    meet(false, NULL, &meeting);
    write_calls(directory, "far", 0, &meeting);
    write_calls(directory, "sealed", LOOPBACK | ALWAYS_SEALED, &meeting);
    write_answers(directory, "far", 0, &meeting);
    begin(&input, 0, WHOLE);
    add(&input, meeting.hello, meeting.hello_bytes);
    add_finished(&input, false);
    write_seed(directory, "handshake", "call-silent", input.bytes, input.count);
    add_nonsense(&input);
    write_seed(directory, "handshake", "call-nonsense", input.bytes, input.count);
    meet(true, NULL, &meeting);
    write_calls(directory, "near", LOOPBACK, &meeting);
    write_calls(directory, "near-to-far", 0, &meeting);
    write_answers(directory, "near", LOOPBACK, &meeting);
    meet(true, ends + 1, &meeting);
    write_calls(directory, "ends", LOOPBACK | ENDS, &meeting);
    write_answers(directory, "ends", LOOPBACK | ENDS, &meeting);
    write_wire(directory, "own-words", CONNECTING, meeting.hello, meeting.hello_bytes);
    write_wire(directory, "alert", 0, alert, sizeof(alert));
    write_wire(directory, "alert-answer", CONNECTING, alert, sizeof(alert));
    write_wire(directory, "empty-record", 0, empty, sizeof(empty));
    write_wire(directory, "huge-record", 0, huge, sizeof(huge));
    write_wire(directory, "label-first", 0, "psd1 tls", 8);
    write_wire(directory, "label-too-long", 0, "\xff\xffpsd1 tls", 10);
    write_wire(directory, "label-short", 0, "\0\10psd1 tls", 10);
    write_wire(directory, "garbage", 0, garbage, sizeof(garbage));
}
