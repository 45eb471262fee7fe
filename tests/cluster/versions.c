/*
 * versions.c - a worker that is compiled with another version of psd.h than the library's.
 *
 * versions [STRUCT]: uses every struct of the public header, and says "done". test_abi.py builds it
 * with a header whose structs are shorter, and with one whose structs have a field more, `later`
 * (-DLATER); STRUCT then names the one in which this field is not 0.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <psd/psd.h>

enum { NODES = 3 }; /* a master, a server, a worker */

static const char *marked = "";

#ifdef LATER
#define MARK(name, object) ((object).later = strcmp(marked, name) == 0)
#else
#define MARK(name, object) ((void)0)
#endif

static void
check(psd_status status)
{
    if (status != PSD_OK) {
        printf("%s: %s\n", psd_status_name(status), psd_last_error()->text);
        exit(1);
    }
}

static void
expect(int condition, const char *text)
{
    if (!condition) {
        printf("not so: %s\n", text);
        exit(1);
    }
}

static psd_context *
join(void)
{
    struct psd_open_args args = {.struct_size = sizeof(args), .op_timeout_ms = 30000};
    psd_context *context;

    MARK("psd_open_args", args);
    check(psd_open(&args, &context));
    return context;
}

static psd_table *
open_table(psd_context *context)
{
    struct psd_rule_args rule = {
        .struct_size = sizeof(rule), .rule = PSD_RULE_SGD, .learning_rate = 0.5};
    struct psd_table_args args = {.struct_size = sizeof(args),
                                  .name = "w",
                                  .dtype = PSD_F32,
                                  .dims = 1,
                                  .shape = {2},
                                  .rule = &rule,
                                  .init = PSD_INIT_CONSTANT,
                                  .init_value = 8};
    psd_table *table;

    MARK("psd_rule_args", rule);
    MARK("psd_table_args", args);
    check(psd_table_open(context, &args, &table));
    return table;
}

static void
move(psd_table *table)
{
    const float gradient[2] = {2, 4};
    float values[2] = {0};
    struct psd_transfer transfer = {
        .struct_size = sizeof(transfer), .gradient = gradient, .values = values};
    psd_op *op;

    MARK("psd_transfer", transfer);
    check(psd_push_pull(table, &transfer, &op));
    check(psd_wait(op, PSD_FOREVER));
    psd_op_release(op);
    expect(values[0] == 7.0f && values[1] == 6.0f, "the values are 7 and 6");
}

static void
look(psd_context *context)
{
    struct psd_node nodes[NODES + 1];
    size_t count;

    memset(nodes, 0x55, sizeof(nodes));
    check(psd_nodes(context, nodes, sizeof(nodes[0]), NODES, &count));
    expect(count == NODES && nodes[0].role == PSD_ROLE_MASTER && nodes[1].role == PSD_ROLE_SERVER &&
               nodes[2].role == PSD_ROLE_WORKER && nodes[2].state == PSD_NODE_RUNNING,
           "the nodes are a master, a server and a worker that runs");
    expect((int)nodes[NODES].role == 0x55555555, "nothing is written behind the last node");
#ifdef LATER
    expect(nodes[1].later == 0 && nodes[2].later == 0, "what the library does not know is 0");
#endif
}

static void
publish(psd_context *context)
{
    float weights[2] = {1, 2};
    struct psd_state states[2] = {{.name = "a", .data = &weights[0], .bytes = sizeof(float)},
                                  {.name = "b", .data = &weights[1], .bytes = sizeof(float)}};

    MARK("psd_state", states[1]);
    check(psd_state_publish(context, 1, states, sizeof(states[0]), 2));
    check(psd_state_publish(context, 1, NULL, sizeof(states[0]), 0));
}

int
main(int argc, char **argv)
{
    psd_context *context;

    marked = argc > 1 ? argv[1] : "";
    context = join();
    move(open_table(context));
    look(context);
    publish(context);
    check(psd_close(context));
    printf("done\n");
    return 0;
}
