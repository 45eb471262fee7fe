/*
 * train.c - trains the network together with the other workers of the job.
 *
 * The heart is train_step(). Forward: each layer computes as soon as its new values have arrived.
 * Back: each layer's gradient leaves as soon as it is known. So the last layers' gradients travel
 * while the first layers' are still being computed, and the first layers' values, which the next
 * step needs first, overtake the others on their way here.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "train.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "network.h"
#include "sampler.h"
#include "tables.h"

enum { REPORT_EVERY = 10, LINES_PER_EPOCH = 2, SLICE_IMAGES = 1000 };

/* SIGTERM asks this worker to leave: psd_run scale with fewer workers, or a batch system. */
static volatile sig_atomic_t asked_to_leave;

/* Thread: owned by the training thread. */
struct trainer {
    psd_context *context;
    const struct options *options;
    const struct images *test;
    struct network network;
    struct sampler sampler;
    struct tables tables;
    uint32_t times;     /* that each layer is computed: --slow */
    uint64_t last_step; /* training ends before it */
    double loss_sum;    /* these three: since the last line printed */
    uint32_t loss_count;
    double line_s;
};

static bool
train_step(struct trainer *trainer, uint64_t step, double *loss_p, struct failure *failure)
{
    struct network *network = &trainer->network;
    struct sampler *sampler = &trainer->sampler;
    const float *input = sampler->pixels;
    const float *output = input;

    sampler_fill(sampler, step);
    for (uint32_t layer = 0; layer < network->layer_count; layer++) {
        if (!tables_wait_layer(&trainer->tables, layer, failure)) {
            return false;
        }
        for (uint32_t i = 0; i < trainer->times; i++) {
            output = network_forward(network, layer, input, sampler->batch);
        }
        input = output;
    }

    *loss_p = network_loss(network, sampler->labels, sampler->batch);

    for (uint32_t layer = network->layer_count; layer-- > 0;) {
        for (uint32_t i = 0; i < trainer->times; i++) {
            network_backward(network, layer, sampler->pixels, sampler->batch);
        }
        if (!tables_push_layer(&trainer->tables, layer, step, failure)) {
            return false;
        }
    }
    return true;
}

/* Opens or loads the tables, finds out where to begin and asks for the values there. */
static bool
begin(struct trainer *trainer, uint64_t *step_p, struct failure *failure)
{
    const struct options *options = trainer->options;
    const bool replacement = psd_incarnation(trainer->context) > 1;
    const uint32_t rank = psd_rank(trainer->context);
    uint64_t step;

    /* Better now than after the training. */
    if (options->save != NULL && rank == 0 && mkdir(options->save, 0777) != 0 && errno != EEXIST) {
        return failed(failure, "--save %s: %s", options->save, strerror(errno));
    }
    if (!tables_open(&trainer->tables, trainer->context, &trainer->network, options, failure)) {
        return false;
    }
    /* When a worker comes in place of a dead one, the job has loaded long ago. */
    if (options->load != NULL && !replacement &&
        !check(psd_load(trainer->context, options->load, &step), failure)) {
        return false;
    }
    step = tables_step(&trainer->tables);
    if (step > 0 && (replacement || rank == 0)) {
        printf("worker %" PRIu32 " goes on at step %" PRIu64 "\n", rank, step);
    }
    *step_p = step;
    return tables_pull(&trainer->tables, step, failure);
}

static double
now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool
print_line(struct trainer *trainer, uint64_t step, struct failure *failure)
{
    const struct sampler *sampler = &trainer->sampler;
    const uint32_t slice =
        trainer->test->count < SLICE_IMAGES ? trainer->test->count : SLICE_IMAGES;
    double images_per_s;

    if (!tables_wait(&trainer->tables, failure)) {
        return false;
    }
    images_per_s =
        (double)trainer->loss_count * sampler->batch * sampler->size / (now_s() - trainer->line_s);
    printf("epoch %" PRIu64 "/%" PRIu32 "  step %" PRIu64 "/%" PRIu64
           "  loss %.4f  accuracy %.3f  %.0f samples/s\n",
           step / sampler->steps_per_epoch + 1, trainer->options->epochs, step + 1,
           trainer->last_step, trainer->loss_sum / trainer->loss_count,
           network_accuracy(&trainer->network, trainer->test, slice), images_per_s);
    trainer->loss_sum = 0.0;
    trainer->loss_count = 0;
    trainer->line_s = now_s();
    return true;
}

/* Tells the job and, on worker 0, the reader how it goes. */
static bool
tell(struct trainer *trainer, uint64_t step, double loss, struct failure *failure)
{
    const uint64_t in_epoch = step % trainer->sampler.steps_per_epoch + 1;
    const uint64_t apart = trainer->sampler.steps_per_epoch / LINES_PER_EPOCH + 1;
    const bool line_due = in_epoch % apart == 0 || in_epoch == trainer->sampler.steps_per_epoch ||
                          step + 1 == trainer->last_step;

    trainer->loss_sum += loss;
    trainer->loss_count++;
    if (step % REPORT_EVERY == 0 &&
        !check(psd_report(trainer->context, step, "loss", loss), failure)) {
        return false;
    }
    return !line_due || psd_rank(trainer->context) != 0 || print_line(trainer, step, failure);
}

/* Gets the final values here, with everybody's last gradients in them. */
static bool
settle(struct trainer *trainer, uint64_t step, struct failure *failure)
{
    if (!tables_wait(&trainer->tables, failure)) {
        return false;
    }
    if (trainer->options->mode == MODE_BSP) {
        return true; /* the last round had them all */
    }
    return check(psd_barrier(trainer->context, PSD_FOREVER), failure) &&
           tables_pull(&trainer->tables, step, failure) && tables_wait(&trainer->tables, failure);
}

/* What worker 0 does for all. */
static bool
conclude(struct trainer *trainer, uint64_t step, double *accuracy_p, struct failure *failure)
{
    const char *directory = trainer->options->save;

    if (directory != NULL) {
        if (!check(psd_save(trainer->context, directory, step), failure)) {
            return false;
        }
        printf("saved step %" PRIu64 " in %s\n", step, directory);
    }
    *accuracy_p = network_accuracy(&trainer->network, trainer->test, trainer->test->count);
    return true;
}

static void
ask_to_leave(int number)
{
    (void)number;
    asked_to_leave = 1;
}

static void
watch_for_leave(void)
{
    struct sigaction action = {.sa_handler = ask_to_leave, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
}

/* Its last gradients count, and the others go on without it. */
static bool
leave(struct trainer *trainer, uint64_t step, struct failure *failure)
{
    if (!tables_wait(&trainer->tables, failure)) {
        return false;
    }
    printf("worker %" PRIu32 " leaves before step %" PRIu64 ", as it was asked to\n",
           psd_rank(trainer->context), step);
    return true;
}

static bool
run(struct trainer *trainer, double *accuracy_p, struct failure *failure)
{
    uint64_t step = 0;
    double loss;

    if (!begin(trainer, &step, failure)) {
        return false;
    }
    if (!check(psd_report(trainer->context, step, "steps_total", (double)trainer->last_step),
               failure)) {
        return false;
    }
    trainer->line_s = now_s();
    watch_for_leave();
    for (; step < trainer->last_step; step++) {
        if (asked_to_leave) {
            return leave(trainer, step, failure);
        }
        if (!train_step(trainer, step, &loss, failure) || !tell(trainer, step, loss, failure)) {
            return false;
        }
    }
    if (!settle(trainer, step, failure)) {
        return false;
    }
    return psd_rank(trainer->context) != 0 || conclude(trainer, step, accuracy_p, failure);
}

static bool
trainer_init(struct trainer *trainer, const struct dataset *dataset, struct failure *failure)
{
    const struct options *options = trainer->options;
    const struct sampler_args args = {
        .images = &dataset->train,
        .seed = options->seed,
        .batch = options->batch,
        .rank = psd_rank(trainer->context),
        .size = psd_size(trainer->context),
    };

    if (!sampler_init(&trainer->sampler, &args, failure) ||
        !network_init(&trainer->network, options->model, options->batch, failure)) {
        return false;
    }
    trainer->test = &dataset->test;
    trainer->times = psd_rank(trainer->context) == options->slow ? 2 : 1;
    trainer->last_step = options->epochs * trainer->sampler.steps_per_epoch;
    if (options->steps != 0 && options->steps < trainer->last_step) {
        trainer->last_step = options->steps;
    }
    return true;
}

bool
train(psd_context *context, const struct options *options, const struct dataset *dataset,
      double *accuracy_p, struct failure *failure)
{
    struct trainer trainer = {.context = context, .options = options};
    double accuracy = -1.0;
    bool ok = trainer_init(&trainer, dataset, failure) && run(&trainer, &accuracy, failure);

    /* First the context, then the memory: operations in flight still use it. */
    if (ok) {
        ok = check(psd_close(context), failure);
    } else {
        psd_abandon(context);
    }
    network_fini(&trainer.network);
    sampler_fini(&trainer.sampler);
    if (ok) {
        *accuracy_p = accuracy;
    }
    return ok;
}
