/*
 * process.h - processes that end with this one, and the CPU time of others.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <psd/status.h>

/* fork(); the child is killed when this process ends, however it ends. */
pid_t process_fork(void);

/* What to execute. Thread: immutable. */
struct process_command {
    const char *const *words; /* program, arguments, NULL; the program is looked for in PATH */
    const char *const *environment; /* "NAME=value" ..., NULL: on top of this process's */
    const char *log;                /* file for what it prints */
};

/* Starts it; it gets death_signal when this process ends. */
psd_status process_start(const struct process_command *command, int death_signal, pid_t *pid_p,
                         struct psd_error *err);

/* Waits for its end: its exit code, or 128 + signal. */
int process_wait(pid_t pid);

/* The processes that descend from pid, at most `max` of them; pid itself is not among them. */
size_t process_descendants(pid_t pid, pid_t *pids, size_t max);

/* CPU time of all threads of a process since its start; 0: it is not there. */
uint64_t process_cpu_ns(pid_t pid);

/* Keeps this process, or this thread, on one core; without effect where there is only one. */
void process_bind(uint32_t core);

/* This process and what it starts run on the first so many of the cores it may use; 0: on all. */
void process_keep_to(uint32_t cores);

#endif
