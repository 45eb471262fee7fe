/*
 * mhd.h - libmicrohttpd, loaded when a page is opened: machines that only run agents need not have it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_MHD_H
#define LAUNCH_PAGE_MHD_H

#include <microhttpd.h>

#include <psd/status.h>

/* What is used of it. */
#define MHD_FUNCTIONS(X)                                                                           \
    X(start_daemon)                                                                                \
    X(stop_daemon)                                                                                 \
    X(run)                                                                                         \
    X(get_timeout)                                                                                 \
    X(get_daemon_info)                                                                             \
    X(add_connection)                                                                              \
    X(get_connection_info)                                                                         \
    X(set_connection_option)                                                                       \
    X(suspend_connection)                                                                          \
    X(resume_connection)                                                                           \
    X(lookup_connection_value)                                                                     \
    X(create_response_from_buffer)                                                                 \
    X(create_response_from_callback)                                                               \
    X(add_response_header)                                                                         \
    X(queue_response)                                                                              \
    X(destroy_response)

struct mhd {
#define MHD_MEMBER(name) __typeof__(MHD_##name) *name;
    MHD_FUNCTIONS(MHD_MEMBER)
#undef MHD_MEMBER
};

/* Thread: filled in by mhd_load(), immutable afterwards. */
extern struct mhd mhd;

psd_status mhd_load(struct psd_error *err);

#endif
