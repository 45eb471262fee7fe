/*
 * host_setup.c - what a machine is told before its processes start, and what it answers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/host_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "launch/link/secret.h"
#include "launch/run/neighbours.h"

/* Foreign workers talk to each other, so every machine of theirs has to be reached. */
static bool
has_service(const struct gather *gather, uint32_t machine)
{
    return gather->layout->machines[machine].servers > 0 ||
           gather->layout->machine_of[0] == machine ||
           personality_is_foreign(gather->plan->personality);
}

/* Whether the user's command runs there. */
static bool
has_command(const struct gather *gather, uint32_t machine)
{
    return gather->layout->machines[machine].workers > 0 ||
           personality_is_foreign(gather->plan->personality);
}

/* A file that the command names and that its machines should have: the script. */
static const char *
find_script(const struct command *command)
{
    static const char *const endings[] = {".py", ".sh", ".pl", ".R", ".jl", ".lua"};

    for (size_t i = 1; i < command->argv.count; i++) {
        const char *word = command->argv.list[i];
        const size_t bytes = strlen(word);

        if (word[0] == '-' || strchr(word, '{') != NULL) {
            continue;
        }
        for (size_t k = 0; k < sizeof(endings) / sizeof(endings[0]); k++) {
            const size_t length = strlen(endings[k]);

            if (bytes > length && strcmp(word + bytes - length, endings[k]) == 0) {
                return word;
            }
        }
    }
    return NULL;
}

static psd_status
add_command(const struct command *command, uint32_t index, bool contained, struct words *orders,
            struct psd_error *err)
{
    const char *script = contained ? NULL : find_script(command);
    psd_status status = PSD_OK;

    if (script != NULL) {
        status = words_add_format(orders, err, "test=%s", script);
    }
    if (status == PSD_OK) {
        status = words_add_format(orders, err, "%s=%u", contained ? "contained" : "command", index);
    }
    for (size_t i = 0; i < command->environment.count && status == PSD_OK; i++) {
        status = words_add_format(orders, err, "word=%s", command->environment.list[i]);
    }
    for (size_t i = 0; i < command->argv.count && status == PSD_OK; i++) {
        status = words_add_format(orders, err, "word=%s", command->argv.list[i]);
    }
    return status;
}

static psd_status
add_variables(const struct words *variables, struct words *orders, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (size_t i = 0; i < variables->count && status == PSD_OK; i++) {
        status = words_add_format(orders, err, "env=%s", variables->list[i]);
    }
    return status;
}

/* The commands of the workers on a machine, each once. */
static psd_status
add_commands(const struct gather *gather, uint32_t machine, struct words *orders,
             struct psd_error *err)
{
    const struct plan *plan = gather->plan;
    psd_status status = PSD_OK;

    if (plan->command_count == 1) {
        return has_command(gather, machine)
                   ? add_command(&plan->commands[0], 0, plan->image.count > 0, orders, err)
                   : PSD_OK;
    }
    for (uint32_t rank = 0; rank < plan->workers && status == PSD_OK; rank++) {
        const uint32_t command = plan_command(plan, rank);

        if (gather->layout->machine_of[1 + plan->servers + rank] == machine) {
            status =
                add_command(&plan->commands[command], command, plan->image.count > 0, orders, err);
        }
    }
    return status;
}

static psd_status
add_place(const struct gather *gather, const struct host *host, struct words *orders,
          struct psd_error *err)
{
    const struct plan *plan = gather->plan;
    psd_status status = PSD_OK;

    if (status == PSD_OK && plan->workdir != NULL) {
        status = words_add_format(orders, err, "workdir=%s", plan->workdir);
    } else if (status == PSD_OK && !host->machine->here && !host->machine->joined) {
        status = words_add_format(orders, err, "cwd=%s", gather->directory);
    }
    if (status == PSD_OK && !host->machine->here && !host->machine->joined) {
        status = words_add(orders, "elsewhere=1", err);
    }
    if (status == PSD_OK && gather->logs != NULL && !host->machine->here) {
        status = gather->logs_token != NULL
                     ? words_add_format(orders, err, "logs_token=%s", gather->logs_token)
                     : PSD_OK;
        status = status == PSD_OK ? words_add_format(orders, err, "logs=%s", gather->logs) : status;
    }
    if (status == PSD_OK && !host->machine->here) {
        status = add_variables(&plan->forwarded, orders, err);
    }
    return status == PSD_OK ? add_variables(&plan->worker_environment, orders, err) : status;
}

/* Ports of a machine: its workers', its servers' and the scheduler's where these run the user's
 * command, and one for the store of torch where rank 0 is. */
uint32_t
host_setup_port_count(const struct gather *gather, uint32_t machine)
{
    const struct layout *layout = gather->layout;
    const struct plan *plan = gather->plan;
    uint32_t count = layout->machines[machine].workers;

    if (plan->given != NULL) {
        return 0; /* their files say where they listen */
    }
    if (personality_is_foreign(plan->personality)) {
        count = layout->machines[machine].processes;
    }
    return count + ((plan->personality & PERSONALITY_TORCH) != 0 &&
                    layout->machine_of[1 + plan->servers] == machine);
}

uint16_t
host_setup_port(const struct gather *gather, uint32_t slot)
{
    const struct layout *layout = gather->layout;
    const struct host *host = &gather->hosts[layout->machine_of[slot]];
    uint32_t place = layout->local_rank[slot];

    if (gather->plan->given != NULL) {
        return 0;
    }
    switch (role_of_slot(slot, gather->plan->servers)) {
    case LAUNCH_WORKER:
        break;
    case LAUNCH_SERVER:
        place += host->machine->workers;
        break;
    case LAUNCH_MASTER:
        place = host->machine->workers + host->machine->servers;
        break;
    }
    return host->worker_ports[place];
}

uint16_t
host_setup_store_port(const struct gather *gather)
{
    const uint32_t machine = gather->layout->machine_of[1 + gather->plan->servers];
    const uint32_t count = host_setup_port_count(gather, machine);

    return count > 0 ? gather->hosts[machine].worker_ports[count - 1] : 0;
}

/* What the workers of a machine share: its cores, its ports. */
static psd_status
add_shares(const struct gather *gather, uint32_t machine, struct words *orders,
           struct psd_error *err)
{
    const struct host *host = &gather->hosts[machine];
    const uint32_t workers = host->machine->workers;
    const uint32_t all = neighbours_workers(gather->layout, gather->hosts, machine);
    const uint32_t threads = all > 0 ? host->cores / all : 0;
    const uint32_t ports = host_setup_port_count(gather, machine);
    const bool wish = (gather->plan->personality & PERSONALITY_TF1) != 0 && ports == 1;
    const char *address = host->address;
    psd_status status = PSD_OK;

    if (gather->plan->personality != PERSONALITY_POSEIDON) { /* others listen on all addresses */
        address = strchr(host->address, ':') != NULL ? "::" : "0.0.0.0";
    }

    if (workers > 0 && gather->plan->gpus_per_worker > 0) {
        status = words_add(orders, "deal_gpus=1", err);
    }
    if (status == PSD_OK && workers > 0 && all > 1) {
        status = words_add_format(orders, err, "threads=%u", threads > 0 ? threads : 1);
    }
    return status == PSD_OK && ports > 0
               ? words_add_format(orders, err, "ports=%u %s %u", ports, address,
                                  host->machine->port != 0 ? host->machine->port
                                  : wish                   ? PERSONALITY_TF1_PORT
                                                           : 0u)
               : status;
}

static psd_status
send_secret(const struct gather *gather, struct host *host, struct psd_error *err)
{
    if (!host->machine->here && !host->machine->joined && host->shell.way == REMOTE_SHELL_SRUN) {
        return launch_secret_send_sealed(gather->secret_fd, gather->secret_file, &host->link, err);
    }
    return launch_secret_send(gather->secret_fd, &host->link, err);
}

psd_status
host_setup_send(struct gather *gather, uint32_t machine, struct psd_error *err)
{
    struct host *host = &gather->hosts[machine];
    const struct layout_machine *layout = &gather->layout->machines[machine];
    const bool foreign = personality_is_foreign(gather->plan->personality);
    struct words orders = {0};
    psd_status status = send_secret(gather, host, err);

    if (status == PSD_OK) {
        status = add_place(gather, host, &orders, err);
    }
    if (status == PSD_OK) {
        status = add_shares(gather, machine, &orders, err);
    }
    if (status == PSD_OK && gather->plan->virtualenv != NULL && has_command(gather, machine)) {
        status = words_add_format(&orders, err, "virtualenv=%s", gather->plan->virtualenv);
    }
    if (status == PSD_OK && gather->layout->machine_of[0] == machine && !foreign) {
        status = words_add(&orders, "daemon=ps_master", err);
    }
    if (status == PSD_OK && layout->servers > 0 && !foreign) {
        status = words_add(&orders, "daemon=ps_server", err);
    }
    if (status == PSD_OK && (gather->plan->automatic || gather->plan->old_names) &&
        has_command(gather, machine)) {
        status = words_add_format(&orders, err, "automatic%s=on",
                                  gather->plan->automatic_asked ? "_asked" : "");
    }
    if (status == PSD_OK && gather->plan->image.count > 0 && has_command(gather, machine)) {
        status = words_add_format(&orders, err, "program=%s", gather->plan->image.list[0]);
    }
    if (status == PSD_OK) {
        status = add_commands(gather, machine, &orders, err);
    }
    if (status == PSD_OK && has_service(gather, machine) && gather->host_count > 1) {
        status = words_add_format(&orders, err, "listen=%s", host->address);
    }
    if (status == PSD_OK) {
        link_send_words(&host->link, LINK_SETUP, 0, 0, &orders);
        host->state = HOST_SETTING_UP;
    }
    words_fini(&orders);
    return status;
}

psd_status
host_setup_take(struct gather *gather, struct host *host, const struct words *answers,
                struct psd_error *err)
{
    const uint32_t port_count = host_setup_port_count(gather, (uint32_t)(host - gather->hosts));
    psd_status status = PSD_OK;
    uint32_t ports = 0;

    free(host->knows_flags); /* of a life before */
    free(host->worker_ports);
    host->knows_flags = calloc(gather->plan->command_count, sizeof(*host->knows_flags));
    host->worker_ports = calloc(port_count + 1, sizeof(*host->worker_ports));
    if (host->knows_flags == NULL || host->worker_ports == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for %s", host->machine->name);
    }
    for (size_t i = 0; i < answers->count && status == PSD_OK; i++) {
        const char *word = answers->list[i];
        unsigned command;
        unsigned knows;

        if (strncmp(word, "problem=", 8) == 0) {
            status = words_add(&host->problems, word + 8, err);
        } else if (strncmp(word, "note=", 5) == 0) {
            status = words_add(&host->notes, word + 5, err);
        } else if (strncmp(word, "worker_port=", 12) == 0 && ports < port_count) {
            host->worker_ports[ports++] = (uint16_t)strtoul(word + 12, NULL, 10);
        } else if (strncmp(word, "port=", 5) == 0) {
            host->probe_port = (uint16_t)strtoul(word + 5, NULL, 10);
        } else if (sscanf(word, "flags=%u %u", &command, &knows) == 2 &&
                   command < gather->plan->command_count) {
            host->knows_flags[command] = knows != 0;
        }
    }
    host->state = HOST_SET_UP;
    return status;
}
