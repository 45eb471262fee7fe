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

#include "launch/link/secret.h"
#include "launch/text/memory.h"

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

static void
add_prefixed(const struct words *list, const char *key, struct words *orders)
{
    for (size_t i = 0; i < list->count; i++) {
        words_add_format(orders, "%s=%s", key, list->list[i]);
    }
}

static void
add_command(const struct command *command, uint32_t index, bool contained, struct words *orders)
{
    const char *script = contained ? NULL : find_script(command);

    if (script != NULL) {
        words_add_format(orders, "test=%s", script);
    }
    words_add_format(orders, "%s=%u", contained ? "contained" : "command", index);
    add_prefixed(&command->environment, "word", orders);
    add_prefixed(&command->argv, "word", orders);
}

/* The commands of the workers on a machine, each once. */
static void
add_commands(const struct gather *gather, uint32_t machine, struct words *orders)
{
    const struct plan *plan = gather->plan;
    const bool contained = plan->image.count > 0;

    if (plan->command_count == 1) {
        if (has_command(gather, machine)) {
            add_command(&plan->commands[0], 0, contained, orders);
        }
        return;
    }
    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        const uint32_t command = plan_command(plan, rank);

        if (gather->layout->machine_of[1 + plan->servers + rank] == machine) {
            add_command(&plan->commands[command], command, contained, orders);
        }
    }
}

static void
add_place(const struct gather *gather, const struct host *host, struct words *orders)
{
    const struct plan *plan = gather->plan;
    const bool called = !host->machine->here && !host->machine->joined;

    if (plan->workdir != NULL) {
        words_add_format(orders, "workdir=%s", plan->workdir);
    } else if (called) {
        words_add_format(orders, "cwd=%s", gather->directory);
    }
    if (called) {
        words_add(orders, "elsewhere=1");
    }
    if (gather->logs != NULL && !host->machine->here) {
        if (gather->logs_token != NULL) {
            words_add_format(orders, "logs_token=%s", gather->logs_token);
        }
        words_add_format(orders, "logs=%s", gather->logs);
    }
    if (!host->machine->here) {
        add_prefixed(&plan->forwarded, "env", orders);
    }
    add_prefixed(&plan->worker_environment, "env", orders);
}

/* Ports of a machine: its workers', its servers' and the scheduler's where these run the user's
 * command, and one for the store of torch where rank 0 is. */
static uint32_t
port_count_of(const struct gather *gather, uint32_t machine)
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
    return count + (personality_has(plan->personality, PERSONALITY_HAS_STORE) &&
                    layout->machine_of[1 + plan->servers] == machine);
}

uint16_t
host_setup_port(const struct gather *gather, uint32_t slot)
{
    const struct layout *layout = gather->layout;
    const struct host *host = &gather->hosts[layout->machine_of[slot]];
    uint32_t place = layout->local_rank[slot];

    if (gather->plan->given != NULL || slot > gather->plan->servers + gather->plan->workers) {
        return 0; /* workers that came later have none */
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
    const uint32_t count = port_count_of(gather, machine);

    return count > 0 ? gather->hosts[machine].worker_ports[count - 1] : 0;
}

/* What the workers of a machine share: its cores, its ports. */
static void
add_shares(const struct gather *gather, uint32_t machine, struct words *orders)
{
    const struct host *host = &gather->hosts[machine];
    const uint32_t workers = host->machine->workers;
    const uint32_t all = gather->computers.workers[gather->computers.node_of[machine]];
    const uint32_t threads = all > 0 ? host->cores / all : 0;
    const uint32_t ports = port_count_of(gather, machine);
    const uint16_t wish = ports == 1 ? personality_port(gather->plan->personality) : 0;
    const char *address = host->address;

    if (gather->plan->personality != PERSONALITY_POSEIDON) { /* others listen on all addresses */
        address = strchr(host->address, ':') != NULL ? "::" : "0.0.0.0";
    }
    if (workers > 0 && gather->plan->gpus_per_worker > 0) {
        words_add(orders, "deal_gpus=1");
    }
    if (workers > 0 && all > 1) {
        words_add_format(orders, "threads=%u", threads > 0 ? threads : 1);
    }
    if (ports > 0) {
        words_add_format(orders, "ports=%u %s %u", ports, address,
                         host->machine->port != 0 ? host->machine->port : wish);
    }
}

static psd_status
send_secret(const struct gather *gather, struct host *host, struct psd_error *err)
{
    if (!host->machine->here && !host->machine->joined && host->shell.way == REMOTE_SHELL_SRUN) {
        return launch_secret_send_sealed(gather->args->secret_fd, gather->args->secret_file,
                                         &host->link, err);
    }
    return launch_secret_send(gather->args->secret_fd, &host->link, err);
}

psd_status
host_setup_send(struct gather *gather, uint32_t machine, struct psd_error *err)
{
    struct host *host = &gather->hosts[machine];
    const struct plan *plan = gather->plan;
    const bool foreign = personality_is_foreign(plan->personality);
    const bool command = has_command(gather, machine);
    struct words orders = {0};
    const psd_status status = send_secret(gather, host, err);

    if (status != PSD_OK) {
        return status;
    }
    add_place(gather, host, &orders);
    add_shares(gather, machine, &orders);
    if (command && plan->virtualenv != NULL) {
        words_add_format(&orders, "virtualenv=%s", plan->virtualenv);
    }
    if (!foreign && gather->args->watch.master_restarts > 0) {
        words_add(&orders, "master_file=1");
    }
    if (gather->layout->machine_of[0] == machine && !foreign) {
        words_add(&orders, "daemon=ps_master");
    }
    if (host->machine->servers > 0 && !foreign) {
        words_add(&orders, "daemon=ps_server");
    }
    if (command && (plan->automatic || plan->old_names)) {
        words_add_format(&orders, "automatic%s=on", plan->automatic_asked ? "_asked" : "");
    }
    if (command && plan->image.count > 0) {
        words_add_format(&orders, "program=%s", plan->image.list[0]);
    }
    add_commands(gather, machine, &orders);
    if (has_service(gather, machine) && gather->host_count > 1) {
        words_add_format(&orders, "listen=%s", host->address);
    }
    link_send_words(&host->link, LINK_SETUP, 0, 0, &orders);
    host->state = HOST_SETTING_UP;
    words_fini(&orders);
    return PSD_OK;
}

void
host_setup_take(struct gather *gather, struct host *host, const struct words *answers)
{
    const uint32_t port_count = port_count_of(gather, (uint32_t)(host - gather->hosts));
    uint32_t ports = 0;

    free(host->knows_flags); /* of a life before */
    free(host->worker_ports);
    host->knows_flags =
        memory_need(calloc(gather->plan->command_count, sizeof(*host->knows_flags)));
    host->worker_ports = memory_need(calloc(port_count + 1, sizeof(*host->worker_ports)));
    for (size_t i = 0; i < answers->count; i++) {
        const char *word = answers->list[i];
        unsigned command;
        unsigned knows;

        if (strncmp(word, "problem=", 8) == 0) {
            words_add(&host->problems, word + 8);
        } else if (strncmp(word, "note=", 5) == 0) {
            words_add(&host->notes, word + 5);
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
}
