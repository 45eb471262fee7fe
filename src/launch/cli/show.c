/*
 * show.c - `psd_run show`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/show.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/api/observer.h"
#include "launch/cli/table.h"
#include "launch/rules/watch.h"
#include "launch/text/json_text.h"

enum {
    NODES_MAX = 65536,
    ANSWER_MS = 3000,
    GONE_MS = 5000, /* no word for so long: the job is over */
};

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

/* Steps and values are a worker's: the others show none, nor does one whose step the master does not know. */
static void
add_row(struct table *table, const struct psd_node *node)
{
    const bool worker = node->role == PSD_ROLE_WORKER;

    table_cell(table, "%s", role_text(node->role));
    table_cell(table, "%u", node->rank);
    table_cell(table, "%s", state_text(node->state));
    if (worker && !isnan(node->steps_per_s)) {
        table_cell(table, "%llu", (unsigned long long)node->step);
        table_cell(table, "%.1f", node->steps_per_s);
    } else {
        table_cell(table, "-");
        table_cell(table, "-");
    }
    if (worker && node->value_name[0] != '\0') {
        table_cell(table, "%.31s=%.6g", node->value_name, node->value);
    } else {
        table_cell(table, "-");
    }
    table_cell(table, "%.71s", node->address[0] != '\0' ? node->address : "-");
}

void
show_table(FILE *stream, const struct psd_node *nodes, size_t count)
{
    static const char *const heads[] = {"ROLE",    "RANK",  "STATE",  "STEP",
                                        "STEPS/S", "VALUE", "ADDRESS"};
    static const char *const spare[] = {"ADDRESS", "VALUE", NULL};
    struct table table = {0};

    table_begin(&table, heads, sizeof(heads) / sizeof(heads[0]));
    for (size_t i = 0; i < count; i++) {
        add_row(&table, &nodes[i]);
    }
    table_print_within(&table, stream, spare);
    table_fini(&table);
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
        fprintf(stream, ", \"incarnation\": %u, \"step\": ", node->incarnation);
        if (isnan(node->steps_per_s)) { /* not known */
            fputs("null", stream);
        } else {
            fprintf(stream, "%llu", (unsigned long long)node->step);
        }
        fputs(", \"steps_per_s\": ", stream);
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

static void
print(const struct psd_node *nodes, size_t count, uint32_t readers, bool json)
{
    count = count < NODES_MAX ? count : NODES_MAX;
    if (json) {
        show_json(stdout, nodes, count);
    } else {
        show_table(stdout, nodes, count);
        if (readers > 0) {
            printf("\n%u reader%s\n", readers, readers == 1 ? "" : "s");
        }
    }
    fflush(stdout);
}

void
show_clear(void)
{
    if (isatty(STDOUT_FILENO)) {
        printf("\033[H\033[J");
    }
}

static psd_status
ask_once(const char *master_address, struct psd_node *nodes, bool json, struct psd_error *err)
{
    struct psi_observer *observer = NULL;
    size_t count = 0;
    psd_status status = psi_observer_create(master_address, 0, ANSWER_MS, NULL, &observer, err);

    if (status == PSD_OK) {
        status = psi_observer_ask(observer, nodes, NODES_MAX, &count, err);
    }
    if (status == PSD_OK) {
        print(nodes, count, psi_observer_readers(observer), json);
    }
    psi_observer_destroy(observer);
    return status;
}

/* Until the master is gone, over one connection. */
static psd_status
follow(struct psi_observer *observer, struct psd_node *nodes, bool json, struct psd_error *err)
{
    uint32_t timeout_ms = ANSWER_MS;
    psd_status status;
    size_t count;

    while ((status = psi_observer_next(observer, timeout_ms, nodes, NODES_MAX, &count, err)) ==
           PSD_OK) {
        if (timeout_ms == GONE_MS) {
            show_clear();
        }
        print(nodes, count, psi_observer_readers(observer), json);
        timeout_ms = GONE_MS;
    }
    return timeout_ms == GONE_MS ? PSD_OK : status; /* it ended meanwhile */
}

static psd_status
watch_job(const char *master_address, struct psd_node *nodes, bool json, struct psd_error *err)
{
    struct psi_observer *observer = NULL;
    psd_status status =
        psi_observer_create(master_address, SHOW_WATCH_MS, ANSWER_MS, NULL, &observer, err);

    if (status == PSD_OK) {
        status = follow(observer, nodes, json, err);
    }
    psi_observer_destroy(observer);
    return status;
}

int
show_job(const char *master_address, bool json, bool watch)
{
    struct psd_node *nodes = calloc(NODES_MAX, sizeof(*nodes));
    struct psd_error err = {0};
    psd_status status;

    if (nodes == NULL) {
        fprintf(stderr, "psd_run: no memory for the table\n");
        return WATCH_CODE_CANNOT_START;
    }
    status = watch ? watch_job(master_address, nodes, json, &err)
                   : ask_once(master_address, nodes, json, &err);
    if (status != PSD_OK) {
        fprintf(stderr, "psd_run: show %s: %s\n", master_address, err.text);
    }
    free(nodes);
    return status == PSD_OK ? 0 : WATCH_CODE_CANNOT_START;
}
