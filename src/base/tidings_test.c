/*
 * tidings_test.c - what the master writes is what psd_run reads, and nothing else is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/tidings.h"

/* If this fails, psd_run misunderstands its own master, and blames the wrong process. */
static void
test_lines_come_back(void **state)
{
    (void)state;
    for (int kind = PSI_TIDING_JOINED; kind <= PSI_TIDING_END; kind++) {
        for (int role = PSI_TIDING_MASTER; role <= PSI_TIDING_WORKER; role++) {
            for (int loss = PSI_LOSS_NONE; loss <= PSI_LOSS_UNREACHED; loss++) {
                const bool told = kind == PSI_TIDING_LOST || kind == PSI_TIDING_END;
                struct psi_tiding tiding = {
                    .kind = (enum psi_tiding_kind)kind,
                    .role = (enum psi_tiding_role)role,
                    .rank = 4094,
                    .step = kind == PSI_TIDING_DONE || kind == PSI_TIDING_COUNTS ||
                                    kind == PSI_TIDING_LEFT || kind == PSI_TIDING_SAVED
                                ? UINT64_MAX
                                : 0,
                    .lane = kind == PSI_TIDING_CROSSED || kind == PSI_TIDING_MOVED ? 63 : 0,
                    .to = kind == PSI_TIDING_MOVED ? 255 : 0,
                    .bytes = kind == PSI_TIDING_MOVED ? UINT64_MAX - 1 : 0,
                    .life = (kind == PSI_TIDING_JOINED || kind == PSI_TIDING_CROSSED ||
                             kind == PSI_TIDING_DRAINED || kind == PSI_TIDING_END) &&
                                    loss > 0
                                ? UINT64_MAX - (uint64_t)loss
                                : 0,
                    .code = kind == PSI_TIDING_END ? 71 : 0,
                    .loss = told ? (enum psi_loss)loss : PSI_LOSS_NONE};
                struct psi_tiding read = {0};
                char line[PSI_TIDING_LINE];
                size_t bytes;

                if (kind == PSI_TIDING_PLACE) {
                    tiding.place = (struct psi_tiding_place){
                        .lanes = 2,
                        .by = {loss == 0 ? PSI_TIDING_NOBODY : 3, 255},
                        .copy = {4, loss == 1 ? PSI_TIDING_NOBODY : 5},
                        .state =
                            loss <= PSI_COPY_NEEDLESS ? (enum psi_copy_state)loss : PSI_COPY_NONE};
                }
                if (told || kind == PSI_TIDING_HELD) {
                    snprintf(tiding.text, sizeof(tiding.text), "worker 3 (tcp://h:1) lost: %d: x",
                             loss);
                }
                bytes = psi_tiding_format(&tiding, line);
                assert_int_equal(bytes, strlen(line));
                assert_int_equal(line[bytes - 1], '\n');
                line[bytes - 1] = '\0';
                assert_true(psi_tiding_parse(line, &read));
                assert_memory_equal(&read, &tiding, sizeof(read));
            }
        }
    }
}

/* If this fails, a reason that another process chose forges lines of its own. */
static void
test_text_stays_in_its_line(void **state)
{
    struct psi_tiding tiding = {.kind = PSI_TIDING_LOST, .role = PSI_TIDING_WORKER};
    struct psi_tiding read = {0};
    char line[PSI_TIDING_LINE];
    size_t bytes;

    (void)state;
    memset(tiding.text, 'x', sizeof(tiding.text) - 1);
    memcpy(tiding.text, "a\nend 0\r\t", 9);
    bytes = psi_tiding_format(&tiding, line);
    assert_ptr_equal(strchr(line, '\n'), line + bytes - 1);
    line[bytes - 1] = '\0';
    assert_true(psi_tiding_parse(line, &read));
    assert_int_equal(strlen(read.text), sizeof(read.text) - 1);
    assert_memory_equal(read.text, "a end 0  x", 10);
}

/* If this fails, psd_run takes an address, or nonsense, for news. */
static void
test_other_lines_are_none(void **state)
{
    static const char *const lines[] = {"",
                                        "tcp://127.0.0.1:4711",
                                        "joined",
                                        "joined worker",
                                        "joined worker x",
                                        "joined wizard 3",
                                        "lost worker 3",
                                        "lost worker 3 eaten: by a bear",
                                        "lost wizard 3 silent: x",
                                        "place server 1",
                                        "place server 1 by 0 eaten in 2",
                                        "place server 1 by x whole in 2",
                                        "place server 1 by 0,1 whole in 2",
                                        "place server 1 by 0, whole in 2",
                                        "end worker 3 silent: x",
                                        "end 70 worker 3 silent"};
    struct psi_tiding read = {.rank = 7};

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_false(psi_tiding_parse(lines[i], &read));
        assert_int_equal(read.rank, 7);
    }
}

/* If this fails, the master does not hear that a server has ended, or takes another for it. */
static void
test_who_is_gone(void **state)
{
    static const char *const lines[] = {"",
                                        "gone",
                                        "gone server 1",
                                        "gone server 1 life 0",
                                        "gone server x life 5",
                                        "gone worker 1 life 5",
                                        "gone server 1 life 5 and more",
                                        "leave server 1",
                                        "leave server 1 life 0",
                                        "leave worker 1 life 5",
                                        "crossed server 1",
                                        "crossed server 1 number 5",
                                        "crossed server 1 lane 0 number 0",
                                        "crossed server 1 lane 64 number 5",
                                        "done server 1",
                                        "done worker",
                                        "done worker 1 and more",
                                        "al",
                                        "all and more"};
    static const struct psi_word words[] = {
        {.kind = PSI_WORD_GONE, .rank = 255, .number = UINT64_MAX - 1},
        {.kind = PSI_WORD_CROSSED, .rank = 3, .lane = 2, .number = UINT64_MAX - 2},
        {.kind = PSI_WORD_LEAVE, .rank = 2, .number = 77},
        {.kind = PSI_WORD_DONE, .rank = 1023},
        {.kind = PSI_WORD_DEAD, .rank = 0},
        {.kind = PSI_WORD_SAVE},
        {.kind = PSI_WORD_ALL}};
    char line[PSI_TIDING_LINE];

    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct psi_word read = {0};
        const size_t bytes = psi_word_format(&words[i], line);

        assert_int_equal(line[bytes - 1], '\n');
        line[bytes - 1] = '\0';
        assert_true(psi_word_parse(line, &read));
        assert_int_equal(read.kind, words[i].kind);
        assert_int_equal(read.rank, words[i].rank);
        assert_int_equal(read.number, words[i].number);
    }
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct psi_word read = {0};

        assert_false(psi_word_parse(lines[i], &read));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_come_back),
        cmocka_unit_test(test_text_stays_in_its_line),
        cmocka_unit_test(test_other_lines_are_none),
        cmocka_unit_test(test_who_is_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
