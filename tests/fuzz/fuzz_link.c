/*
 * fuzz_link.c - what the other end of a line may send to psd_run or to an agent.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>

#include "base/fail.h"
#include "fuzz.h"
#include "launch/link/link.h"

enum { INPUT_BYTES_MAX = 64 << 10 };

/* The strings of a message, sent again, are the same message. */
static void
check_words(const struct link_message *message)
{
    struct words words = {0};
    size_t bytes = 0;

    if (link_words(message, &words, NULL) != PSD_OK) {
        psi_assert(message->bytes > 0 && message->data[message->bytes - 1] != '\0');
        return;
    }
    for (size_t i = 0; i < words.count; i++) {
        psi_assert(memcmp(message->data + bytes, words.list[i], strlen(words.list[i]) + 1) == 0);
        bytes += strlen(words.list[i]) + 1;
    }
    psi_assert(bytes == message->bytes);
    words_fini(&words);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct link_message message;
    struct link link;
    char noise[128];
    size_t used = 0;
    int pair[2];
    int result = 0;

    if (size > INPUT_BYTES_MAX || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        return 0;
    }
    link_init(&link, pair[0], pair[0]);
    psi_assert(write(pair[1], data, size) == (ssize_t)size);
    close(pair[1]);
    while (result >= 0 && link_read(&link) == 1) {
        while ((result = link_next(&link, &message)) == 1) {
            used += message.bytes;
            psi_assert(used <= size);
            check_words(&message);
            link_forget(&link, &message);
        }
        (void)link_noise(&link, noise, sizeof(noise));
    }
    link_fini(&link);
    return 0;
}
