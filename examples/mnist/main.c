/*
 * main.c - the worker program `mnist`: reads digits, joins the job, trains, tells how well it went.
 *
 * Start reading at train.c; `mnist -h` explains the options.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>

#include <psd/psd.h>

#include "dataset.h"
#include "options.h"
#include "tables.h"
#include "train.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static bool
join(const struct options *options, psd_context **context_p, struct failure *failure)
{
    const struct psd_open_args args = {
        .struct_size = sizeof(args),
        .master_address = options->master_address,
        .rank = options->rank,
    };

    return check(psd_open(&args, context_p), failure);
}

/* Images are dealt to the workers that the job began with: one that joins it later has none. */
static bool
leave_at_once(psd_context *context, struct failure *failure)
{
    fprintf(stderr,
            "mnist: worker %u leaves: the job began with %u workers, and this program deals its "
            "images to those alone\n",
            psd_rank(context), psd_size(context));
    return check(psd_close(context), failure);
}

/* Loads the images first: a job should not gather around a worker that has none. */
static bool
work(const struct options *options, struct failure *failure)
{
    struct dataset dataset;
    psd_context *context;
    double accuracy = -1.0;
    bool ok;

    if (!dataset_init(&dataset, options->data, failure)) {
        return false;
    }
    ok = join(options, &context, failure);
    if (ok && psd_rank(context) >= psd_size(context)) {
        ok = leave_at_once(context, failure);
    } else if (ok) {
        ok = train(context, options, &dataset, &accuracy, failure);
    }
    if (ok && accuracy >= 0.0) {
        printf("MNIST accuracy: %.4f\n", accuracy);
    }
    dataset_fini(&dataset);
    return ok;
}

int
main(int argc, char **argv)
{
    struct options options;
    struct failure failure;

    setvbuf(stdout, NULL, _IOLBF, 0); /* lines reach the log as they are written */
    if (!options_parse(&options, argc, argv, &failure)) {
        fprintf(stderr, "mnist: %s\n", failure.text);
        return EXIT_USAGE;
    }
    if (options.help) {
        fputs(options_help, stdout);
        return 0;
    }
    if (options.version) {
        printf("mnist %s\n", psd_version());
        return 0;
    }
    if (!work(&options, &failure)) {
        fprintf(stderr, "mnist: %s\n", failure.text);
        return EXIT_FAILED;
    }
    return 0;
}
