/*
 * entrants.c - everybody who can take part: Poseidon in its several uses, ceilings, peers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "entrants.h"

#include "base/fail.h"

/* A parameter server can be no faster than these, in memory or over sockets. */
#define CEILINGS_IN_PLACE                                                                          \
    {                                                                                              \
        ENTRANT_FULL, ENTRANT_FUSED, ENTRANT_SOCKETS, ENTRANT_SOCKETS_SPIN                         \
    }
#define CEILINGS_ORDINARY                                                                          \
    {                                                                                              \
        ENTRANT_COPY_NT, ENTRANT_COPY_LIBC, ENTRANT_SOCKETS, ENTRANT_TLS                           \
    }
#define POSEIDON                                                                                   \
    {                                                                                              \
        ENTRANT_IN_PLACE, ENTRANT_ORDINARY                                                         \
    }

/* clang-format off */
static const struct entrant_about abouts[ENTRANTS] = {
    [ENTRANT_IN_PLACE] = {"push_pull_in_place", "push_pull, in place",
        KIND_POSEIDON, TIMING_BOTH, CEILINGS_IN_PLACE, .flags = CREW_IN_PLACE},
    [ENTRANT_ORDINARY] = {"push_pull", "push_pull, ordinary memory",
        KIND_POSEIDON, TIMING_BOTH, CEILINGS_ORDINARY},
    [ENTRANT_STREAMED] = {"push_pull_streamed", "push_pull, chunk by chunk",
        KIND_POSEIDON, TIMING_TOUCH, {ENTRANT_BLOCKED}, .flags = CREW_IN_PLACE | CREW_STREAM,
        .bytes_min = 1 << 20},
    [ENTRANT_SUM] = {"sum_in_place", "sum, in place",
        KIND_POSEIDON, TIMING_BOTH, POSEIDON, .flags = CREW_IN_PLACE | CREW_SUM},
    [ENTRANT_SCANNED] = {"push_pull_nan_reject", "push_pull, NaN scan (default)",
        KIND_POSEIDON, TIMING_CALL, CEILINGS_ORDINARY, .flags = CREW_SCAN},
    [ENTRANT_HALF] = {"push_pull_f16", "push_pull, f16",
        KIND_POSEIDON, TIMING_CALL, {ENTRANT_ORDINARY}, .flags = CREW_HALF},
    [ENTRANT_BLOCKING] = {"push_pull_no_spin", "push_pull, nobody spins",
        KIND_POSEIDON, TIMING_CALL, {ENTRANT_PING_MEMORY, ENTRANT_SOCKETS}, .flags = CREW_IN_PLACE},
    [ENTRANT_URGENT] = {"urgent_4k", "urgent 4 KiB meanwhile",
        KIND_POSEIDON, TIMING_CALL, {ENTRANT_URGENT_EQUAL}, .flags = CREW_IN_PLACE | CREW_PRIORITY,
        .urgent = true},
    [ENTRANT_URGENT_EQUAL] = {"urgent_4k_without_priority", "4 KiB meanwhile, no priority",
        KIND_POSEIDON, TIMING_CALL, .flags = CREW_IN_PLACE, .urgent = true},

    [ENTRANT_FULL] = {"ceiling_full", "ceiling: full",
        KIND_MEMORY, TIMING_TOUCH, .variant = CEILING_FULL},
    [ENTRANT_BLOCKED] = {"ceiling_blocked", "ceiling: blocked-full",
        KIND_MEMORY, TIMING_TOUCH, .variant = CEILING_BLOCKED},
    [ENTRANT_FUSED] = {"ceiling_fused", "ceiling: the server's pass alone",
        KIND_MEMORY, TIMING_CALL, .variant = CEILING_FUSED},
    [ENTRANT_COPY_NT] = {"ceiling_copyin_nt", "ceiling: copyin(nt)",
        KIND_MEMORY, TIMING_CALL, .variant = CEILING_COPY_NT},
    [ENTRANT_COPY_LIBC] = {"ceiling_copyin_libc", "ceiling: copyin(libc)",
        KIND_MEMORY, TIMING_CALL, .variant = CEILING_COPY_LIBC},
    [ENTRANT_SOCKETS] = {"ceiling_sockets", "ceiling: raw sockets",
        KIND_SOCKETS, TIMING_CALL},
    [ENTRANT_SOCKETS_SPIN] = {"ceiling_sockets_spin", "ceiling: raw sockets, spinning",
        KIND_SOCKETS, TIMING_CALL, .wait = CEILING_SPIN},
    [ENTRANT_SOCKETS_ONE_SERVER] = {"ceiling_sockets_one_server", "ceiling: raw sockets, 1 server",
        KIND_SOCKETS, TIMING_CALL},
    [ENTRANT_TLS] = {"ceiling_tls", "ceiling: bare TLS",
        KIND_TLS, TIMING_CALL},
    [ENTRANT_PING_MEMORY] = {"ping_shm", "ping: shared memory",
        KIND_PING, TIMING_CALL, .variant = CEILING_PING_MEMORY,
        .bytes_max = CEILING_PING_BYTES_MAX},
    [ENTRANT_PING_MEMORY_SPIN] = {"ping_shm_spin", "ping: shared memory, spinning",
        KIND_PING, TIMING_CALL, .variant = CEILING_PING_MEMORY, .wait = CEILING_SPIN,
        .bytes_max = CEILING_PING_BYTES_MAX},
    [ENTRANT_PING_TCP] = {"ping_tcp", "ping: tcp",
        KIND_PING, TIMING_CALL, .variant = CEILING_PING_TCP, .bytes_max = CEILING_PING_BYTES_MAX},
    [ENTRANT_PING_TCP_SPIN] = {"ping_tcp_spin", "ping: tcp, spinning",
        KIND_PING, TIMING_CALL, .variant = CEILING_PING_TCP, .wait = CEILING_SPIN,
        .bytes_max = CEILING_PING_BYTES_MAX},
    [ENTRANT_PING_UNIX] = {"ping_unix", "ping: unix socket",
        KIND_PING, TIMING_CALL, .variant = CEILING_PING_UNIX, .bytes_max = CEILING_PING_BYTES_MAX},
    [ENTRANT_PING_UNIX_SPIN] = {"ping_unix_spin", "ping: unix socket, spinning",
        KIND_PING, TIMING_CALL, .variant = CEILING_PING_UNIX, .wait = CEILING_SPIN,
        .bytes_max = CEILING_PING_BYTES_MAX},

    [ENTRANT_MPI] = {"mpi_allreduce", "OpenMPI",
        KIND_MPI, TIMING_BOTH, POSEIDON},
    [ENTRANT_MPI_TCP] = {"mpi_allreduce_tcp", "OpenMPI, tcp",
        KIND_MPI, TIMING_BOTH, POSEIDON, .tcp = true},
    [ENTRANT_MPI_TCP_TUNED] = {"mpi_allreduce_tcp_tuned", "OpenMPI, tcp tuned",
        KIND_MPI, TIMING_BOTH, POSEIDON, .tcp = true, .tuned = true},
    [ENTRANT_GLOO] = {"gloo_allreduce", "Gloo",
        KIND_GLOO, TIMING_BOTH, POSEIDON},
    [ENTRANT_GLOO_TUNED] = {"gloo_allreduce_tuned", "Gloo, tcp tuned",
        KIND_GLOO, TIMING_BOTH, POSEIDON, .tuned = true},
    [ENTRANT_RPC] = {"torch_rpc", "torch.distributed.rpc",
        KIND_RPC, TIMING_BOTH, POSEIDON},
    [ENTRANT_RPC_TCP] = {"torch_rpc_tcp", "torch.distributed.rpc, tcp",
        KIND_RPC, TIMING_BOTH, POSEIDON, .tcp = true},
    [ENTRANT_RPC_TCP_TUNED] = {"torch_rpc_tcp_tuned", "torch.distributed.rpc, tcp tuned",
        KIND_RPC, TIMING_BOTH, POSEIDON, .tcp = true, .tuned = true},
};
/* clang-format on */

const struct entrant_about *
entrant_about(enum entrant entrant)
{
    psi_assert(entrant > ENTRANT_NONE && entrant < ENTRANTS);
    return &abouts[entrant];
}

bool
entrant_takes(enum entrant entrant, uint64_t bytes)
{
    const struct entrant_about *about = entrant_about(entrant);

    return bytes >= about->bytes_min && (about->bytes_max == 0 || bytes <= about->bytes_max);
}
