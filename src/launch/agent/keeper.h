/*
 * keeper.h - what stands above an agent: it collects it, and what it leaves if it was killed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_KEEPER_H
#define LAUNCH_KEEPER_H

#include <stdbool.h>
#include <stddef.h>

#include <sys/types.h>

/* Collects an agent whose line has closed: kills it if it does not end, and what it leaves if it
 * was killed. Returns whether it ended by itself. */
bool keeper_collect(pid_t agent);

/*
 * After an agent died too early: kills what it was parent of, which became ours to adopt
 * (agent_fork saw to it). Returns when nothing is left. keep: processes of ours that live on, their
 * number in keep_count.
 */
void keeper_bury(pid_t agent, const pid_t *keep, size_t keep_count);

/* `psd_run --agent`, above its agent: only waits, and cleans up after an agent that was killed.
 * line: the agent's; taken. Returns the exit code. */
int keeper_wait(pid_t agent, int line);

#endif
