/*
 * join.h - several psd_run that were started one by one, by a batch system or in containers, become
 * one job.
 *
 * One of them, rank 0, coordinates: it does what psd_run does elsewhere, but its machines come to
 * it instead of being called by ssh. It listens (this file); every other one connects and is the
 * agent of its own process from then on (joiner.h). A connection proves the job's secret before the
 * first word; strangers meet the limits of transport/loop/admission.h. How the coordinator is found is the
 * caller's: a directory (rendezvous.h), a name and a port, or what a batch system tells.
 *
 *     join_open(&config, &join, &port, &err);          then tell everybody where that is
 *     until join_present(join) is enough: poll(join_fd(join)), join_turn(join)
 *     run_job(), which takes the lines: join_take(join, rank, &member)
 *     join_over(join, code) or join_again(join, "why"); join_close(join)
 *
 * A member that is lost and started anew joins again, at any time, and join_take() gives its new
 * line. That of its former life has ended by then.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_JOIN_H
#define LAUNCH_JOIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#include "launch/meet/join_member.h"

/* Thread: owned by the main thread of psd_run. */
struct join;

/* Listens. *port_p: where. */
psd_status join_open(const struct join_config *config, struct join **join_p, uint16_t *port_p,
                     struct psd_error *err);

/* Ends all lines without a word; NULL is fine. Who hears nothing comes back and asks. */
void join_close(struct join *join);

/* Readable when join_turn() has something to do; and when to call it even so, on CLOCK_MONOTONIC
 * (UINT64_MAX: never). */
int join_fd(const struct join *join);
uint64_t join_deadline_ms(const struct join *join);
void join_turn(struct join *join);

/* How many have joined; rank 0 is not counted. */
uint32_t join_present(const struct join *join);
bool join_is_present(const struct join *join, uint32_t rank);

/* Notes who is there; and whether a rank is since then, in the same life. */
void join_mark(struct join *join);
bool join_has_stayed(const struct join *join, uint32_t rank);

/* "1-3, 5": the ranks that are not there; "" if all are. */
void join_missing(const struct join *join, char *text_p, size_t size);

/* The line to the agent of a rank, for host_adopt(); the caller owns it. -1: it is not there, or
 * its line was taken. */
int join_take(struct join *join, uint32_t rank, struct join_member *member_p);

/* Sends a rank away for good, and tells it why. */
void join_refuse(struct join *join, uint32_t rank, const char *why);

/* Gives up a rank that is silent. */
void join_drop(struct join *join, uint32_t rank);

/* A rank that was asked to leave, and stays until the job has been saved and has ended; each is told once. 0: none.
 * Before join_mark() they are sent away. */
uint32_t join_next_asked(struct join *join);

/* Why a rank left, for people: "was asked to leave (signal 15)"; "" if it did not say. */
const char *join_why_left(const struct join *join, uint32_t rank);

/* A psd_run of the job was refused since the last call: text for people; false: none. */
bool join_next_refusal(struct join *join, char *text_p, size_t size);

/* How many came that are no psd_run of the job, and why the last one was turned away. */
uint32_t join_strangers(const struct join *join, const char **last_p);

/* The last word to all that are there, and to those that come within the time it takes: the job
 * is over with this code, or begins anew. Returns when all have heard it, after 2 s at the latest.
 */
void join_over(struct join *join, int code);
void join_again(struct join *join, const char *why);

#endif
