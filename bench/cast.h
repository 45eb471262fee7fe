/*
 * cast.h - the processes of one row of the plan: jobs and peers live as long as the row, ceilings
 * as long as one size.
 */
#ifndef BENCH_CAST_H
#define BENCH_CAST_H

#include "plan.h"
#include "troupe.h"

/* Thread: owned by the runner. */
struct cast {
    const struct plan_row *row;
    struct troupe *troupes[ENTRANTS];   /* of jobs and peers; several entrants share a job */
    struct ceiling *ceilings[ENTRANTS]; /* of this size */
};

/* Starts jobs and peers. Peers that are not installed are skipped with a line that says so.
 * launch: see options.h. */
psd_status cast_start(const struct plan_row *row, const char *launch, struct cast *cast_p,
                      struct psd_error *err);

/* Starts the ceilings for one size. */
psd_status cast_start_ceilings(struct cast *cast, uint64_t bytes, struct psd_error *err);
void cast_stop_ceilings(struct cast *cast);

/* The crew of an entrant; NULL: it does not take part. */
struct crew *cast_crew(const struct cast *cast, enum entrant entrant);

/* Ends everybody; PSD_ERR_JOB_FAILED: somebody did not end well. */
psd_status cast_end(struct cast *cast, struct psd_error *err);

/* After a failure. */
void cast_abandon(struct cast *cast);

#endif
