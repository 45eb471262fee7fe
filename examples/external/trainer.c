/*
 * trainer.c - a worker that lives outside the Poseidon tree: it fits y = 3x + 1.
 *
 *     make && psd_run --workers 2 --servers 1 ./trainer
 *
 * Every worker sees other points. The servers average the gradients of a step and move the two
 * parameters against them; each worker gets the new ones back. Only the installed library is used:
 * see the Makefile.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include <psd/psd.h>

enum { POINTS = 64, STEPS = 200 };

static void
check(psd_status status)
{
    if (status != PSD_OK) {
        fprintf(stderr, "trainer: %s\n", psd_last_error()->text);
        exit(1);
    }
}

/* The gradient of half the mean squared error; line[0] is the slope, line[1] the offset. */
static void
compute_gradient(uint32_t rank, uint32_t size, const float line[2], float gradient[2])
{
    gradient[0] = 0;
    gradient[1] = 0;
    for (uint32_t i = 0; i < POINTS; i++) {
        const float x = (float)(i * size + rank) / (float)(POINTS * size);
        const float error = line[0] * x + line[1] - (3.0f * x + 1.0f);

        gradient[0] += error * x / POINTS;
        gradient[1] += error / POINTS;
    }
}

int
main(void)
{
    struct psd_rule_args rule = {
        .struct_size = sizeof(rule), .rule = PSD_RULE_MOMENTUM, .learning_rate = 0.2};
    struct psd_table_args args = {.struct_size = sizeof(args),
                                  .name = "line",
                                  .dtype = PSD_F32,
                                  .dims = 1,
                                  .shape = {2},
                                  .rule = &rule};
    float line[2] = {0, 0};
    float gradient[2];
    struct psd_transfer transfer = {
        .struct_size = sizeof(transfer), .gradient = gradient, .values = line};
    psd_context *context;
    psd_table *table;
    psd_op *op;

    check(psd_open(NULL, &context));
    check(psd_table_open(context, &args, &table));
    transfer.step = psd_table_step(table);
    check(psd_pull(table, &transfer, &op)); /* what is there: a replacement does not begin at 0 */
    check(psd_wait(op, PSD_FOREVER));
    psd_op_release(op);
    for (; transfer.step < STEPS; transfer.step++) {
        compute_gradient(psd_rank(context), psd_size(context), line, gradient);
        check(psd_push_pull(table, &transfer, &op));
        check(psd_wait(op, PSD_FOREVER));
        psd_op_release(op);
    }
    printf("y = %.2f x + %.2f\n", (double)line[0], (double)line[1]);
    check(psd_close(context));
    return 0;
}
