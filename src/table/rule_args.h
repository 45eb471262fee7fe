/*
 * rule_args.h - the numbers of an update rule: defaults, checks, comparison, words.
 *
 * A number that its rule or schedule does not use is 0; one that it uses is never left at 0 where 0
 * stands for a default. Neighbours: spec.h is the whole table, rule.c the meaning of the numbers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TABLE_RULE_ARGS_H
#define PSI_TABLE_RULE_ARGS_H

#include "table/rule.h"

/* Replaces every 0 that stands for a default. Leaves what makes no sense to the check. */
void psi_rule_args_fill(struct psd_rule_args *args);

/* `table` names the table in the message. */
psd_status psi_rule_args_check(const struct psd_rule_args *args, const char *table,
                               struct psd_error *err);

/* NULL when equal; else the name of the first field that differs. */
const char *psi_rule_args_difference(const struct psd_rule_args *a, const struct psd_rule_args *b);

/* Appends "adam(learning_rate=0.001, ...)": every number that is not 0. */
void psi_rule_args_text(const struct psd_rule_args *args, char *text, size_t size);

/* Append to the string in text[size], cut where it is full: words, and "name=0.1". */
void psi_table_append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void psi_table_append_number(char *text, size_t size, const char *name, double value);

#endif
