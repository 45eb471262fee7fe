/*
 * print_cluster.c - which task of a Slurm allocation is what, and where it is reached.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/print_cluster.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "launch/prepare/allocation.h"
#include "launch/prepare/prepare.h"
#include "launch/system/ports.h"
#include "launch/system/reach.h"
#include "launch/text/memory.h"
#include "launch/text/variables.h"

enum { ADDRESS_BYTES = 64, PORT_STRIDE = 997 };

/* What is printed, gathered piece by piece. */
struct sheet {
    const struct launch_options *options;
    struct run_args *args;
    struct psi_cluster file; /* zero: none was given */
    struct slurm slurm;
    struct roles roles;
    char (*addresses)[ADDRESS_BYTES]; /* owned, by node */
};

/* ------------------------------------------------------------------------------- addresses --- */

/* TFSERVER: one address for each node, in the order of the nodes, separated by blanks, line
 * ends or commas. */
static psd_status
take_given(struct sheet *sheet, const char *given, struct psd_error *err)
{
    static const char blanks[] = " \t\r\n,";
    const size_t nodes = sheet->slurm.nodes.count;
    size_t count = 0;

    for (given += strspn(given, blanks); *given != '\0'; given += strspn(given, blanks)) {
        const size_t bytes = strcspn(given, blanks);

        if (bytes >= ADDRESS_BYTES) {
            return psi_fail(err, PSD_ERR_INVALID, "TFSERVER: \"%.64s...\" is no address", given);
        }
        if (count < nodes) {
            snprintf(sheet->addresses[count], ADDRESS_BYTES, "%.*s", (int)bytes, given);
        }
        count++;
        given += bytes;
    }
    return count == nodes
               ? PSD_OK
               : psi_fail(err, PSD_ERR_INVALID,
                          "TFSERVER has %zu addresses, but there are %zu nodes", count, nodes);
}

/* The own name may mean loopback: then the way to another node tells the address. */
static void
find_own(struct sheet *sheet, char address_p[ADDRESS_BYTES])
{
    const char *launcher = variables_get(sheet->args->environment, "SLURM_LAUNCH_NODE_IPADDR");

    for (size_t i = 0; i < sheet->slurm.nodes.count; i++) {
        if (i != sheet->slurm.node && sheet->addresses[i][0] != '\0') {
            reach_source(sheet->addresses[i], address_p);
            return;
        }
    }
    if (launcher != NULL) {
        reach_source(launcher, address_p);
    }
}

/* A task looks the nodes up by itself: all of them find the same. */
static psd_status
look_up(struct sheet *sheet, struct psd_error *err)
{
    const struct slurm *slurm = &sheet->slurm;

    if (sheet->options->interface != NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--interface: a task cannot ask the other nodes; run psd_run "
                        "--print_cluster in the batch script, or give TFSERVER");
    }
    for (size_t i = 0; i < slurm->nodes.count; i++) {
        reach_resolve(slurm->nodes.names[i], sheet->addresses[i]);
        if (reach_is_loopback(sheet->addresses[i])) {
            sheet->addresses[i][0] = '\0';
        }
    }
    if (sheet->addresses[slurm->node][0] == '\0') {
        find_own(sheet, sheet->addresses[slurm->node]);
    }
    for (size_t i = 0; i < slurm->nodes.count; i++) {
        if (sheet->addresses[i][0] == '\0') {
            return psi_fail(err, PSD_ERR_IO,
                            "no address of node %.64s is known here; give all of them in TFSERVER",
                            slurm->nodes.names[i]);
        }
    }
    return PSD_OK;
}

/* A script asks every node, as psd_run --check does. */
static psd_status
ask_nodes(struct sheet *sheet, int *code_p, struct psd_error *err)
{
    char *const nothing[] = {"true", NULL};
    struct launch_options options = *sheet->options;
    struct prepared prepared;
    psd_status status;

    options.argv = nothing;
    status = prepare_job(&options, sheet->args->environment, NULL, &prepared, err);
    if (status != PSD_OK) {
        return status;
    }
    sheet->args->plan = &prepared.plan;
    sheet->args->layout = &prepared.layout;
    sheet->args->watch = prepared.watch;
    sheet->args->shell = prepare_shell_rules(&prepared);
    sheet->args->interface = options.interface;
    sheet->args->check = true;
    sheet->args->job = "print_cluster";
    sheet->args->addresses_p = calloc(prepared.layout.machine_count, ADDRESS_BYTES);
    *code_p = sheet->args->addresses_p != NULL ? run_job(sheet->args) : WATCH_CODE_CANNOT_START;
    for (size_t i = 0; *code_p == 0 && i < sheet->slurm.nodes.count; i++) {
        const uint32_t machine = layout_find(&prepared.layout, sheet->slurm.nodes.names[i]);

        memcpy(sheet->addresses[i], sheet->args->addresses_p[machine], ADDRESS_BYTES);
    }
    free(sheet->args->addresses_p);
    prepare_fini(&prepared);
    return PSD_OK;
}

/* --------------------------------------------------------------------------------- printing --- */

/* The port of a task: the same for everybody who asks. */
static uint32_t
port_of(const struct sheet *sheet, uint32_t local)
{
    const struct psi_numberlist *reserved = &sheet->slurm.ports;
    const unsigned long job = strtoul(sheet->slurm.job_id, NULL, 10);

    if (reserved->count > 0) {
        return reserved->numbers[local];
    }
    return PORTS_FIRST + (uint32_t)((job * PORT_STRIDE + local) % (PORTS_LAST - PORTS_FIRST + 1));
}

static psd_status
check_ports(const struct slurm *slurm, struct psd_error *err)
{
    for (size_t i = 0; slurm->ports.count > 0 && i < slurm->nodes.count; i++) {
        if (slurm->tasks_on.numbers[i] > slurm->ports.count) {
            return psi_fail(err, PSD_ERR_INVALID,
                            "%zu ports are reserved on every node, but %.64s has %u tasks: srun "
                            "--resv-ports=%u",
                            slurm->ports.count, slurm->nodes.names[i], slurm->tasks_on.numbers[i],
                            slurm->tasks_on.numbers[i]);
        }
    }
    return PSD_OK;
}

static const char *
type_of(const struct roles *roles, uint32_t task)
{
    return roles->list[task] == LAUNCH_SERVER ? "ps" : "worker";
}

/* {"ps": [...], "worker": [...]}: a new object. */
static json_t *
describe_cluster(const struct sheet *sheet)
{
    const struct slurm *slurm = &sheet->slurm;
    json_t *cluster = json_pack("{s:[], s:[]}", "ps", "worker");
    uint32_t task = 0;

    for (uint32_t node = 0; node < slurm->nodes.count; node++) {
        for (uint32_t local = 0; local < slurm->tasks_on.numbers[node]; local++, task++) {
            const char *address = sheet->addresses[node];
            const bool v6 = strchr(address, ':') != NULL;

            json_array_append_new(json_object_get(cluster, type_of(&sheet->roles, task)),
                                  json_sprintf("%s%s%s:%u", v6 ? "[" : "", address, v6 ? "]" : "",
                                               port_of(sheet, local)));
        }
    }
    return cluster;
}

static void
print(const struct sheet *sheet)
{
    const struct slurm *slurm = &sheet->slurm;
    const uint32_t own = slurm_task(slurm, slurm->node, slurm->local);
    const char *type = type_of(&sheet->roles, own);
    json_t *root = describe_cluster(sheet);
    int index = 0;

    for (uint32_t task = 0; task < own; task++) {
        index += sheet->roles.list[task] == sheet->roles.list[own];
    }
    if (sheet->options->json) {
        root = json_pack("{s:o}", "cluster", root);
        if (slurm->is_step) {
            json_object_set_new(root, "task",
                                json_pack("{s:s, s:i}", "type", type, "index", index));
        }
    }
    json_dumpf(root, stdout, JSON_PRESERVE_ORDER);
    printf("\n");
    if (slurm->is_step && !sheet->options->json) {
        printf("%s %d\n", type, index);
    }
    json_decref(root);
}

static psd_status
fill(struct sheet *sheet, int *code_p, struct psd_error *err)
{
    const char *given = variables_get(sheet->args->environment, "TFSERVER");

    sheet->addresses = memory_need(calloc(sheet->slurm.nodes.count, ADDRESS_BYTES));
    if (given != NULL) {
        return take_given(sheet, given, err);
    }
    return sheet->slurm.is_step ? look_up(sheet, err) : ask_nodes(sheet, code_p, err);
}

int
print_cluster(const struct launch_options *options, struct run_args *args, struct psd_error *err)
{
    struct sheet sheet = {.options = options, .args = args};
    psd_status status = PSD_OK;
    int code = 0;

    if (options->command != NULL || options->argv != NULL) {
        status =
            psi_fail(err, PSD_ERR_INVALID, "--print_cluster runs nothing: leave out the command");
    } else if (!slurm_is_around(args->environment)) {
        status =
            psi_fail(err, PSD_ERR_INVALID,
                     "--print_cluster works only inside a Slurm allocation (sbatch, salloc, srun)");
    }
    if (status == PSD_OK && options->cluster_config != NULL) {
        status = prepare_load_file(options->cluster_config, &sheet.file, err);
    }
    if (status == PSD_OK) {
        status = slurm_read(args->environment, &sheet.slurm, err);
    }
    if (status == PSD_OK) {
        status = allocation_roles(options, &sheet.file, &sheet.slurm, &sheet.roles, err);
    }
    if (status == PSD_OK) {
        status = check_ports(&sheet.slurm, err);
    }
    if (status == PSD_OK) {
        status = fill(&sheet, &code, err);
    }
    if (status == PSD_OK && code == 0) {
        print(&sheet);
    }
    free(sheet.addresses);
    roles_fini(&sheet.roles);
    slurm_fini(&sheet.slurm);
    psi_cluster_free(&sheet.file);
    return code;
}
