/*
 * daemon.h - what a daemon needs to be allowed to listen.
 */
#ifndef PSI_SECURE_DAEMON_H
#define PSI_SECURE_DAEMON_H

#include "secure/source.h"

struct psi_address;

/*
 * The job's secret, or none where that is allowed. Without a secret a daemon starts only when it is
 * told to (--insecure), and only on a loopback address; the message says what to do. An address
 * that means all of them is never allowed: nobody could be told where to connect.
 */
psd_status psi_secure_listen(const struct psi_secret_source *source, bool insecure,
                             const struct psi_address *listen, struct psi_secret **secret_p,
                             struct psd_error *err);

#endif
