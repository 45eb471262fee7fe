/*
 * call.h - how the agent of another machine is started: by ssh, or by srun inside a Slurm
 * allocation. Its line (link.h) is the standard input and output of that program.
 */
#ifndef LAUNCH_CALL_H
#define LAUNCH_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "launch/meet/srun.h"
#include "launch/meet/ssh.h"
#include "launch/plan/layout.h"
#include "launch/text/words.h"

enum call_way { CALL_SSH, CALL_SRUN };

/* The same for all machines of a job. Borrowed by its calls. */
struct call_rules {
    enum call_way way;
    const char *program;             /* path of psd_run */
    const char *pem_file;            /* (optional) ssh alone, as all below */
    const char *username;            /* (optional) for machines that name none */
    const struct words *ssh_options; /* (optional) */
};

struct call {
    enum call_way way;
    struct ssh_target ssh;        /* CALL_SSH */
    struct ssh_defaults defaults; /* ... asked with ssh_ask_defaults() */
    struct srun_target srun;      /* CALL_SRUN */
};

struct call call_to(const struct call_rules *rules, const struct layout_machine *machine);

/* "ssh", "srun" */
const char *call_program(const struct call *call);

psd_status call_arguments(const struct call *call, struct words *argv_p, struct psd_error *err);

/* Whether the program is to be left alone if we are killed: its agent hears of that by its line. */
bool call_ends_with_its_agent(const struct call *call);

/* What the program gets of our environment. */
psd_status call_environment(const struct call *call, char *const *environment,
                            struct words *environment_p, struct psd_error *err);

/* Whether the same call may succeed a moment later. */
bool call_may_try_again(const struct call *call, const char *complaint);

/* The last line of what the program said that matters; "" if there is none. */
void call_last_words(const struct call *call, const char *complaint, char *text_p, size_t size);

/* Why there is no agent: what was tried, what was said, what to do. status: as waitpid() told it,
 * -1: unknown. */
void call_explain(const struct call *call, const char *complaint, const char *printed, int status,
                  char *text_p, size_t size);

#endif
