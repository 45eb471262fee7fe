/*
 * remote_shell.c - how the agent of another machine is started.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/remote_shell.h"

#include "launch/text/variables.h"

struct remote_shell
remote_shell_to(const struct remote_shell_rules *rules, const struct layout_machine *machine)
{
    const char *user =
        machine->user[0] != '\0' || rules->username == NULL ? machine->user : rules->username;

    return (struct remote_shell){.way = rules->way,
                                 .ssh = {.host = machine->name,
                                         .user = user,
                                         .port = machine->ssh_port,
                                         .pem_file = rules->pem_file,
                                         .options = rules->ssh_options,
                                         .program = rules->program},
                                 .srun = {.node = machine->name, .program = rules->program}};
}

const char *
remote_shell_program(const struct remote_shell *shell)
{
    return shell->way == REMOTE_SHELL_SRUN ? "srun" : "ssh";
}

psd_status
remote_shell_arguments(const struct remote_shell *shell, struct words *argv, struct psd_error *err)
{
    if (shell->way == REMOTE_SHELL_SRUN) {
        srun_arguments(&shell->srun, argv);
        return PSD_OK;
    }
    return ssh_arguments(&shell->ssh, &shell->defaults, argv, err);
}

/* For an srun that was killed Slurm kills its step, the agent and all, in no order that we could
 * rely on; what a worker starts in that moment would be nobody's. */
bool
remote_shell_ends_with_its_agent(const struct remote_shell *shell)
{
    return shell->way == REMOTE_SHELL_SRUN;
}

void
remote_shell_environment(const struct remote_shell *shell, char *const *environment,
                         struct words *kept)
{
    if (shell->way == REMOTE_SHELL_SRUN) {
        srun_environment(environment, kept);
    } else {
        variables_set_all(kept, environment);
    }
}

bool
remote_shell_may_try_again(const struct remote_shell *shell, const char *stderr_tail)
{
    return shell->way == REMOTE_SHELL_SRUN ? srun_may_try_again(stderr_tail)
                                           : ssh_may_try_again(stderr_tail);
}

void
remote_shell_last_words(const struct remote_shell *shell, const char *stderr_tail, char *text_p,
                        size_t size)
{
    if (shell->way == REMOTE_SHELL_SRUN) {
        srun_last_words(stderr_tail, text_p, size);
    } else {
        ssh_last_words(stderr_tail, text_p, size);
    }
}

void
remote_shell_explain(const struct remote_shell *shell, const char *stderr_tail, const char *printed,
                     int status, char *text_p, size_t size)
{
    if (shell->way == REMOTE_SHELL_SRUN) {
        srun_explain(&shell->srun, stderr_tail, printed, status, text_p, size);
    } else {
        ssh_explain(&shell->ssh, &shell->defaults, stderr_tail, printed, status, text_p, size);
    }
}
