/*
 * invite.h - how people are told where the page is: the token goes to terminals only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_INVITE_H
#define LAUNCH_PAGE_INVITE_H

#include <stddef.h>
#include <stdint.h>

enum { INVITE_BYTES = 512 };

/* From where psd_run was started; NULL: it says nothing. */
struct invite_place {
    const char *user;
    const char *hostname;
    const char *ssh_connection; /* SSH_CONNECTION */
    const char *slurm_job;      /* SLURM_JOB_ID */
    const char *submit_host;    /* SLURM_SUBMIT_HOST */
};

/* Pure: the command that brings the page to the machine where the browser is: "ssh -L ..."; "" when that
 * is this one. */
void invite_tunnel(const struct invite_place *place, uint16_t port, char text_p[INVITE_BYTES]);

#endif
