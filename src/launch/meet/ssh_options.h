/*
 * ssh_options.h - which arguments of ssh a cluster file may give.
 *
 * A cluster file comes with a repository, or from a colleague, and somebody may not read it before
 * they use it. Many options of ssh run a command here, load a library, write a file or open this
 * machine to the other one (ProxyCommand, LocalCommand, KnownHostsCommand, -F, -E, -I, -L): so only
 * those are taken that are known to do nothing of the kind. New ones are refused until somebody has
 * looked at them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SSH_OPTIONS_H
#define LAUNCH_SSH_OPTIONS_H

#include "launch/text/words.h"

/* PSD_ERR_REFUSED names the first that is not harmless. */
psd_status ssh_options_check(const struct words *options, struct psd_error *err);

#endif
