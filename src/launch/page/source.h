/*
 * source.h - where the page has its data from.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_SOURCE_H
#define LAUNCH_PAGE_SOURCE_H

#include <stdbool.h>

/* What a page is told. Borrowed until another one is given. */
struct page_source {
    /* A JSON document, owned by the caller. whole: all there is; else what is new since the last
     * call with whole false. */
    char *(*snapshot)(void *context, bool whole);
    char *(*metrics)(void *context); /* text for Prometheus, likewise */
    void *context;
};

#endif
