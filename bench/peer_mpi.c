/*
 * peer_mpi.c - a rank of OpenMPI that follows the runner's orders: MPI_Allreduce of the gradients.
 *
 * usage: peer_mpi CONTROL, under mpirun. The ranks add and have the sum; what they would do with
 * it, apply it, is not part of the time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fail.h"
#include "group.h"
#include "models.h"
#include "rounds.h"
#include "team.h"
#include "tensor.h"
#include "timer.h"

/* Thread: owned by the main thread. */
struct rank {
    int rank;
    int ranks;
    uint64_t bytes;
    float *gradient;
    float *sum;
    struct tensor_model model;
};

static psd_status
gather(void *owner, struct psd_error *err)
{
    (void)owner;
    return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS
               ? PSD_OK
               : psi_fail(err, PSD_ERR_JOB_FAILED, "MPI_Barrier failed");
}

static psd_status
exchange(void *owner, struct psd_error *err)
{
    const struct rank *rank = owner;
    const int count = (int)(rank->bytes / sizeof(float));

    return MPI_Allreduce(rank->gradient, rank->sum, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
                   MPI_SUCCESS
               ? PSD_OK
               : psi_fail(err, PSD_ERR_JOB_FAILED, "MPI_Allreduce failed");
}

/* Bucket by bucket, as backward makes them. */
static psd_status
exchange_buckets(void *owner, struct psd_error *err)
{
    const struct rank *rank = owner;
    const uint64_t began_ns = timer_now_ns();
    struct model_part buckets[MODELS_PARTS_MAX];
    MPI_Request requests[MODELS_PARTS_MAX];
    const size_t count = model_buckets(rank->bytes, buckets);
    int result = MPI_SUCCESS;

    for (size_t i = 0; i < count && result == MPI_SUCCESS; i++) {
        model_await(began_ns, buckets[i].ready);
        result =
            MPI_Iallreduce(rank->gradient + buckets[i].first, rank->sum + buckets[i].first,
                           (int)buckets[i].count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    }
    if (result == MPI_SUCCESS) {
        result = MPI_Waitall((int)count, requests, MPI_STATUSES_IGNORE);
    }
    return result == MPI_SUCCESS ? PSD_OK
                                 : psi_fail(err, PSD_ERR_JOB_FAILED, "MPI_Iallreduce failed");
}

static psd_status
make_memory(struct rank *rank, uint64_t bytes, struct psd_error *err)
{
    if (bytes == rank->bytes) {
        return PSD_OK;
    }
    tensor_free(rank->gradient, rank->bytes);
    tensor_free(rank->sum, rank->bytes);
    rank->bytes = bytes;
    rank->gradient = tensor_alloc(bytes);
    rank->sum = tensor_alloc(bytes);
    tensor_model_init(&rank->model, TENSOR_SUM, (uint32_t)rank->ranks, bytes / sizeof(float));
    if (rank->gradient == NULL || rank->sum == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a tensor of %llu bytes",
                        (unsigned long long)bytes);
    }
    return PSD_OK;
}

static psd_status
follow(void *owner, const struct team_order *order, struct team_times *times, struct psd_error *err)
{
    struct rank *rank = owner;
    const psd_status status = make_memory(rank, order->bytes, err);
    const struct rounds rounds = {
        .rank = (uint32_t)rank->rank,
        .gradient = rank->gradient,
        .values = rank->sum,
        .model = &rank->model,
        .exchange = (order->flags & TEAM_BACKWARD) != 0 ? exchange_buckets : exchange,
        .gather = gather,
        .owner = rank,
    };

    if (status != PSD_OK) {
        return status;
    }
    tensor_spoil(rank->sum, rank->bytes);
    return rounds_run(&rounds, order, times, err);
}

int
main(int argc, char **argv)
{
    struct rank rank = {0};
    struct psd_error err = {0};
    psd_status status;
    int fd;

    if (argc != 2 || MPI_Init(&argc, &argv) != MPI_SUCCESS) {
        fprintf(stderr, "usage: mpirun -n RANKS peer_mpi CONTROL\n");
        return 2;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank.ranks);
    status = group_call(argv[1], &fd, &err);
    if (status == PSD_OK) {
        status = team_follow(fd, follow, &rank, &err);
        close(fd);
    }
    if (status != PSD_OK) {
        fprintf(stderr, "peer_mpi: %s\n", err.text);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
