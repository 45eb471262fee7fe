/*
 * ssh.h - how a machine is reached: the command line of the system's ssh, and what its failures
 * mean.
 *
 * The system's ssh, so that ~/.ssh/config, agents and jump hosts work as they do by hand. Never a
 * password: BatchMode. Unknown host keys are taken down, changed ones are refused.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SSH_H
#define LAUNCH_SSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch/text/words.h"

struct ssh_target {
    const char *host;
    const char *user;            /* "": what ssh_config says, else ubuntu */
    uint16_t port;               /* 0: what ssh_config says */
    const char *pem_file;        /* NULL: none */
    const struct words *options; /* (optional) arguments of ssh that go before ours */
    const char *program;         /* path of psd_run here; there it may be in PATH instead */
};

/* What ssh_config and the options say about a machine. */
struct ssh_defaults {
    char user[65];   /* "": nothing */
    bool strict;     /* StrictHostKeyChecking yes: stays so */
    bool unanswered; /* `ssh -G` did not answer in time: no login without its rules */
};

struct ssh_question {
    const struct ssh_target *target;
    struct ssh_defaults *defaults_p;
};

/*
 * Asks `ssh -G` about many machines, several at a time; without ssh, or for an odd answer: nothing
 * is known. Takes 5 s for one machine and 20 s for all at most; a signal that ends psd_run (blocked
 * and pending) ends it at once, with the strictest answers.
 */
void ssh_ask_defaults(const struct ssh_question *questions, size_t count);

psd_status ssh_arguments(const struct ssh_target *target, const struct ssh_defaults *defaults,
                         struct words *argv, struct psd_error *err);

/* PSD_ERR_IO with what to do about a key file that ssh would refuse. */
psd_status ssh_check_key(const char *pem_file, struct psd_error *err);

/* Whether the same login may succeed a moment later: sshd takes only so many at a time. */
bool ssh_may_try_again(const char *stderr_tail);

/* The last line of what ssh said that is no mere warning; "" if there is none. */
void ssh_last_words(const char *stderr_tail, char *text_p, size_t size);

/*
 * Why there is no agent: what was tried, what ssh said (its standard error) or what the login
 * printed, what to do. status: as waitpid() told it, -1: unknown.
 */
void ssh_explain(const struct ssh_target *target, const struct ssh_defaults *defaults,
                 const char *stderr_tail, const char *printed, int status, char *text_p,
                 size_t size);

#endif
