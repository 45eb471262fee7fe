/*
 * remote_shell.h - how the agent of another machine is started: by ssh, or by srun inside a Slurm
 * allocation. Its line (link.h) is the standard input and output of that program.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_REMOTE_SHELL_H
#define LAUNCH_REMOTE_SHELL_H

#include <stdbool.h>
#include <stddef.h>

#include "launch/meet/srun.h"
#include "launch/meet/ssh.h"
#include "launch/plan/layout.h"
#include "launch/text/words.h"

enum remote_shell_kind { REMOTE_SHELL_SSH, REMOTE_SHELL_SRUN };

/* The same for all machines of a job. Borrowed by its calls. */
struct remote_shell_rules {
    enum remote_shell_kind way;
    const char *program;             /* path of psd_run */
    const char *pem_file;            /* (optional) ssh alone, as all below */
    const char *username;            /* (optional) for machines that name none */
    const struct words *ssh_options; /* (optional) */
};

struct remote_shell {
    enum remote_shell_kind way;
    struct ssh_target ssh;        /* REMOTE_SHELL_SSH */
    struct ssh_defaults defaults; /* ... asked with ssh_ask_defaults() */
    struct srun_target srun;      /* REMOTE_SHELL_SRUN */
};

struct remote_shell remote_shell_to(const struct remote_shell_rules *rules,
                                    const struct layout_machine *machine);

/* "ssh", "srun" */
const char *remote_shell_program(const struct remote_shell *shell);

psd_status remote_shell_arguments(const struct remote_shell *shell, struct words *argv,
                                  struct psd_error *err);

/* Whether the program is to be left alone if we are killed: its agent hears of that by its line. */
bool remote_shell_ends_with_its_agent(const struct remote_shell *shell);

/* What the program gets of our environment. */
void remote_shell_environment(const struct remote_shell *shell, char *const *environment,
                              struct words *kept);

/* Whether the same call may succeed a moment later. */
bool remote_shell_may_try_again(const struct remote_shell *shell, const char *stderr_tail);

/* The last line of what the program said that matters; "" if there is none. */
void remote_shell_last_words(const struct remote_shell *shell, const char *stderr_tail,
                             char *text_p, size_t size);

/* Why there is no agent: what was tried, what was said, what to do. status: as waitpid() told it,
 * -1: unknown. */
void remote_shell_explain(const struct remote_shell *shell, const char *stderr_tail,
                          const char *printed, int status, char *text_p, size_t size);

#endif
