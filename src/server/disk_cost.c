/*
 * disk_cost.c - what a checkpoint has cost, for people.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/disk.h"

void
disk_tell_cost(const struct psi_log *log, uint64_t step, uint64_t bytes,
               const struct lane_disk_cost *cost)
{
    enum { MS = 1000000 };

    psi_log(log, PSI_LOG_INFO, "CHECKPOINT-COST",
            "step %llu, %llu MiB: in ms of a processor, copies took %llu, which rounds waited for; "
            "beside them room for the copies took %llu, checksums %llu, writing %llu",
            (unsigned long long)step, (unsigned long long)(bytes >> 20),
            (unsigned long long)cost->copy_ns / MS, (unsigned long long)cost->room_ns / MS,
            (unsigned long long)cost->check_ns / MS, (unsigned long long)cost->write_ns / MS);
}
