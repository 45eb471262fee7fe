/*
 * herd.c - many workers that are already there: herd COUNT
 *
 * Forks COUNT workers, which wait. When all have been forked, they join the job of
 * PSD_MASTER_ADDRESS together; prints how long it took until the last of them was in, and closes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <psd/psd.h>

static uint64_t
now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Waits for the gate to be closed, joins, tells when that was done, and leaves. */
static int
work(unsigned rank, int gate, int results)
{
    char text[16];
    psd_context *context;
    uint64_t joined_us;

    snprintf(text, sizeof(text), "%u", rank);
    if (read(gate, &joined_us, sizeof(joined_us)) != 0) {
        return 1;
    }
    if (psd_open(&(struct psd_open_args){.struct_size = sizeof(struct psd_open_args), .rank = text},
                 &context) != PSD_OK) {
        fprintf(stderr, "worker %u: %s\n", rank, psd_last_error()->text);
        return 1;
    }
    joined_us = now_us();
    if (write(results, &joined_us, sizeof(joined_us)) != (ssize_t)sizeof(joined_us)) {
        return 1;
    }
    return psd_close(context) == PSD_OK ? 0 : 1;
}

int
main(int argc, char **argv)
{
    const unsigned count = argc == 2 ? (unsigned)atoi(argv[1]) : 0;
    uint64_t last_us = 0;
    uint64_t begin_us;
    int gate[2];
    int results[2];
    int bad = 0;

    if (count == 0 || pipe(gate) != 0 || pipe(results) != 0) {
        return 2;
    }
    for (unsigned rank = 0; rank < count; rank++) {
        if (fork() == 0) {
            close(gate[1]);
            _exit(work(rank, gate[0], results[1]));
        }
    }
    close(results[1]);
    begin_us = now_us();
    close(gate[1]);
    for (unsigned i = 0; i < count; i++) {
        uint64_t joined_us = 0;

        if (read(results[0], &joined_us, sizeof(joined_us)) == (ssize_t)sizeof(joined_us)) {
            last_us = joined_us > last_us ? joined_us : last_us;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        int status = -1;

        bad += wait(&status) < 0 || status != 0;
    }
    printf("%u workers joined in %.3f s, %d failed\n", count, (double)(last_us - begin_us) / 1e6,
           bad);
    return bad == 0 ? 0 : 1;
}
