/*
 * pushes.c - a worker that makes N steps of 64 bytes, and nothing else: to count what a push_pull costs.
 *
 *     pushes N
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include <psd/psd.h>

enum { ELEMENTS = 16 };

static void
check(psd_status status)
{
    if (status != PSD_OK) {
        fprintf(stderr, "pushes: %s\n", psd_last_error()->text);
        exit(1);
    }
}

int
main(int argc, char **argv)
{
    const uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    const float gradient[ELEMENTS] = {1};
    float values[ELEMENTS];
    psd_context *context;
    psd_table *table;

    check(psd_open(NULL, &context));
    check(psd_table_open(context,
                         &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                                  .name = "weights",
                                                  .dtype = PSD_F32,
                                                  .dims = 1,
                                                  .shape = {ELEMENTS},
                                                  .nan_policy = PSD_NAN_ALLOW},
                         &table));
    for (uint64_t step = psd_table_step(table); step < steps; step++) {
        psd_op *op;

        check(psd_push_pull(table,
                            &(struct psd_transfer){.struct_size = sizeof(struct psd_transfer),
                                                   .step = step,
                                                   .gradient = gradient,
                                                   .values = values},
                            &op));
        check(psd_wait(op, PSD_FOREVER));
        psd_op_release(op);
    }
    check(psd_close(context));
    return 0;
}
