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

#include <psd/psd.h>

static void
check(psd_status status)
{
    if (status != PSD_OK) {
        fprintf(stderr, "hello: %s\n", psd_last_error()->text);
        exit(1);
    }
}

int
main(void)
{
    const float ones[4] = {1, 1, 1, 1};
    float sums[4] = {0};
    psd_context *context;
    psd_table *table;
    uint32_t rank;

    check(psd_open(NULL, &context));
    check(psd_table_open(context,
                         &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                                  .name = "sums",
                                                  .dtype = PSD_F32,
                                                  .dims = 1,
                                                  .shape = {4},
                                                  .reduce = PSD_REDUCE_SUM,
                                                  .rule = {.rule = PSD_RULE_ADD}},
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
