/*
 * page_none.c - for a psd_run that is built without libmicrohttpd: there is no page, and it says so.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "launch/page/page.h"

psd_status
page_open(const struct page_args *args, struct page **page_p, struct psd_error *err)
{
    (void)args;
    (void)page_p;
    return psi_fail(err, PSD_ERR_REFUSED,
                    "this psd_run was built without libmicrohttpd, so there "
                    "is no page; report.html is written all the same");
}

void
page_close(struct page *page)
{
    (void)page;
}

void
page_show(struct page *page, const struct page_source *source)
{
    (void)page;
    (void)source;
}

int
page_fd(const struct page *page)
{
    (void)page;
    return -1;
}

void
page_turn(struct page *page)
{
    (void)page;
}

void
page_address(const struct page *page, char address_p[PAGE_ADDRESS_BYTES])
{
    (void)page;
    address_p[0] = '\0';
}

uint16_t
page_port(const struct page *page)
{
    (void)page;
    return 0;
}

void
page_end(struct page *page)
{
    (void)page;
}
