/*
 * call.c - how the agent of another machine is started.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/call.h"

#include "launch/text/variables.h"

struct call
call_to(const struct call_rules *rules, const struct layout_machine *machine)
{
    const char *user =
        machine->user[0] != '\0' || rules->username == NULL ? machine->user : rules->username;

    return (struct call){.way = rules->way,
                         .ssh = {.host = machine->name,
                                 .user = user,
                                 .port = machine->ssh_port,
                                 .pem_file = rules->pem_file,
                                 .options = rules->ssh_options,
                                 .program = rules->program},
                         .srun = {.node = machine->name, .program = rules->program}};
}

const char *
call_program(const struct call *call)
{
    return call->way == CALL_SRUN ? "srun" : "ssh";
}

psd_status
call_arguments(const struct call *call, struct words *argv_p, struct psd_error *err)
{
    return call->way == CALL_SRUN ? srun_arguments(&call->srun, argv_p, err)
                                  : ssh_arguments(&call->ssh, &call->defaults, argv_p, err);
}

/* For an srun that was killed Slurm kills its step, the agent and all, in no order that we could
 * rely on; what a worker starts in that moment would be nobody's. */
bool
call_ends_with_its_agent(const struct call *call)
{
    return call->way == CALL_SRUN;
}

psd_status
call_environment(const struct call *call, char *const *environment, struct words *environment_p,
                 struct psd_error *err)
{
    return call->way == CALL_SRUN ? srun_environment(environment, environment_p, err)
                                  : variables_set_all(environment_p, environment, err);
}

bool
call_may_try_again(const struct call *call, const char *complaint)
{
    return call->way == CALL_SRUN ? srun_may_try_again(complaint) : ssh_may_try_again(complaint);
}

void
call_last_words(const struct call *call, const char *complaint, char *text_p, size_t size)
{
    if (call->way == CALL_SRUN) {
        srun_last_words(complaint, text_p, size);
    } else {
        ssh_last_words(complaint, text_p, size);
    }
}

void
call_explain(const struct call *call, const char *complaint, const char *printed, int status,
             char *text_p, size_t size)
{
    if (call->way == CALL_SRUN) {
        srun_explain(&call->srun, complaint, printed, status, text_p, size);
    } else {
        ssh_explain(&call->ssh, &call->defaults, complaint, printed, status, text_p, size);
    }
}
