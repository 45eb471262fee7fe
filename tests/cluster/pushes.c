/*
 * pushes.c - a worker that makes steps of one tensor, and nothing else.
 *
 *     pushes STEPS [BYTES [MS]]      BYTES in each: 64. With MS it waits so long before each step, as if it
 *                                    computed, and reports a loss and two more numbers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <psd/psd.h>

static void
check(psd_status status)
{
    if (status != PSD_OK) {
        fprintf(stderr, "pushes: %s\n", psd_last_error()->text);
        exit(1);
    }
}

/* The time that passes, not a wait for anything. */
static void
pass(uint64_t ms)
{
    const struct timespec time = {.tv_sec = (time_t)(ms / 1000),
                                  .tv_nsec = (long)(ms % 1000) * 1000000};

    nanosleep(&time, NULL);
}

static void
tell(psd_context *context, uint64_t step)
{
    check(psd_report(context, step, "loss", 1.0 / (double)(step + 1)));
    check(psd_report(context, step, "accuracy", 1.0 - 1.0 / (double)(step + 1)));
    check(psd_report(context, step, "learning_rate", 1e-3));
    if (step % 16 == 0) {
        printf("step %llu\n", (unsigned long long)step);
        fflush(stdout);
    }
}

int
main(int argc, char **argv)
{
    const uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    const uint64_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 64;
    const uint64_t ms = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    float *gradient = calloc(bytes, 1);
    float *values = calloc(bytes, 1);
    psd_context *context;
    psd_table *table;

    if (gradient == NULL || values == NULL || bytes < sizeof(*gradient)) {
        fprintf(stderr, "pushes: no memory for %llu bytes\n", (unsigned long long)bytes);
        return 1;
    }
    gradient[0] = 1;
    check(psd_open(NULL, &context));
    check(psd_table_open(context,
                         &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                                  .name = "weights",
                                                  .dtype = PSD_F32,
                                                  .dims = 1,
                                                  .shape = {bytes / sizeof(*gradient)},
                                                  .nan_policy = PSD_NAN_ALLOW},
                         &table));
    for (uint64_t step = psd_table_step(table); step < steps; step++) {
        psd_op *op;

        if (ms > 0) {
            pass(ms);
        }
        check(psd_push_pull(table,
                            &(struct psd_transfer){.struct_size = sizeof(struct psd_transfer),
                                                   .step = step,
                                                   .gradient = gradient,
                                                   .values = values},
                            &op));
        check(psd_wait(op, PSD_FOREVER));
        psd_op_release(op);
        if (ms > 0) {
            tell(context, step);
        }
    }
    check(psd_close(context));
    free(gradient);
    free(values);
    return 0;
}
