/*
 * harden.c - a daemon gives up what it does not need, so that a bug in it is worth less.
 *
 * Each step stands alone: a kernel that lacks one still gets the others. The order matters only in
 * that no_new_privs comes first, because landlock and seccomp ask for it, and seccomp last, because
 * it forbids the calls that the other steps make.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/harden.h"
#include "secure/harden_steps.h"

#include <errno.h>
#include <linux/capability.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Sanitizers want ptrace and /proc, coverage writes files at the end: neither survives a filter. */
#ifdef PSI_INSTRUMENTED
static const bool instrumented = true;
#else
static const bool instrumented = false;
#endif
void
psi_harden_say(struct psi_harden_report *report, bool done, const char *format, ...)
{
    const size_t size = sizeof(report->text);
    va_list args;

    report->complete = report->complete && done;
    if (report->used > 0 && report->used + 3 < size) {
        memcpy(report->text + report->used, ", ", 3);
        report->used += 2;
    }
    va_start(args, format);
    report->used +=
        (size_t)vsnprintf(report->text + report->used, size - report->used, format, args);
    va_end(args);
    report->used = report->used < size ? report->used : size - 1;
}

static void
drop_privileges(struct psi_harden_report *report)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    bool done = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;

    psi_harden_say(report, done, done ? "no_new_privs" : "no_new_privs: this kernel lacks it");
    done = prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
    psi_harden_say(report, done, done ? "no core files" : "core files: %s", strerror(errno));

    /* Only the privileged may lower the bounding set, and only for them is there a reason to. */
    for (unsigned long i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++) {
        (void)prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
    }
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    done = syscall(SYS_capset, &head, none) == 0;
    psi_harden_say(report, done, done ? "no capabilities" : "capabilities: %s", strerror(errno));
}

/* Name services are libraries that libc loads when it first needs them, which the filter forbids.
 * So they are asked once before. */
static void
load_name_services(const char *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;

    if (getaddrinfo(host, NULL, &hints, &list) == 0) {
        freeaddrinfo(list);
    }
}

void
psi_harden(const struct psi_harden_args *args, const struct psi_log *log)
{
    struct psi_harden_report report = {.complete = true};

    if (geteuid() == 0) {
        psi_log(log, PSI_LOG_WARN, "AS-ROOT",
                "running as root: no part of a job needs that, an ordinary account is safer");
    }
    if (instrumented) {
        psi_log(log, PSI_LOG_INFO, "NOT-HARDENED", "built with a sanitizer or for coverage");
        return;
    }
    if (!args->on) {
        psi_log(log, PSI_LOG_WARN, "NOT-HARDENED", "harden=off");
        return;
    }
    if (args->lookup != NULL) {
        load_name_services(args->lookup);
    }
    drop_privileges(&report);
    psi_harden_files(args, &report);
    psi_harden_calls(args, &report);
    psi_log(log, report.complete ? PSI_LOG_INFO : PSI_LOG_WARN, "HARDENED", "%s", report.text);
}
