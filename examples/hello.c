/*
 * hello.c - the smallest worker: everybody adds 1 to four numbers, ten times.
 *
 *     psd_run --workers 3 --servers 1 "bin/hello"
 *
 * With three workers each of them ends with 30.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <psd/psd.h>

static const char help[] =
    "hello - the smallest worker: everybody adds 1 to four numbers, ten times\n"
    "\n"
    "usage: psd_run --workers 3 --servers 1 bin/hello     each of the three ends with 30\n"
    "       hello -h | --version\n"
    "\n"
    "It takes no other options: psd_run tells it its place by the environment "
    "(PSD_MASTER_ADDRESS,\n"
    "PSD_RANK, and the job's secret). Exit status: 0 done, 1 failed, 2 wrong option.\n";

static void
check(psd_status status)
{
    if (status != PSD_OK) {
        fprintf(stderr, "hello: %s\n", psd_last_error()->text);
        exit(1);
    }
}

/* True: one of the two questions was asked, and answered. */
static int
answer(const char *word)
{
    if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0) {
        fputs(help, stdout);
    } else if (strcmp(word, "--version") == 0) {
        printf("hello %s\n", psd_version());
    } else {
        return 0;
    }
    return 1;
}

int
main(int argc, char **argv)
{
    const float ones[4] = {1, 1, 1, 1};
    float sums[4] = {0};
    psd_context *context;
    psd_table *table;
    uint32_t rank;

    if (argc > 1 && answer(argv[1])) {
        return 0;
    }
    if (argc > 1) {
        fprintf(stderr, "hello: %s: no such option; hello -h explains\n", argv[1]);
        return 2;
    }
    check(psd_open(NULL, &context));
    check(psd_table_open(
        context,
        &(struct psd_table_args){
            .struct_size = sizeof(struct psd_table_args),
            .name = "sums",
            .dtype = PSD_F32,
            .dims = 1,
            .shape = {4},
            .reduce = PSD_REDUCE_SUM,
            .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                            .rule = PSD_RULE_ADD}},
        &table));
    for (uint64_t step = psd_table_step(table); step < 10; step++) {
        psd_op *op;

        check(psd_push_pull(table,
                            &(struct psd_transfer){.struct_size = sizeof(struct psd_transfer),
                                                   .step = step,
                                                   .gradient = ones,
                                                   .values = sums},
                            &op));
        check(psd_wait(op, PSD_FOREVER));
        psd_op_release(op);
    }
    rank = psd_rank(context);
    check(psd_close(context));
    printf("hello from worker %" PRIu32 ": %g\n", rank, (double)sums[0]);
    return 0;
}
