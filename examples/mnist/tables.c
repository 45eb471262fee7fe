/*
 * tables.c - the network's tensors as tables on the servers: open, push, pull, wait.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tables.h"

bool
check(psd_status status, struct failure *failure)
{
    return status == PSD_OK || failed(failure, "%s", psd_last_error()->text);
}

static struct psd_rule_args
choose_rule(const struct options *options, uint32_t workers)
{
    struct psd_rule_args rule = {
        .struct_size = sizeof(rule), .rule = PSD_RULE_SGD, .learning_rate = options->rate};

    if (options->momentum > 0.0) {
        rule.rule = PSD_RULE_MOMENTUM;
        rule.momentum = options->momentum;
    }
    /* A round applies the workers' mean.
     * Without rounds each gradient moves the values by itself. */
    if (options->mode != MODE_BSP) {
        rule.learning_rate /= workers;
    }
    return rule;
}

static struct psd_table_args
describe(const struct tensor *tensor, const struct options *options)
{
    const bool vector = tensor->rows == 1;

    return (struct psd_table_args){
        .struct_size = sizeof(struct psd_table_args),
        .name = tensor->name,
        .dtype = PSD_F32,
        .dims = vector ? 1 : 2,
        .shape = {vector ? tensor->columns : tensor->rows, vector ? 0 : tensor->columns},
        .staleness = options->mode == MODE_ASYNC ? PSD_STALENESS_UNBOUNDED : options->staleness,
        .init = tensor->init_range > 0.0f ? PSD_INIT_UNIFORM : PSD_INIT_ZERO,
        .init_value = (double)tensor->init_range,
    };
}

bool
tables_open(struct tables *tables, psd_context *context, struct network *network,
            const struct options *options, struct failure *failure)
{
    const struct psd_rule_args rule = choose_rule(options, psd_size(context));

    *tables = (struct tables){.network = network};
    for (uint32_t layer = 0; layer < network->layer_count; layer++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            struct psd_table_args args = describe(&network->layers[layer].tensors[t], options);

            args.rule = &rule;
            args.seed = options->seed * LAYERS_MAX + layer;
            /* The next step needs the first layer first: let it overtake. */
            args.priority = (int32_t)(network->layer_count - layer);
            if (!check(psd_table_open(context, &args, &tables->tables[layer][t]), failure)) {
                return false;
            }
        }
    }
    return true;
}

uint64_t
tables_step(const struct tables *tables)
{
    uint64_t first = UINT64_MAX;

    for (uint32_t layer = 0; layer < tables->network->layer_count; layer++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            const uint64_t step = psd_table_step(tables->tables[layer][t]);

            first = step < first ? step : first;
        }
    }
    return first;
}

static bool
pull(struct tables *tables, uint32_t layer, uint32_t t, uint64_t step, struct failure *failure)
{
    const struct psd_transfer transfer = {
        .struct_size = sizeof(transfer),
        .step = step,
        .values = tables->network->layers[layer].tensors[t].values,
    };

    return check(psd_pull(tables->tables[layer][t], &transfer, &tables->ops[layer][t]), failure);
}

static bool
push_pull(struct tables *tables, uint32_t layer, uint32_t t, uint64_t step, struct failure *failure)
{
    const struct tensor *tensor = &tables->network->layers[layer].tensors[t];
    const struct psd_transfer transfer = {
        .struct_size = sizeof(transfer),
        .step = step,
        .gradient = tensor->gradient,
        .values = tensor->values,
    };

    return check(psd_push_pull(tables->tables[layer][t], &transfer, &tables->ops[layer][t]),
                 failure);
}

bool
tables_pull(struct tables *tables, uint64_t step, struct failure *failure)
{
    for (uint32_t layer = 0; layer < tables->network->layer_count; layer++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            if (!pull(tables, layer, t, step, failure)) {
                return false;
            }
        }
    }
    return true;
}

bool
tables_push_layer(struct tables *tables, uint32_t layer, uint64_t step, struct failure *failure)
{
    for (uint32_t t = 0; t < TENSORS; t++) {
        /* The worker before this one may have died after pushing only some of the step's tables. */
        const bool given = psd_table_step(tables->tables[layer][t]) > step;
        const bool ok = given ? pull(tables, layer, t, step + 1, failure)
                              : push_pull(tables, layer, t, step, failure);

        if (!ok) {
            return false;
        }
    }
    return true;
}

bool
tables_wait_layer(struct tables *tables, uint32_t layer, struct failure *failure)
{
    for (uint32_t t = 0; t < TENSORS; t++) {
        psd_op *op = tables->ops[layer][t];

        if (op == NULL) {
            continue;
        }
        if (psd_wait(op, PSD_FOREVER) != PSD_OK) {
            return failed(failure, "%s", psd_op_error(op)->text);
        }
        psd_op_release(op);
        tables->ops[layer][t] = NULL;
    }
    return true;
}

bool
tables_wait(struct tables *tables, struct failure *failure)
{
    for (uint32_t layer = 0; layer < tables->network->layer_count; layer++) {
        if (!tables_wait_layer(tables, layer, failure)) {
            return false;
        }
    }
    return true;
}
