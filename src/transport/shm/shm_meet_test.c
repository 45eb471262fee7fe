/*
 * shm_meet_test.c - who is heard at the meeting place, who is not, and that nothing stays behind.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/shm/shm_meet.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/shm/descriptors.h"

enum { NOBODY = 65534 };

static unsigned
count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

/* An introduction with token `number`; its descriptors are pipes and the like, nobody looks. */
static struct psi_introduction
make_introduction(unsigned number)
{
    struct psi_introduction introduction = {.socket_fd = 0, .ring_fd = 0, .bell_fd = 0};

    memset(introduction.token, 0xa5, sizeof(introduction.token));
    memcpy(introduction.token, &number, sizeof(number));
    return introduction;
}

static psd_status
introduce(const struct psi_shm_meet *meet, unsigned number)
{
    const struct psi_introduction introduction = make_introduction(number);

    return psi_shm_meet_introduce(NULL, meet->name, &introduction, NULL);
}

/* Whether the one with that number is there; it is closed. */
static bool
take(struct psi_shm_meet *meet, unsigned number)
{
    const struct psi_introduction wanted = make_introduction(number);
    struct psi_introduction got;

    if (!psi_shm_meet_take(meet, wanted.token, &got)) {
        return false;
    }
    assert_memory_equal(got.token, wanted.token, sizeof(got.token));
    psi_introduction_close(&got);
    return true;
}

static void
send_to_meeting_place(const struct psi_shm_meet *meet, const void *bytes, size_t size,
                      unsigned fd_count)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char copy[64] = {0};
    struct psi_unix_message message = {.bytes = copy, .size = size, .fd_count = fd_count};

    memcpy(address.sun_path + 1, meet->name, sizeof(meet->name));
    memcpy(copy, bytes, size);
    assert_int_equal(
        psi_unix_send(fd, &message, (const struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + sizeof(meet->name))),
        0);
    close(fd);
}

/* If this fails, a peer on this host does not find us, or is taken for another. */
static void
test_the_right_token(void **state)
{
    const unsigned before = count_descriptors();
    struct psi_shm_meet meet = {.fd = -1};

    (void)state;
    assert_int_equal(psi_shm_meet_open(&meet, NULL), PSD_OK);
    assert_false(take(&meet, 1));
    assert_int_equal(introduce(&meet, 1), PSD_OK);
    assert_int_equal(introduce(&meet, 2), PSD_OK);
    assert_int_equal(introduce(&meet, 3), PSD_OK);
    assert_false(take(&meet, 4));
    assert_true(take(&meet, 2));
    assert_false(take(&meet, 2)); /* once */
    assert_true(take(&meet, 1));
    assert_true(take(&meet, 3));
    assert_int_equal(meet.waiting_count, 0);
    psi_shm_meet_close(&meet);
    psi_shm_meet_close(&meet); /* it is closed already */
    assert_int_equal(count_descriptors(), before);
}

/* If this fails, one wrong bit of a token is let through. */
static void
test_every_bit_of_the_token_counts(void **state)
{
    struct psi_shm_meet meet = {.fd = -1};
    struct psi_introduction introduction = make_introduction(7);
    struct psi_introduction got;

    (void)state;
    assert_int_equal(psi_shm_meet_open(&meet, NULL), PSD_OK);
    assert_int_equal(introduce(&meet, 7), PSD_OK);
    for (unsigned bit = 0; bit < 8 * PSI_SHM_MEET_TOKEN_BYTES; bit++) {
        introduction.token[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(psi_shm_meet_take(&meet, introduction.token, &got));
        introduction.token[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(take(&meet, 7));
    psi_shm_meet_close(&meet);
}

/* If this fails, what the peer sent is not what we get: its ring for its bell, say. */
static void
test_descriptors_keep_their_order(void **state)
{
    struct psi_shm_meet meet = {.fd = -1};
    struct psi_introduction introduction = make_introduction(1);
    struct psi_introduction got;
    int pipes[3][2];
    char byte;

    (void)state;
    assert_int_equal(psi_shm_meet_open(&meet, NULL), PSD_OK);
    for (int i = 0; i < 3; i++) {
        const char number = (char)('0' + i);

        assert_int_equal(pipe2(pipes[i], O_CLOEXEC), 0);
        assert_int_equal(write(pipes[i][1], &number, 1), 1);
    }
    introduction.socket_fd = pipes[0][0];
    introduction.ring_fd = pipes[1][0];
    introduction.bell_fd = pipes[2][0];
    assert_int_equal(psi_shm_meet_introduce(NULL, meet.name, &introduction, NULL), PSD_OK);
    assert_true(psi_shm_meet_take(&meet, introduction.token, &got));
    assert_int_equal(read(got.socket_fd, &byte, 1), 1);
    assert_int_equal(byte, '0');
    assert_int_equal(read(got.ring_fd, &byte, 1), 1);
    assert_int_equal(byte, '1');
    assert_int_equal(read(got.bell_fd, &byte, 1), 1);
    assert_int_equal(byte, '2');
    psi_introduction_close(&got);
    for (int i = 0; i < 3; i++) {
        close(pipes[i][0]);
        close(pipes[i][1]);
    }
    psi_shm_meet_close(&meet);
}

/* If this fails, anybody who finds the name can keep peers out,
 * or fill our table of descriptors. */
static void
test_junk_is_dropped(void **state)
{
    static const struct {
        size_t bytes;
        unsigned fds;
    } junk[] = {{0, 0}, {0, 3}, {1, 3}, {15, 3}, {17, 3}, {64, 3}, {16, 0}, {16, 1}, {16, 2}};
    struct psi_shm_meet meet = {.fd = -1};
    char bytes[64] = {0};
    unsigned before;

    (void)state;
    assert_int_equal(psi_shm_meet_open(&meet, NULL), PSD_OK);
    before = count_descriptors();
    for (unsigned i = 0; i < sizeof(junk) / sizeof(junk[0]); i++) {
        const struct psi_introduction introduction = make_introduction(i);

        memcpy(bytes, introduction.token, sizeof(introduction.token));
        send_to_meeting_place(&meet, bytes, junk[i].bytes, junk[i].fds);
        assert_int_equal(introduce(&meet, 100 + i), PSD_OK); /* a good one behind it */
        assert_true(take(&meet, 100 + i));
        assert_false(take(&meet, i));
        assert_int_equal(meet.waiting_count, 0);
        assert_int_equal(count_descriptors(), before);
    }
    psi_shm_meet_close(&meet);
}

/* If this fails, another user of this host gets in, or can fill our table of descriptors. */
static void
test_another_user_is_not_heard(void **state)
{
    struct psi_shm_meet meet = {.fd = -1};
    unsigned before;
    pid_t child;
    int status;

    (void)state;
    if (geteuid() != 0) {
        skip(); /* only root can become somebody else */
    }
    assert_int_equal(psi_shm_meet_open(&meet, NULL), PSD_OK);
    before = count_descriptors();
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(setuid(NOBODY) != 0 || introduce(&meet, 1) != PSD_OK ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0); /* it was sent */
    assert_false(take(&meet, 1));
    assert_int_equal(meet.waiting_count, 0);
    assert_int_equal(count_descriptors(), before);
    assert_int_equal(introduce(&meet, 1), PSD_OK);
    assert_true(take(&meet, 1));
    psi_shm_meet_close(&meet);
}

/* If this fails, introductions that nobody asks for pile up,
 * or the newest are lost for the oldest. */
static void
test_the_oldest_gives_way(void **state)
{
    enum { SENT = PSI_SHM_MEET_WAITING_MAX + 10 };
    const unsigned before = count_descriptors();
    struct psi_shm_meet meet = {.fd = -1};

    (void)state;
    assert_int_equal(psi_shm_meet_open(&meet, NULL), PSD_OK);
    for (unsigned i = 0; i < SENT; i++) {
        assert_int_equal(introduce(&meet, i), PSD_OK);
        psi_shm_meet_listen(&meet);
    }
    assert_int_equal(meet.waiting_count, PSI_SHM_MEET_WAITING_MAX);
    assert_false(take(&meet, SENT - PSI_SHM_MEET_WAITING_MAX - 1));
    assert_true(take(&meet, SENT - PSI_SHM_MEET_WAITING_MAX));
    assert_true(take(&meet, SENT - 1));
    psi_shm_meet_close(&meet); /* with all the others still waiting */
    assert_int_equal(count_descriptors(), before);
}

/* If this fails, a meeting place that is not listened to blocks those who come, or stays shut for ever. */
static void
test_full_is_said_and_passes(void **state)
{
    struct psi_shm_meet meet = {.fd = -1};
    unsigned sent = 0;

    (void)state;
    assert_int_equal(psi_shm_meet_open(&meet, NULL), PSD_OK);
    while (introduce(&meet, sent) == PSD_OK) {
        sent++;
        assert_true(sent < 100000);
    }
    assert_int_equal(introduce(&meet, sent), PSD_ERR_PEER_LOST);
    psi_shm_meet_listen(&meet);
    assert_int_equal(introduce(&meet, sent), PSD_OK);
    assert_true(take(&meet, sent));
    psi_shm_meet_close(&meet);
}

static bool
is_in_the_kernels_list(const struct psi_shm_meet *meet)
{
    FILE *list = fopen("/proc/net/unix", "re");
    char line[512];
    char inode[32];
    char path[64];
    char target[64] = "";
    char name[PSI_SHM_MEET_NAME_BYTES + 3];
    bool found = false;

    assert_non_null(list);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", meet->fd);
    assert_true(readlink(path, target, sizeof(target) - 1) > 0);
    assert_int_equal(sscanf(target, "socket:[%31[0-9]]", inode), 1);
    snprintf(name, sizeof(name), "@%.*s\n", PSI_SHM_MEET_NAME_BYTES, (const char *)meet->name);
    while (fgets(line, sizeof(line), list) != NULL) {
        found = found || (strstr(line, inode) != NULL && strstr(line, name) != NULL);
    }
    fclose(list);
    return found;
}

/* If this fails, a meeting place has a name in a file system, or one that can be had twice. */
static void
test_names(void **state)
{
    struct psi_shm_meet first = {.fd = -1};
    struct psi_shm_meet second = {.fd = -1};
    struct psd_error err = {0};
    const struct psi_introduction introduction = make_introduction(1);

    (void)state;
    assert_int_equal(psi_shm_meet_open(&first, NULL), PSD_OK);
    assert_int_equal(psi_shm_meet_open(&second, NULL), PSD_OK);
    assert_memory_not_equal(first.name, second.name, sizeof(first.name));
    assert_memory_equal(first.name, "psd-", 4);
    assert_true(is_in_the_kernels_list(&first)); /* '@': in the kernel's own space */
    assert_int_equal(introduce(&second, 1), PSD_OK);
    assert_false(take(&first, 1));
    psi_shm_meet_close(&first);
    assert_int_equal(psi_shm_meet_introduce(NULL, first.name, &introduction, &err),
                     PSD_ERR_PEER_LOST);
    assert_int_not_equal(err.text[0], '\0');
    assert_true(take(&second, 1));
    psi_shm_meet_close(&second);
}

/* If this fails, a daemon that may make no sockets cannot share memory with another one. */
static void
test_introduced_from_a_meeting_place(void **state)
{
    struct psi_shm_meet ours = {.fd = -1};
    struct psi_shm_meet theirs = {.fd = -1};
    const struct psi_introduction introduction = make_introduction(3);
    struct rlimit limit;
    psd_status status;

    (void)state;
    assert_int_equal(psi_shm_meet_open(&ours, NULL), PSD_OK);
    assert_int_equal(psi_shm_meet_open(&theirs, NULL), PSD_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max}), 0);
    status = psi_shm_meet_introduce(&ours, theirs.name, &introduction, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, PSD_OK);
    assert_true(take(&theirs, 3));
    psi_shm_meet_close(&ours);
    psi_shm_meet_close(&theirs);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_right_token),
        cmocka_unit_test(test_every_bit_of_the_token_counts),
        cmocka_unit_test(test_descriptors_keep_their_order),
        cmocka_unit_test(test_junk_is_dropped),
        cmocka_unit_test(test_another_user_is_not_heard),
        cmocka_unit_test(test_the_oldest_gives_way),
        cmocka_unit_test(test_full_is_said_and_passes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_introduced_from_a_meeting_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
