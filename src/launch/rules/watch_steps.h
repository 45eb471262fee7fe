/*
 * watch_steps.h - the steps that the rules of watch.c and watch_machines.c are made of.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WATCH_STEPS_H
#define LAUNCH_WATCH_STEPS_H

#include "launch/rules/watch_state.h"

enum { WATCH_SWEEP_MS = 1000 }; /* what a worker left behind in the background */

uint32_t watch_slot_count(const struct watch *watch);

/* The slot of the last server that the job had from the start: its parts are called by these. */
uint32_t watch_last_part(const struct watch *watch);

/* Those whose time is over. */
void watch_kill_doomed(struct watch *watch, uint64_t now_ms);
enum launch_role watch_slot_role(const struct watch *watch, uint32_t slot);
bool watch_has_all_servers(const struct watch *watch);

/* The workers whose end ends the job: the first of them, how many of them have ended, and how many
 * have failed. */
uint32_t watch_leader_count(const struct watch *watch);
uint32_t watch_leaders_ended(const struct watch *watch, uint32_t *failed_p);

/* As a shell would tell it. */
int watch_shell_code(int code, int number);

void watch_enter(struct watch *watch, enum watch_phase phase, uint64_t deadline_ms);
void watch_start(struct watch *watch, uint32_t slot);
void watch_tell_master(struct watch *watch, const struct psi_word *word);
void watch_signal_role(struct watch *watch, enum launch_role role, int number);

/* Something failed: what, is to be found out. */
void watch_ask(struct watch *watch, uint64_t now_ms);

/* What needs no questions: it is psd_run itself that knows. */
void watch_fail(struct watch *watch, enum watch_cause cause, uint32_t slot, int code);

/* Interrupted: asks one role after the other to stop, the next when the last is gone. */
void watch_stop_next(struct watch *watch, uint64_t now_ms);

/* All leaders have ended: the others leave by themselves. */
void watch_leave_if_done(struct watch *watch, uint64_t now_ms);

/* Something changed that may leave a job without one of its workers. */
void watch_note_absence(struct watch *watch, uint64_t now_ms);

void watch_end(struct watch *watch, uint32_t grace_ms);

#endif
