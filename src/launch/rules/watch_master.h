/*
 * watch_master.h - a master that dies while its job can wait for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WATCH_MASTER_H
#define LAUNCH_WATCH_MASTER_H

#include "launch/rules/watch_state.h"

/* The master failed. Returns true if it is started again, or no longer needed. */
bool watch_master_exited(struct watch *watch, uint64_t now_ms);

/* Its machine is gone: it lives again on another one, if it may (watch_elsewhere_may). */
void watch_master_machine_lost(struct watch *watch, uint64_t now_ms);

/* Another life of it listens: it hears what is known here of the job. */
void watch_master_remind(struct watch *watch);

/* The master is there, and has said nothing for too long. */
void watch_master_hangs(struct watch *watch, uint64_t now_ms);

/* If all servers have left well, and all workers, another life of the master has nobody to hear from. */
void watch_master_spare(struct watch *watch, uint64_t now_ms);

/* How much later than usual it can say anything: it may be on its way. */
uint64_t watch_master_delay_ms(const struct watch *watch, uint64_t now_ms);

#endif
