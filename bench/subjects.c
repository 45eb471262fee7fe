/*
 * subjects.c - everybody who can take part: Poseidon in its several uses, ceilings, peers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "subjects.h"

#include "base/fail.h"
#include "models.h"

/* A parameter server can be no faster than these, in memory or over sockets. */
#define CEILINGS_IN_PLACE                                                                          \
    {                                                                                              \
        SUBJECT_FULL, SUBJECT_FUSED, SUBJECT_SOCKETS, SUBJECT_SOCKETS_SPIN                         \
    }
#define CEILINGS_ORDINARY                                                                          \
    {                                                                                              \
        SUBJECT_COPY_NT, SUBJECT_COPY_LIBC, SUBJECT_SOCKETS, SUBJECT_SOCKETS_THREADS, SUBJECT_TLS, \
            SUBJECT_TLS_THREADS                                                                    \
    }
#define POSEIDON                                                                                   \
    {                                                                                              \
        SUBJECT_IN_PLACE, SUBJECT_ORDINARY                                                         \
    }

/* clang-format off */
static const struct subject_about abouts[SUBJECTS] = {
    [SUBJECT_IN_PLACE] = {"push_pull_in_place", "push_pull, in place",
        KIND_POSEIDON, TIMING_BOTH, CEILINGS_IN_PLACE, .flags = TEAM_IN_PLACE},
    [SUBJECT_ORDINARY] = {"push_pull", "push_pull, ordinary memory",
        KIND_POSEIDON, TIMING_BOTH, CEILINGS_ORDINARY},
    [SUBJECT_STREAMED] = {"push_pull_streamed", "push_pull, chunk by chunk",
        KIND_POSEIDON, TIMING_TOUCH, {SUBJECT_BLOCKED}, .flags = TEAM_IN_PLACE | TEAM_STREAM,
        .bytes_min = 1 << 20},
    [SUBJECT_SUM] = {"sum_in_place", "sum, in place",
        KIND_POSEIDON, TIMING_BOTH, POSEIDON, .flags = TEAM_IN_PLACE | TEAM_SUM},
    [SUBJECT_SCANNED] = {"push_pull_nan_reject", "push_pull, NaN scan (default)",
        KIND_POSEIDON, TIMING_CALL, CEILINGS_ORDINARY, .flags = TEAM_SCAN},
    [SUBJECT_HALF] = {"push_pull_f16", "push_pull, f16",
        KIND_POSEIDON, TIMING_CALL, {SUBJECT_ORDINARY}, .flags = TEAM_HALF},
    [SUBJECT_BLOCKING] = {"push_pull_no_spin", "push_pull, nobody spins",
        KIND_POSEIDON, TIMING_CALL, {SUBJECT_PING_MEMORY, SUBJECT_SOCKETS}, .flags = TEAM_IN_PLACE,
        .job = JOB_BLOCKING},
    [SUBJECT_MOMENTUM] = {"push_pull_momentum", "push_pull, momentum",
        KIND_POSEIDON, TIMING_CALL, {SUBJECT_IN_PLACE}, .flags = TEAM_IN_PLACE | TEAM_MOMENTUM},
    [SUBJECT_ADAM] = {"push_pull_adam", "push_pull, adam",
        KIND_POSEIDON, TIMING_CALL, {SUBJECT_IN_PLACE}, .flags = TEAM_IN_PLACE | TEAM_ADAM},
    [SUBJECT_COPIED] = {"copied", "with a copy",
        KIND_POSEIDON, TIMING_CALL, {SUBJECT_IN_PLACE}, .flags = TEAM_IN_PLACE, .job = JOB_COPIED},
    [SUBJECT_COPIED_MOMENTUM] = {"copied_momentum", "with a copy, momentum",
        KIND_POSEIDON, TIMING_CALL, {SUBJECT_MOMENTUM}, .flags = TEAM_IN_PLACE | TEAM_MOMENTUM,
        .job = JOB_COPIED},
    [SUBJECT_COPIED_ADAM] = {"copied_adam", "with a copy, adam",
        KIND_POSEIDON, TIMING_CALL, {SUBJECT_ADAM}, .flags = TEAM_IN_PLACE | TEAM_ADAM,
        .job = JOB_COPIED},
    [SUBJECT_SUM_OFF] = {"sum_failover_off", "sum, sum_failover=off",
        KIND_POSEIDON, TIMING_BOTH, {SUBJECT_SUM}, .flags = TEAM_IN_PLACE | TEAM_SUM,
        .job = JOB_SUM_OFF},
    [SUBJECT_SUM_HELD] = {"sum", "sum, ordinary memory",
        KIND_POSEIDON, TIMING_CALL, {SUBJECT_ORDINARY}, .flags = TEAM_SUM},
    [SUBJECT_SUM_HELD_OFF] = {"sum_failover_off_ordinary", "sum, ordinary memory, sum_failover=off",
        KIND_POSEIDON, TIMING_CALL, {SUBJECT_SUM_HELD}, .flags = TEAM_SUM, .job = JOB_SUM_OFF},
    [SUBJECT_TENSORS] = {"sum_tensors", "sum, a table for each tensor",
        KIND_POSEIDON, TIMING_CALL, {SUBJECT_SUM_HELD}, .flags = TEAM_SUM | TEAM_TENSORS, .model = true},
    [SUBJECT_TRAIN] = {"sum_train", "sum, what it adds to backward",
        KIND_POSEIDON, TIMING_CALL, .flags = TEAM_SUM | TEAM_TENSORS | TEAM_BACKWARD, .model = true},
    [SUBJECT_URGENT] = {"urgent_4k", "urgent 4 KiB meanwhile",
        KIND_POSEIDON, TIMING_CALL, {SUBJECT_URGENT_EQUAL}, .flags = TEAM_IN_PLACE | TEAM_PRIORITY,
        .urgent = true},
    [SUBJECT_URGENT_EQUAL] = {"urgent_4k_without_priority", "4 KiB meanwhile, no priority",
        KIND_POSEIDON, TIMING_CALL, .flags = TEAM_IN_PLACE, .urgent = true},

    [SUBJECT_FULL] = {"ceiling_full", "ceiling: full",
        KIND_MEMORY, TIMING_TOUCH, .variant = CEILING_FULL},
    [SUBJECT_BLOCKED] = {"ceiling_blocked", "ceiling: blocked-full",
        KIND_MEMORY, TIMING_TOUCH, .variant = CEILING_BLOCKED},
    [SUBJECT_FUSED] = {"ceiling_fused", "ceiling: the server's pass alone",
        KIND_MEMORY, TIMING_CALL, .variant = CEILING_FUSED},
    [SUBJECT_COPY_NT] = {"ceiling_copyin_nt", "ceiling: copyin(nt)",
        KIND_MEMORY, TIMING_CALL, .variant = CEILING_COPY_NT},
    [SUBJECT_COPY_LIBC] = {"ceiling_copyin_libc", "ceiling: copyin(libc)",
        KIND_MEMORY, TIMING_CALL, .variant = CEILING_COPY_LIBC},
    [SUBJECT_SOCKETS] = {"ceiling_sockets", "ceiling: raw sockets",
        KIND_SOCKETS, TIMING_CALL},
    [SUBJECT_SOCKETS_SPIN] = {"ceiling_sockets_spin", "ceiling: raw sockets, spinning",
        KIND_SOCKETS, TIMING_CALL, .wait = CEILING_SPIN},
    [SUBJECT_SOCKETS_ONE_SERVER] = {"ceiling_sockets_one_server", "ceiling: raw sockets, 1 server",
        KIND_SOCKETS, TIMING_CALL},
    [SUBJECT_SOCKETS_THREADS] = {"ceiling_sockets_threads", "ceiling: raw sockets, the same threads",
        KIND_SOCKETS, TIMING_CALL, .threads = true},
    [SUBJECT_TLS] = {"ceiling_tls", "ceiling: bare TLS",
        KIND_TLS, TIMING_CALL},
    [SUBJECT_TLS_THREADS] = {"ceiling_tls_threads", "ceiling: bare TLS, the same threads",
        KIND_TLS, TIMING_CALL, .threads = true},
    [SUBJECT_PING_MEMORY] = {"ping_shm", "ping: shared memory",
        KIND_PING, TIMING_CALL, .variant = CEILING_PING_MEMORY,
        .bytes_max = CEILING_PING_BYTES_MAX},
    [SUBJECT_PING_MEMORY_SPIN] = {"ping_shm_spin", "ping: shared memory, spinning",
        KIND_PING, TIMING_CALL, .variant = CEILING_PING_MEMORY, .wait = CEILING_SPIN,
        .bytes_max = CEILING_PING_BYTES_MAX},
    [SUBJECT_PING_TCP] = {"ping_tcp", "ping: tcp",
        KIND_PING, TIMING_CALL, .variant = CEILING_PING_TCP, .bytes_max = CEILING_PING_BYTES_MAX},
    [SUBJECT_PING_TCP_SPIN] = {"ping_tcp_spin", "ping: tcp, spinning",
        KIND_PING, TIMING_CALL, .variant = CEILING_PING_TCP, .wait = CEILING_SPIN,
        .bytes_max = CEILING_PING_BYTES_MAX},
    [SUBJECT_PING_UNIX] = {"ping_unix", "ping: unix socket",
        KIND_PING, TIMING_CALL, .variant = CEILING_PING_UNIX, .bytes_max = CEILING_PING_BYTES_MAX},
    [SUBJECT_PING_UNIX_SPIN] = {"ping_unix_spin", "ping: unix socket, spinning",
        KIND_PING, TIMING_CALL, .variant = CEILING_PING_UNIX, .wait = CEILING_SPIN,
        .bytes_max = CEILING_PING_BYTES_MAX},
    [SUBJECT_PING_RELAY] = {"ping_relay_spin", "ping: through a third process, spinning",
        KIND_RELAY, TIMING_CALL, .wait = CEILING_SPIN, .bytes_max = CEILING_PING_BYTES_MAX},

    [SUBJECT_MPI] = {"mpi_allreduce", "OpenMPI",
        KIND_MPI, TIMING_BOTH, POSEIDON},
    [SUBJECT_MPI_TCP] = {"mpi_allreduce_tcp", "OpenMPI, tcp",
        KIND_MPI, TIMING_BOTH, POSEIDON, .tcp = true},
    [SUBJECT_MPI_TCP_TUNED] = {"mpi_allreduce_tcp_tuned", "OpenMPI, tcp tuned",
        KIND_MPI, TIMING_BOTH, POSEIDON, .tcp = true, .tuned = true},
    [SUBJECT_GLOO] = {"gloo_allreduce", "Gloo",
        KIND_GLOO, TIMING_BOTH, POSEIDON},
    [SUBJECT_GLOO_TUNED] = {"gloo_allreduce_tuned", "Gloo, tcp tuned",
        KIND_GLOO, TIMING_BOTH, POSEIDON, .tuned = true},
    [SUBJECT_RPC] = {"torch_rpc", "torch.distributed.rpc",
        KIND_RPC, TIMING_BOTH, POSEIDON},
    [SUBJECT_RPC_TCP] = {"torch_rpc_tcp", "torch.distributed.rpc, tcp",
        KIND_RPC, TIMING_BOTH, POSEIDON, .tcp = true},
    [SUBJECT_RPC_TCP_TUNED] = {"torch_rpc_tcp_tuned", "torch.distributed.rpc, tcp tuned",
        KIND_RPC, TIMING_BOTH, POSEIDON, .tcp = true, .tuned = true},
    [SUBJECT_TRAIN_MPI] = {"mpi_train", "OpenMPI, what it adds to backward",
        KIND_MPI, TIMING_CALL, {SUBJECT_TRAIN}, .flags = TEAM_BACKWARD, .model = true},
    [SUBJECT_TRAIN_GLOO] = {"gloo_train", "Gloo, what it adds to backward",
        KIND_GLOO, TIMING_CALL, {SUBJECT_TRAIN}, .flags = TEAM_BACKWARD, .model = true},
};
/* clang-format on */

const struct subject_about *
subject_about(enum subject subject)
{
    psi_assert(subject > SUBJECT_NONE && subject < SUBJECTS);
    return &abouts[subject];
}

bool
subject_takes(enum subject subject, uint64_t bytes)
{
    const struct subject_about *about = subject_about(subject);

    return (!about->model || model_name(bytes) != NULL) && bytes >= about->bytes_min &&
           (about->bytes_max == 0 || bytes <= about->bytes_max);
}
