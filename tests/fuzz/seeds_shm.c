/*
 * seeds_shm.c - first inputs of fuzz_shm: connections that go over to shared memory, or do not, and
 * what is said there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdbool.h>
#include <string.h>

#include "base/fail.h"
#include "seeds.h"
#include "shm_script.h"
#include "transport/shm/shm_format.h"

enum { STORY_BYTES_MAX = 8192 };

struct story {
    uint8_t bytes[STORY_BYTES_MAX];
    size_t used;
};

static void
put(struct story *story, uint64_t value, unsigned bytes)
{
    psi_assert(story->used + bytes <= STORY_BYTES_MAX);
    for (unsigned i = 0; i < bytes; i++) {
        story->bytes[story->used++] = (uint8_t)(value >> 8 * i);
    }
}

static void
begin(struct story *story, unsigned side)
{
    story->used = 0;
    put(story, side, 1);
}

static void
happen(struct story *story, enum shm_happening what)
{
    put(story, what, 1);
}

static void
pump(struct story *story, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        happen(story, SHM_PUMP);
    }
}

static void
word(struct story *story, unsigned kind)
{
    happen(story, SHM_WORD);
    put(story, kind, 1);
    pump(story, 1);
}

static void
introduce(struct story *story, unsigned lies)
{
    happen(story, SHM_INTRODUCE);
    put(story, lies, 1);
}

/* All the way to shared memory, with or without lies. */
static void
go_over(struct story *story, enum shm_side side, unsigned lies)
{
    begin(story, side);
    if (side == SHM_ACCEPTED) {
        word(story, PSI_SHM_ASK);
        introduce(story, lies);
        word(story, PSI_SHM_TAKEN);
    } else {
        pump(story, 1);
        word(story, PSI_SHM_OFFER);
        introduce(story, lies);
        word(story, PSI_SHM_READY);
    }
    pump(story, 1);
}

struct record {
    unsigned kind;
    unsigned head_bytes;
    unsigned block;
    unsigned segment;
    uint32_t offset;
    uint32_t payload_bytes;
    unsigned lies;
    unsigned what;
};

static void
record(struct story *story, struct record record)
{
    happen(story, SHM_RECORD);
    put(story, record.kind, 1);
    put(story, record.head_bytes, 2);
    put(story, record.block, 1);
    put(story, record.segment, 2);
    put(story, record.offset, 4);
    put(story, record.payload_bytes, 4);
    put(story, record.lies, 1);
    put(story, record.what, 1);
}

static void
announce(struct story *story, unsigned number, enum shm_descriptor what)
{
    happen(story, SHM_ANNOUNCE);
    put(story, number, 2);
    put(story, what, 1);
}

static void
counter(struct story *story, enum shm_counter which, uint32_t value)
{
    happen(story, SHM_COUNTER);
    put(story, which, 1);
    put(story, value, 4);
}

static void
owner_sends(struct story *story, uint32_t bytes, unsigned how)
{
    happen(story, SHM_SEND);
    put(story, bytes, 3);
    put(story, how, 1);
}

static void
peer_reads(struct story *story, unsigned count)
{
    happen(story, SHM_READ);
    put(story, count, 1);
    pump(story, 1);
}

static void
save(const struct story *story, const char *directory, const char *name)
{
    write_seed(directory, "shm", name, story->bytes, story->used);
}

/* Words on the way there, right and wrong. */
static void
write_words(const char *directory)
{
    static const struct {
        const char *name;
        unsigned side;
        unsigned words[3];
    } ways[] = {
        {"accepted-declined", SHM_ACCEPTED, {PSI_SHM_ASK, PSI_SHM_DECLINED}},
        {"accepted-none-taken", SHM_ACCEPTED, {PSI_SHM_ASK, PSI_SHM_TAKEN}},
        {"accepted-twice", SHM_ACCEPTED, {PSI_SHM_ASK, PSI_SHM_ASK}},
        {"accepted-wrong", SHM_ACCEPTED, {PSI_SHM_READY}},
        {"accepted-alone", SHM_ACCEPTED | SHM_ALONE, {PSI_SHM_ASK}},
        {"connected-alone", SHM_CONNECTED | SHM_ALONE, {PSI_SHM_OFFER}},
        {"connected-nowhere", SHM_CONNECTED, {PSI_SHM_OFFER | SHM_NOWHERE}},
        {"connected-none", SHM_CONNECTED, {PSI_SHM_NONE}},
        {"connected-offer-none", SHM_CONNECTED, {PSI_SHM_OFFER, PSI_SHM_NONE}},
        {"connected-offer-twice", SHM_CONNECTED, {PSI_SHM_OFFER, PSI_SHM_OFFER}},
        {"connected-ready", SHM_CONNECTED, {PSI_SHM_READY}},
        {"connected-nothing-shared", SHM_CONNECTED, {PSI_SHM_OFFER, PSI_SHM_READY}},
    };

    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct story story;

        begin(&story, ways[i].side);
        pump(&story, 1);
        for (unsigned j = 0; j < 3 && ways[i].words[j] != 0; j++) {
            word(&story, ways[i].words[j]);
        }
        owner_sends(&story, 100, SHM_ORDINARY);
        pump(&story, 1);
        save(&story, directory, ways[i].name);
    }
}

static void
write_lies(const char *directory)
{
    static const struct {
        const char *name;
        enum shm_side side;
        unsigned lies;
    } lies[] = {
        {"ring-is-bell", SHM_ACCEPTED, SHM_RING_IS_BELL},
        {"ring-is-file", SHM_ACCEPTED, SHM_RING_IS_FILE},
        {"bell-is-ring", SHM_ACCEPTED, SHM_BELL_IS_RING},
        {"bell-unsealed", SHM_ACCEPTED, SHM_BELL_IS_UNSEALED},
        {"wrong-token", SHM_ACCEPTED, SHM_WRONG_TOKEN},
        {"socket-closed", SHM_ACCEPTED, SHM_SOCKET_IS_CLOSED},
        {"answer-too-few", SHM_CONNECTED, SHM_TOO_FEW},
        {"answer-unsealed", SHM_CONNECTED, SHM_BELL_IS_UNSEALED},
        {"answer-file", SHM_CONNECTED, SHM_RING_IS_FILE},
    };

    for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct story story;

        go_over(&story, lies[i].side, lies[i].lies);
        save(&story, directory, lies[i].name);
    }
}

/* A frame before and instead of the question; and held back by who has asked. */
static void
write_frames_over_the_stream(const char *directory)
{
    struct story story;

    begin(&story, SHM_ACCEPTED);
    happen(&story, SHM_BYTES);
    put(&story, 64, 1);
    put(&story, 0, 8);
    for (unsigned i = 8; i < 64; i += 8) {
        put(&story, 0, 8);
    }
    pump(&story, 1);
    save(&story, directory, "plain");

    begin(&story, SHM_ACCEPTED);
    word(&story, PSI_SHM_ASK);
    owner_sends(&story, 100, SHM_ORDINARY); /* held back, too */
    happen(&story, SHM_BYTES);
    put(&story, 64, 1);
    for (unsigned i = 0; i < 64; i += 8) {
        put(&story, 0, 8);
    }
    pump(&story, 1);
    save(&story, directory, "frame-after-offer");

    begin(&story, SHM_CONNECTED);
    owner_sends(&story, 1000, SHM_ORDINARY);
    pump(&story, 1);
    owner_sends(&story, 20000, SHM_LENT);
    word(&story, PSI_SHM_OFFER);
    owner_sends(&story, 20000, SHM_LENT_BUT_CHANGING);
    introduce(&story, 0);
    word(&story, PSI_SHM_READY);
    peer_reads(&story, 10);
    save(&story, directory, "held");
}

static void
pump_poor(struct story *story, unsigned descriptors)
{
    happen(story, SHM_PUMP_POOR);
    put(story, descriptors, 1);
}

/* Few descriptors are left, or none, when one side goes over, or makes its first copy. */
static void
write_shortages(const char *directory)
{
    for (unsigned i = 0; i < 10; i++) {
        const bool connected = i < 5;
        struct story story;
        char name[] = "poor-0";

        begin(&story, connected ? SHM_CONNECTED : SHM_ACCEPTED);
        pump(&story, 1);
        happen(&story, SHM_WORD);
        put(&story, connected ? PSI_SHM_OFFER : PSI_SHM_ASK, 1);
        if (connected) {
            pump_poor(&story, i);
        } else {
            pump(&story, 1);
        }
        introduce(&story, 0);
        happen(&story, SHM_WORD);
        put(&story, connected ? PSI_SHM_READY : PSI_SHM_TAKEN, 1);
        pump_poor(&story, i % 5);
        pump(&story, 1);
        name[5] = (char)('0' + i);
        save(&story, directory, name);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct story story;

        go_over(&story, SHM_ACCEPTED, 0);
        for (unsigned j = 0; j < i; j++) {
            owner_sends(&story, 20000, SHM_ORDINARY);
        }
        for (unsigned j = 0; j < 70; j++) {
            owner_sends(&story, 8000, SHM_ORDINARY);
        }
        owner_sends(&story, 20000, SHM_ORDINARY);
        happen(&story, SHM_READ);
        put(&story, 60, 1);
        pump_poor(&story, 0);
        pump(&story, 1);
        save(&story, directory, i == 0 ? "poor-first-copy" : "poor-second-copy");
    }
}

/* Whoever is on this host can knock at the meeting place. */
static void
write_junk(const char *directory)
{
    struct story story;

    begin(&story, SHM_ACCEPTED);
    word(&story, PSI_SHM_ASK);
    for (unsigned i = 0; i < 7; i++) {
        happen(&story, SHM_DATAGRAM);
        put(&story, i == 6 ? 16 : i * 8, 1);
        put(&story, i, 1);
        for (unsigned j = 0; j < i; j++) {
            put(&story, 0, 8);
        }
    }
    introduce(&story, 0);
    word(&story, PSI_SHM_TAKEN);
    save(&story, directory, "junk");
}

/* Frames of every kind, kept, discarded, refused. */
static void
write_good_records(const char *directory)
{
    static const unsigned whats[] = {0,
                                     SHM_KEEP,
                                     SHM_DISCARD,
                                     SHM_REFUSE_PREFIX,
                                     SHM_REFUSE_HEAD,
                                     SHM_REFUSE_FRAME,
                                     SHM_KEEP | SHM_CLOSE_IN_HEAD,
                                     SHM_CLOSE_IN_HEAD,
                                     SHM_CLOSE_IN_FRAME};

    for (unsigned side = 0; side < 2; side++) {
        for (unsigned i = 0; i < sizeof(whats) / sizeof(whats[0]); i++) {
            struct story story;
            char name[] = "records-0-0";

            go_over(&story, (enum shm_side)side, 0);
            record(&story, (struct record){.kind = PSI_SHM_FRAME, .head_bytes = 64});
            record(&story,
                   (struct record){.kind = PSI_SHM_FRAME, .head_bytes = 164, .payload_bytes = 500});
            pump(&story, 1);
            announce(&story, 5, SHM_SEGMENT);
            record(&story, (struct record){.kind = PSI_SHM_LENT,
                                           .head_bytes = 64,
                                           .segment = 5,
                                           .offset = 96,
                                           .payload_bytes = 10000,
                                           .block = 7,
                                           .what = whats[i]});
            record(&story, (struct record){.kind = PSI_SHM_LENT,
                                           .head_bytes = 64,
                                           .segment = 5,
                                           .payload_bytes = 64 << 10,
                                           .what = whats[i]});
            record(&story, (struct record){.kind = PSI_SHM_FRAME,
                                           .head_bytes = 64,
                                           .payload_bytes = 8192,
                                           .what = whats[i]});
            pump(&story, 1);
            record(&story, (struct record){.kind = PSI_SHM_FORGET, .segment = 5});
            pump(&story, 1);
            happen(&story, SHM_GIVE_BACK);
            peer_reads(&story, 5);
            name[8] = (char)('0' + side);
            name[10] = (char)('0' + i);
            save(&story, directory, name);
        }
    }
}

static void
write_bad_records(const char *directory)
{
    static const struct record bad[] = {
        {.kind = 9, .head_bytes = 64},
        {.kind = PSI_SHM_FRAME, .head_bytes = 63},
        {.kind = PSI_SHM_FRAME, .head_bytes = 5000},
        {.kind = PSI_SHM_FRAME, .head_bytes = 64, .lies = 3},
        {.kind = PSI_SHM_FRAME, .head_bytes = 64, .lies = SHM_SIZE_LIE_MASK},
        {.kind = PSI_SHM_FRAME, .head_bytes = 64, .lies = SHM_HEAD_CONTRADICTS},
        {.kind = PSI_SHM_FRAME, .head_bytes = 64, .payload_bytes = 9000},
        {.kind = PSI_SHM_LENT, .head_bytes = 64, .segment = 1, .payload_bytes = 10},
        {.kind = PSI_SHM_LENT, .head_bytes = 64, .segment = 5000, .payload_bytes = 10},
        {.kind = PSI_SHM_LENT, .head_bytes = 64, .payload_bytes = 0},
        {.kind = PSI_SHM_LENT, .head_bytes = 64, .payload_bytes = (64 << 10) + 1},
        {.kind = PSI_SHM_LENT, .head_bytes = 64, .offset = 64 << 10, .payload_bytes = 1},
        {.kind = PSI_SHM_RETURNED, .block = 0},
        {.kind = PSI_SHM_RETURNED, .block = 9},
        {.kind = PSI_SHM_FORGET, .segment = 9},
        {.kind = PSI_SHM_RETURNED, .block = 1}, /* once too often */
        {.kind = PSI_SHM_FORGOTTEN, .segment = 0},
        {.kind = PSI_SHM_FORGOTTEN, .segment = 5000},
    };

    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct story story;
        char name[] = "bad-a";

        go_over(&story, SHM_ACCEPTED, 0);
        announce(&story, 0, SHM_SEGMENT);
        owner_sends(&story, 9000, SHM_ORDINARY); /* block 1 */
        peer_reads(&story, 1);                   /* and gives it back */
        record(&story, bad[i]);
        pump(&story, 1);
        name[4] = (char)('a' + i);
        save(&story, directory, name);
    }
}

static void
write_announcements(const char *directory)
{
    static const unsigned numbers[] = {0, 1023, 1024, 3};

    for (unsigned what = 0; what < SHM_DESCRIPTORS; what++) {
        struct story story;
        char name[] = "announced-0";

        go_over(&story, SHM_CONNECTED, 0);
        announce(&story, numbers[what], (enum shm_descriptor)what);
        pump(&story, 1);
        announce(&story, what == 0 ? 0 : 2, SHM_SEGMENT); /* the first of them twice */
        pump(&story, 1);
        name[10] = (char)('0' + what);
        save(&story, directory, name);
    }
    for (unsigned fds = 0; fds < 7; fds++) {
        struct story story;
        char name[] = "message-0";

        go_over(&story, SHM_ACCEPTED, 0);
        happen(&story, SHM_MESSAGE);
        put(&story, fds == 3 ? 60 : 16, 1);
        put(&story, fds, 1);
        for (unsigned i = 0; i < 64; i += 8) {
            put(&story, 0, 8);
        }
        pump(&story, 1);
        name[8] = (char)('0' + fds);
        save(&story, directory, name);
    }
}

/* Counters that make no sense, and a peer that sleeps and starves. */
static void
write_counters(const char *directory)
{
    static const struct {
        enum shm_counter which;
        uint32_t value;
    } lies[] = {{SHM_TAIL, 4},          {SHM_TAIL_MORE, 8},    {SHM_TAIL, UINT32_MAX},
                {SHM_HEAD, UINT32_MAX}, {SHM_HEAD_LESS, 1000}, {SHM_STARVED, 1},
                {SHM_SLEEPERS, 1}};

    for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct story story;
        char name[] = "counter-0";

        go_over(&story, SHM_ACCEPTED, 0);
        counter(&story, SHM_SLEEPERS, 1);
        counter(&story, lies[i].which, lies[i].value);
        for (unsigned j = 0; j < 70; j++) {
            owner_sends(&story, 8000, SHM_ORDINARY); /* more than the ring holds */
        }
        pump(&story, 1);
        record(&story, (struct record){.kind = PSI_SHM_FRAME, .head_bytes = 64});
        pump(&story, 1);
        if (lies[i].which >= SHM_STARVED) {
            peer_reads(&story, 50);
            peer_reads(&story, 50);
        }
        name[8] = (char)('0' + i);
        save(&story, directory, name);
    }
}

/* What the owner sends, until there is no more room, and after it has closed. */
static void
write_sending(const char *directory)
{
    struct story story;

    go_over(&story, SHM_CONNECTED, 0);
    owner_sends(&story, 20000, SHM_LENT);
    owner_sends(&story, 20000, SHM_LENT_BUT_CHANGING);
    happen(&story, SHM_RELEND);
    owner_sends(&story, 20000, SHM_LENT);
    for (unsigned i = 0; i < 20; i++) {
        owner_sends(&story, 600000, SHM_ORDINARY); /* more than may be copied */
    }
    pump(&story, 1);
    peer_reads(&story, 5);
    peer_reads(&story, 50);
    peer_reads(&story, 50);
    save(&story, directory, "sending");

    go_over(&story, SHM_ACCEPTED, 0);
    for (unsigned i = 0; i < 100; i++) {
        owner_sends(&story, 8000, SHM_ORDINARY);
    }
    record(&story, (struct record){.kind = PSI_SHM_FRAME, .head_bytes = 64, .payload_bytes = 10});
    happen(&story, SHM_CLOSE);
    put(&story, 1, 1);
    pump(&story, 1);
    peer_reads(&story, 60);
    pump(&story, 1);
    peer_reads(&story, 60);
    save(&story, directory, "leaving");

    go_over(&story, SHM_ACCEPTED, 0);
    record(&story, (struct record){.kind = PSI_SHM_FRAME, .head_bytes = 64, .payload_bytes = 10});
    happen(&story, SHM_HANG_UP);
    put(&story, 1, 1);
    pump(&story, 1);
    save(&story, directory, "gone");

    go_over(&story, SHM_ACCEPTED, 0);
    happen(&story, SHM_HANG_UP);
    put(&story, 1, 1);
    owner_sends(&story, 20000, SHM_ORDINARY); /* before it is noticed */
    pump(&story, 1);
    save(&story, directory, "gone-unnoticed");
}

/* Loans that are given back when there is no room to say so. */
static void
write_notes(const char *directory)
{
    struct story story;

    go_over(&story, SHM_ACCEPTED, 0);
    announce(&story, 0, SHM_SEGMENT);
    for (unsigned i = 0; i < 3; i++) {
        record(&story, (struct record){.kind = PSI_SHM_LENT,
                                       .head_bytes = 64,
                                       .block = i + 1,
                                       .payload_bytes = 9000,
                                       .what = SHM_KEEP});
    }
    pump(&story, 1);
    owner_sends(&story, 20000, SHM_LENT);
    for (unsigned i = 0; i < 70; i++) {
        owner_sends(&story, 8000, SHM_ORDINARY);
    }
    happen(&story, SHM_GIVE_BACK);
    happen(&story, SHM_RELEND);
    pump(&story, 1);
    peer_reads(&story, 30);
    peer_reads(&story, 200);
    save(&story, directory, "notes");

    /* given back in another order than they came */
    go_over(&story, SHM_ACCEPTED, 0);
    announce(&story, 0, SHM_SEGMENT);
    for (unsigned i = 0; i < 2; i++) {
        record(&story, (struct record){.kind = PSI_SHM_LENT,
                                       .head_bytes = 64,
                                       .payload_bytes = 9000,
                                       .what = i == 0 ? SHM_KEEP : SHM_DISCARD});
    }
    for (unsigned i = 0; i < 3; i++) {
        record(&story, (struct record){.kind = PSI_SHM_LENT,
                                       .head_bytes = 64,
                                       .payload_bytes = 9000,
                                       .what = SHM_KEEP});
    }
    pump(&story, 1);
    happen(&story, SHM_GIVE_BACK);
    save(&story, directory, "loans");
}

/* More than is heard in one turn, and a writer that sleeps until there is room. */
static void
write_many(const char *directory)
{
    struct story story;

    go_over(&story, SHM_ACCEPTED, 0);
    for (unsigned i = 0; i < 140; i++) {
        record(&story, (struct record){.kind = PSI_SHM_FRAME, .head_bytes = 64});
    }
    counter(&story, SHM_SLEEPERS, 1);
    counter(&story, SHM_STARVED, 1);
    pump(&story, 2);
    save(&story, directory, "many");

    go_over(&story, SHM_ACCEPTED, 0);
    for (unsigned i = 0; i < 290; i++) {
        owner_sends(&story, 9000, SHM_ORDINARY); /* more than there are blocks */
    }
    pump(&story, 1);
    peer_reads(&story, 255);
    pump(&story, 1);
    save(&story, directory, "blocks");
}

/* Both have patience; the peer sleeps meanwhile. */
static void
write_patience(const char *directory)
{
    struct story story;

    go_over(&story, SHM_ACCEPTED, 0);
    counter(&story, SHM_SLEEPERS, 1);
    owner_sends(&story, 100, SHM_PATIENT + 3);
    owner_sends(&story, 20000, SHM_PATIENT + 1);
    peer_reads(&story, 1);
    owner_sends(&story, 100, SHM_PATIENT);
    owner_sends(&story, 100, SHM_ORDINARY);
    pump(&story, 1);
    save(&story, directory, "patience");
}

void
write_shm_seeds(const char *directory)
{
    write_patience(directory);
    write_words(directory);
    write_lies(directory);
    write_frames_over_the_stream(directory);
    write_shortages(directory);
    write_junk(directory);
    write_good_records(directory);
    write_bad_records(directory);
    write_announcements(directory);
    write_counters(directory);
    write_sending(directory);
    write_notes(directory);
    write_many(directory);
}
