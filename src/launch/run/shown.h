/*
 * shown.h - what those who watch a job have of it. It outlives the attempts of a job that is begun anew:
 * an open page goes on, and the report tells of all of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_RUN_SHOWN_H
#define LAUNCH_RUN_SHOWN_H

#include "launch/page/feed.h"
#include "launch/page/page.h"
#include "launch/page/tensorboard.h"

struct run;

/* Zero at first; filled in by the first attempt. Thread: owned by the main thread of psd_run. */
struct shown {
    struct feed *feed;        /* owned; NULL: nothing is shown */
    struct page *page;        /* owned; NULL: nowhere */
    struct feed_since since;  /* what open pages have */
    struct tensorboard board; /* directory "": nobody wants it */
    struct run *run;          /* (optional) the attempt that goes on */
    bool is_tried;            /* a page was opened, or cannot be had */
    bool has_begun;           /* an attempt came so far that there is something to see */
    char *members;            /* owned: what a whole snapshot has besides, of the last attempt */
    char report_path[4096];   /* "" before it is written */
    char address_path[4096];  /* of the file with the page's address; "": none */
};

/* No more attempts: open pages get the last state, and everything is given back. */
void shown_end(struct shown *shown);

#endif
