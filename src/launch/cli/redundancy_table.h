/*
 * redundancy_table.h - the part of `psd_run show` about copies of servers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_REDUNDANCY_TABLE_H
#define LAUNCH_REDUNDANCY_TABLE_H

#include <jansson.h>

/* Prints it; nothing for jobs without servers of ours, or before they have begun. */
void redundancy_table_print(const json_t *job);

#endif
