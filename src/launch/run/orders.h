/*
 * orders.h - the orders of watch.c, given to the agents: start, signal, end. The context of each is
 * a struct run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_ORDERS_H
#define LAUNCH_ORDERS_H

#include <psd/status.h>

#include "launch/rules/watch.h"

struct run;

/* The time that an agent has to end, after the last of its processes should have ended. */
enum { ORDERS_ANSWER_MS = 2000 };

extern const struct watch_ops orders_ops;

/* By themselves, for what is no business of watch.c: signals handed on, the end of --check. */
void orders_signal(void *context, uint32_t slot, int number);
void orders_end(void *context, uint32_t grace_ms);

/* Another life of the master listens: on every machine its members are told where. */
void orders_tell_members(struct run *run);

/* A process begins its life: where what it prints goes from now on. */
void orders_open_output(struct run *run, uint32_t slot);

/* The machines are gathered: who of TensorFlow's tasks will listen where. */
psd_status orders_describe_cluster(struct run *run, struct psd_error *err);

#endif
