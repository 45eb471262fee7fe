/*
 * command.h - the user's command: what each worker runs, and what is added to it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_COMMAND_H
#define LAUNCH_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

#include "launch/text/words.h"

/* One command: leading NAME=value words apart from the program and its arguments. */
struct command {
    struct words environment;
    struct words argv;
};

void command_fini(struct command *command);

/* One more word: NAME=value words before the program are its environment. */
void command_take(struct command *command, const char *word);

/* One string into a command. PSD_ERR_INVALID: bad quoting, or nothing to run. */
psd_status command_parse(const char *text, struct command *command_p, struct psd_error *err);

/*
 * The texts of the commands in `text`: one for all workers, or a comma-separated list of one for
 * each. A comma separates when a blank follows it and every piece starts with a program that exists
 * on search_path, or, when workers are remote, with the program that the first starts with. What
 * could be read both ways is refused.
 */
psd_status command_list(const char *text, uint32_t workers, const char *search_path, bool remote,
                        struct words *texts_p, struct psd_error *err);

/* The path of a program: as it is when it has a slash, else searched. NULL: not there. Owned by
 * the caller. */
char *command_find(const char *program, const char *search_path);

/* Whether a placeholder such as {rank} occurs in the arguments or the environment. */
bool command_has_placeholder(const struct command *command);

/* What the placeholders stand for. */
struct command_values {
    const char *role;
    uint32_t rank;
    uint32_t world;
    const char *master; /* "tcp://IP:PORT" */
    const char *port;   /* NULL: the master's */
    uint32_t servers;   /* of the job; no placeholder */
};

/* Copies the words of `from`, placeholders filled, to the end of `to`. */
void command_fill(const struct words *from, const struct command_values *values, struct words *to);

/*
 * Whether the program, or the first file among its arguments, knows the word master_address: then
 * it takes Poseidon's flags. Scripts are searched as text, programs in what is loaded of them; at
 * most 16 MiB. *file_p: the file that has the word (borrowed from the command).
 */
bool command_knows_flags(const struct command *command, const char *search_path,
                         const char **file_p);

#endif
