/*
 * here.h - whether a name or an address is this machine.
 */
#ifndef LAUNCH_HERE_H
#define LAUNCH_HERE_H

#include <stdbool.h>

/* localhost, 127.*, ::1, this host's name (short or whole), or an address of its interfaces.
 * Nothing is asked of the network. */
bool here_is(const char *host);

#endif
