/*
 * show.c - `psd_run show`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "launch/rules/watch.h"
#include "launch/text/json_text.h"

enum { NODES_MAX = 65536, ANSWER_MS = 3000, COLUMNS = 7, CELL_BYTES = 80 };

static const char *
role_text(psd_role role)
{
    switch (role) {
    case PSD_ROLE_MASTER:
        return "master";
    case PSD_ROLE_SERVER:
        return "server";
    case PSD_ROLE_WORKER:
        return "worker";
    }
    return "?";
}

static const char *
state_text(psd_node_state state)
{
    switch (state) {
    case PSD_NODE_MISSING:
        return "missing";
    case PSD_NODE_JOINED:
        return "joined";
    case PSD_NODE_RUNNING:
        return "running";
    case PSD_NODE_DONE:
        return "done";
    case PSD_NODE_LOST:
        return "lost";
    }
    return "?";
}

struct row {
    char cells[COLUMNS][CELL_BYTES];
};

/* Steps and values are a worker's: the others show none. */
static void
fill_row(const struct psd_node *node, struct row *row)
{
    const bool worker = node->role == PSD_ROLE_WORKER;

    memset(row, 0, sizeof(*row));
    snprintf(row->cells[0], CELL_BYTES, "%s", role_text(node->role));
    snprintf(row->cells[1], CELL_BYTES, "%u", node->rank);
    snprintf(row->cells[2], CELL_BYTES, "%s", state_text(node->state));
    snprintf(row->cells[3], CELL_BYTES, "-");
    snprintf(row->cells[4], CELL_BYTES, "-");
    snprintf(row->cells[5], CELL_BYTES, "-");
    if (worker) {
        snprintf(row->cells[3], CELL_BYTES, "%llu", (unsigned long long)node->step);
        snprintf(row->cells[4], CELL_BYTES, "%.1f", node->steps_per_s);
    }
    if (worker && node->value_name[0] != '\0') {
        snprintf(row->cells[5], CELL_BYTES, "%.31s=%.6g", node->value_name, node->value);
    }
    snprintf(row->cells[6], CELL_BYTES, "%.71s", node->address[0] != '\0' ? node->address : "-");
}

void
show_table(FILE *stream, const struct psd_node *nodes, size_t count)
{
    static const char *const heads[COLUMNS] = {"ROLE",    "RANK",  "STATE",  "STEP",
                                               "STEPS/S", "VALUE", "ADDRESS"};
    size_t widths[COLUMNS];
    struct row row;

    for (size_t column = 0; column < COLUMNS; column++) {
        widths[column] = strlen(heads[column]);
        for (size_t i = 0; i < count; i++) {
            fill_row(&nodes[i], &row);
            if (strlen(row.cells[column]) > widths[column]) {
                widths[column] = strlen(row.cells[column]);
            }
        }
    }
    for (size_t i = 0; i <= count; i++) {
        if (i > 0) {
            fill_row(&nodes[i - 1], &row);
        }
        for (size_t column = 0; column < COLUMNS; column++) {
            const char *text = i == 0 ? heads[column] : row.cells[column];

            if (column + 1 < COLUMNS) {
                fprintf(stream, "%-*s", (int)widths[column] + 4, text);
            } else {
                fprintf(stream, "%s\n", text);
            }
        }
    }
}

/* Names and addresses come from other processes: nothing of them may break the document. */
static void
print_string(FILE *stream, const char *text)
{
    json_t *value = json_text(text);
    char *quoted = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;

    fputs(quoted != NULL ? quoted : "null", stream);
    free(quoted);
    json_decref(value);
}

static void
print_number(FILE *stream, double value)
{
    if (isfinite(value)) {
        fprintf(stream, "%.17g", value);
    } else {
        fputs("null", stream);
    }
}

void
show_json(FILE *stream, const struct psd_node *nodes, size_t count)
{
    fputs("[", stream);
    for (size_t i = 0; i < count; i++) {
        const struct psd_node *node = &nodes[i];

        fprintf(stream, "%s\n  {\"role\": \"%s\", \"rank\": %u, \"state\": \"%s\"",
                i > 0 ? "," : "", role_text(node->role), node->rank, state_text(node->state));
        fprintf(stream,
                ", \"incarnation\": %u, \"step\": %llu, \"steps_per_s\": ", node->incarnation,
                (unsigned long long)node->step);
        print_number(stream, node->steps_per_s);
        fputs(", \"value_name\": ", stream);
        print_string(stream, node->value_name);
        fputs(", \"value\": ", stream);
        print_number(stream, node->value);
        fputs(", \"address\": ", stream);
        print_string(stream, node->address);
        fputs("}", stream);
    }
    fputs("\n]\n", stream);
}

int
show_job(const char *master_address, bool json)
{
    struct psd_node *nodes = calloc(NODES_MAX, sizeof(*nodes));
    size_t count = 0;
    psd_status status;

    if (nodes == NULL) {
        fprintf(stderr, "psd_run: no memory for the table\n");
        return WATCH_CODE_CANNOT_START;
    }
    status = psd_nodes_at(master_address, ANSWER_MS, nodes, NODES_MAX, &count);
    if (status != PSD_OK) {
        fprintf(stderr, "psd_run: show %s: %s\n", master_address, psd_last_error()->text);
        free(nodes);
        return WATCH_CODE_CANNOT_START;
    }
    count = count < NODES_MAX ? count : NODES_MAX;
    if (json) {
        show_json(stdout, nodes, count);
    } else {
        show_table(stdout, nodes, count);
    }
    free(nodes);
    return 0;
}
