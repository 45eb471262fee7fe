/*
 * host_setup.h - what a machine is told before its processes start (LINK_SETUP, agent/setup.h), and
 * what it answers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_HOST_SETUP_H
#define LAUNCH_HOST_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/run/gather_state.h"

/* Sends it, with the job's secret before it. */
psd_status host_setup_send(struct gather *gather, uint32_t machine, struct psd_error *err);

/* Takes the answer, LINK_SET_UP: ports, problems, which commands know Poseidon's flags. */
void host_setup_take(struct gather *gather, struct host *host, const struct words *answers);

/* The ports that machines keep for those who run the user's command, once they are gathered: of one
 * process; of torch's store. 0: none. */
uint16_t host_setup_port(const struct gather *gather, uint32_t slot);
uint16_t host_setup_store_port(const struct gather *gather);

#endif
