/*
 * is_local.h - whether a name or an address is this machine.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_IS_LOCAL_H
#define LAUNCH_IS_LOCAL_H

#include <stdbool.h>

/* localhost, 127.*, ::1, this host's name (short or whole), or an address of its interfaces.
 * Nothing is asked of the network. */
bool is_local(const char *host);

#endif
