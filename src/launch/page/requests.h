/*
 * requests.h - what the page's server answers to a request.
 *
 *   /          the page          /events    snapshots, one after the other
 *   /snapshot  one, as JSON      /metrics   for Prometheus
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_REQUESTS_H
#define LAUNCH_PAGE_REQUESTS_H

#include <microhttpd.h>
#include <stdint.h>

#include "launch/page/gate.h"
#include "launch/page/guests.h"
#include "launch/page/source.h"
#include "launch/page/streams.h"

/* Thread: owned by the main thread of psd_run. */
struct requests {
    struct gate gate;
    struct guests *guests; /* borrowed */
    struct streams streams;
    struct page_source source; /* snapshot NULL: no job */
    uint16_t port;             /* tells the cookies of two jobs on one machine apart */
};

/* For MHD_start_daemon(); context: the requests. */
enum MHD_Result requests_answer(void *context, struct MHD_Connection *connection, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_bytes, void **own);

/* Owned by the caller; NULL: no memory. */
char *requests_snapshot(struct requests *requests, bool whole);

#endif
