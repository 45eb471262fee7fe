/*
 * dry_run.c - what would be run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/dry_run.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cores.h"
#include "launch/meet/remote_shell.h"
#include "launch/plan/process.h"
#include "launch/text/mask.h"

static psd_status
print_machine(const struct prepared *prepared, uint32_t index, struct psd_error *err)
{
    const struct layout_machine *machine = &prepared->layout.machines[index];
    const struct remote_shell_rules rules = prepare_shell_rules(prepared);
    const struct remote_shell call = remote_shell_to(&rules, machine);
    struct words argv = {0};
    psd_status status;

    printf("machine %s: %s%u worker%s, %u server%s\n", machine->name,
           prepared->layout.machine_of[0] == index ? "master, " : "", machine->workers,
           machine->workers == 1 ? "" : "s", machine->servers, machine->servers == 1 ? "" : "s");
    if (machine->here) {
        printf("    this machine: no %s\n", remote_shell_program(&call));
        return PSD_OK;
    }
    status = remote_shell_arguments(&call, &argv, err);
    if (status == PSD_OK) {
        printf("   ");
        for (size_t i = 0; i < argv.count; i++) {
            putchar(' ');
            words_quote(stdout, argv.list[i]);
        }
        printf("\n");
        if (call.way == REMOTE_SHELL_SSH && call.ssh.user[0] == '\0') {
            printf(
                "    (no \"username\" in the cluster file: a User that ssh_config has for it goes "
                "before ubuntu)\n");
        }
    }
    words_fini(&argv);
    return status;
}

/* The address others would use, as far as it can be told from here. */
static void
guess_address(const struct prepared *prepared, uint32_t machine, const char *interface,
              char text_p[300])
{
    const struct layout_machine *layout = &prepared->layout.machines[machine];

    if (!layout_is_remote(&prepared->layout) && interface == NULL) {
        snprintf(text_p, 300, "127.0.0.1");
    } else if (interface != NULL) {
        snprintf(text_p, 300, "<address of %s in %s>", layout->name, interface);
    } else if (layout->address[0] != '\0') {
        snprintf(text_p, 300, "%s", layout->address);
    } else {
        snprintf(text_p, 300, "<address of %s>", layout->name);
    }
}

/* The local copy of the script tells what its machines will most likely say. */
static bool
knows_flags_here(const struct plan *plan, uint32_t rank)
{
    const char *file;

    return command_knows_flags(&plan->commands[plan_command(plan, rank)], "/usr/bin:/bin", &file);
}

/* Where TensorFlow's tasks would listen. */
static psd_status
guess_cluster(const struct prepared *prepared, const char *interface, struct psi_tf_config *cluster,
              struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (uint32_t slot = 1; slot < prepared->layout.slots && status == PSD_OK; slot++) {
        const struct plan_task task = plan_task(&prepared->plan, slot);
        char host[300];
        char address[320];

        guess_address(prepared, prepared->layout.machine_of[slot], interface, host);
        snprintf(address, sizeof(address), "%s:<port>", host);
        if (task.type != PSI_TF_EVALUATOR &&
            personality_is_tensorflow(prepared->plan.personality)) {
            status = psi_tf_config_add(cluster, task.type, task.index, address, err);
        }
    }
    return status;
}

static void
print_process(const struct prepared *prepared, const struct computers *computers, uint32_t slot,
              const char *interface, const struct psi_tf_config *cluster)
{
    const struct plan *plan = &prepared->plan;
    const struct layout *layout = &prepared->layout;
    const uint32_t machine = layout->machine_of[slot];
    const struct layout_machine *where = &layout->machines[machine];
    char address[300];
    char master[340];
    char root[300] = "";
    char store[300];
    char name[24];
    char text[4096];
    struct words environment = {0};
    struct words argv = {0};
    struct process_facts facts = {.master = master,
                                  .address = address,
                                  .job = "<name>",
                                  .port = "<port>",
                                  .peers = "<tcp://address:port,...>",
                                  .hosts = "<name=address,...>",
                                  .logs = where->here ? "<log directory>" : NULL,
                                  .place = neighbours_find(computers, plan->servers, slot),
                                  .cores = psi_usable_cores(),
                                  .gpus = layout->gpus[slot],
                                  .cluster = plan->given != NULL ? &plan->given[slot] : cluster,
                                  .root_address = root,
                                  .root_port = "<port>",
                                  .store_address = store,
                                  .store_port = "<port>",
                                  .remote = layout_is_remote(layout)};

    guess_address(prepared, layout->machine_of[1 + plan->servers], interface, store);
    if (layout->machine_of[0] != LAYOUT_NOWHERE) {
        guess_address(prepared, layout->machine_of[0], interface, root);
    }
    snprintf(text, sizeof(text), "%s", root);
    if (personality_is_foreign(plan->personality)) {
        master[0] = '\0';
    } else if (plan->master_port != 0) {
        snprintf(master, sizeof(master), "tcp://%.290s:%u", text, plan->master_port);
    } else {
        snprintf(master, sizeof(master), "tcp://%.290s:<port>", text);
    }
    guess_address(prepared, machine, interface, address);
    if (plan_runs_command(plan, slot)) {
        facts.knows_flags = knows_flags_here(plan, role_index(slot, plan->servers));
    }
    process_words(plan, slot, &facts, &argv, &environment);
    plan_name(plan, slot, name);
    mask_words(&argv, text, sizeof(text));
    printf("%s on %s:\n    %s\n", name, where->name, text);
    if (plan_runs_command(plan, slot)) {
        words_add_all(&environment, &plan->worker_environment);
        if (!where->here) {
            words_add_all(&environment, &plan->forwarded);
        }
        mask_words(&environment, text, sizeof(text));
        printf("    %s\n", text);
    }
    words_fini(&argv);
    words_fini(&environment);
}

psd_status
dry_run(const struct prepared *prepared, const char *interface, struct psd_error *err)
{
    struct psi_tf_config cluster = {0};
    struct computers computers;
    psd_status status = PSD_OK;

    for (uint32_t i = 0; i < prepared->layout.machine_count && status == PSD_OK; i++) {
        status = print_machine(prepared, i, err);
    }
    if (status == PSD_OK && prepared->plan.virtualenv != NULL) {
        printf("virtual environment of the workers: %s\n", prepared->plan.virtualenv);
    }
    if (status == PSD_OK && prepared->plan.replicas_why[0] != '\0') {
        printf("replicas %u (%s)\n", prepared->plan.replicas, prepared->plan.replicas_why);
    }
    if (status == PSD_OK && prepared->plan.given == NULL) {
        status = guess_cluster(prepared, interface, &cluster, err);
    }
    computers_init(&computers, &prepared->layout, NULL, NULL);
    for (uint32_t slot = prepared->watch.masterless ? 1 : 0;
         slot < prepared->layout.slots && status == PSD_OK; slot++) {
        print_process(prepared, &computers, slot, interface, &cluster);
    }
    computers_fini(&computers);
    psi_tf_config_free(&cluster);
    printf("nothing was started\n");
    return status;
}
