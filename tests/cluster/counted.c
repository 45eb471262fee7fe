/*
 * counted.c - a worker that does nothing but push_pull: counted STEPS ordinary|region|view [GATE]
 *
 * One table of BYTES, all of whose chunks are full. For counts.c, which counts what it costs.
 * It begins when the file GATE is there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <psd/psd.h>

enum { ELEMENTS = 4 * PSD_CHUNK_ELEMENTS, FILE_WAIT_S = 120 };

static void
check(psd_status status, const char *what)
{
    if (status != PSD_OK) {
        fprintf(stderr, "%s: %s\n", what, psd_last_error()->text);
        exit(1);
    }
}

static void *
gradients(psd_context *context, const char *how)
{
    void *memory = NULL;

    if (strcmp(how, "ordinary") == 0) {
        memory = malloc(ELEMENTS * sizeof(float));
    } else {
        check(psd_alloc(context, ELEMENTS * sizeof(float), &memory), "psd_alloc");
    }
    for (size_t i = 0; memory != NULL && i < ELEMENTS; i++) {
        ((float *)memory)[i] = 1.0f;
    }
    return memory;
}

/* Looks for it until it is there; a test that never makes it is not to leave a process behind. */
static void
wait_for_file(const char *path)
{
    const time_t deadline = time(NULL) + FILE_WAIT_S;

    while (access(path, F_OK) != 0) {
        if (time(NULL) > deadline) {
            fprintf(stderr, "counted: nobody made %s in %d s\n", path, FILE_WAIT_S);
            exit(1);
        }
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
}

int
main(int argc, char **argv)
{
    const struct psd_table_args args = {
        .struct_size = sizeof(args),
        .name = "counted",
        .dtype = PSD_F32,
        .dims = 1,
        .shape = {ELEMENTS},
        .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                        .rule = PSD_RULE_ADD}};
    struct psd_transfer transfer = {.struct_size = sizeof(transfer)};
    const void *values = NULL;
    psd_context *context;
    psd_table *table;
    uint64_t steps;

    if (argc != 3 && argc != 4) {
        return 2;
    }
    steps = strtoull(argv[1], NULL, 10);
    check(psd_open(NULL, &context), "psd_open");
    check(psd_table_open(context, &args, &table), "psd_table_open");
    if (argc == 4) {
        wait_for_file(argv[3]);
    }
    transfer.gradient = gradients(context, argv[2]);
    if (strcmp(argv[2], "view") == 0) {
        check(psd_view(table, &values), "psd_view");
        transfer.flags = PSD_TRANSFER_VIEW;
    } else {
        transfer.values = malloc(ELEMENTS * sizeof(float));
        values = transfer.values;
    }
    for (; transfer.step < steps; transfer.step++) {
        psd_op *op;

        check(psd_push_pull(table, &transfer, &op), "psd_push_pull");
        check(psd_wait(op, PSD_FOREVER), "psd_wait");
        psd_op_release(op);
        if (((const float *)values)[ELEMENTS - 1] != (float)(transfer.step + 1)) {
            fprintf(stderr, "step %llu: wrong value\n", (unsigned long long)transfer.step);
            return 1;
        }
    }
    check(psd_close(context), "psd_close");
    return 0;
}
