/*
 * page.h - the page on which people watch a job: served by psd_run itself, in its own loop, read
 * only.
 *
 * It listens on loopback unless told otherwise, and elsewhere only with TLS. What it shows is JSON that
 * page_source makes: docs/watching.md has its members. gate.h says who may look, streams.h how the
 * news comes to open pages.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_PAGE_H
#define LAUNCH_PAGE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#include "launch/page/source.h"

enum { PAGE_ADDRESS_BYTES = 512, PAGE_EVERY_MS = 500, PAGE_END_MS = 1000 };

struct page;

/* Borrowed until page_open() returns. */
struct page_args {
    const char *address;     /* (optional) where to listen [127.0.0.1] */
    uint16_t port;           /* 0: any */
    const char *certificate; /* (optional) file in PEM, for TLS; with its key ... */
    const char *key;         /* ... likewise */
    const char *token_file;  /* (optional) the token is in this file, or put there, mode 0600 */
};

/* PSD_ERR_INVALID: what is asked for would let everybody in, or a file is not usable;
 * PSD_ERR_REFUSED: this machine has no libmicrohttpd; PSD_ERR_IO: the port is taken, and the like. */
psd_status page_open(const struct page_args *args, struct page **page_p, struct psd_error *err);
void page_close(struct page *page);

/* Before that, and with NULL, the page says that there is no job. */
void page_show(struct page *page, const struct page_source *source);

/* Readable when page_turn() is due; it never blocks. */
int page_fd(const struct page *page);
void page_turn(struct page *page);

/* "http://127.0.0.1:4711/?token=..." */
void page_address(const struct page *page, char address_p[PAGE_ADDRESS_BYTES]);
uint16_t page_port(const struct page *page);

/* Open pages get the whole state a last time, as an event "end", and keep it. Takes at most
 * PAGE_END_MS. */
void page_end(struct page *page);

#endif
