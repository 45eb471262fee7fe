/*
 * greet.h - what an agent says about its machine (LINK_HELLO).
 *
 * KEY=value: version, hostname, user, clock_ms (of the wall), cores, ssh (as SSH_CONNECTION says
 * it: client address and port, server address and port), and address=INTERFACE ADDRESS for each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_GREET_H
#define LAUNCH_GREET_H

#include "launch/text/words.h"

void greet_describe(struct words *answers);

#endif
