/*
 * status.h - how a call says what happened.
 *
 * Codes are grouped by what the caller must do about them, never renumbered, only added to.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSD_STATUS_H
#define PSD_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define PSD_STATUS_MAP(X)                                                                          \
    X(OK, 0, "success")                                                                            \
    /* 1..19: not an error. */                                                                     \
    X(PENDING, 1, "not finished yet")                                                              \
    /* -1..-19: the call is wrong. Fix the program. */                                             \
    X(ERR_INVALID, -1, "invalid argument")                                                         \
    X(ERR_MISMATCH, -2, "workers disagree about a table")                                          \
    X(ERR_STEP, -3, "step out of order")                                                           \
    X(ERR_NOT_FINITE, -4, "gradient holds a NaN or an infinity")                                   \
    X(ERR_FORKED, -5, "context belongs to the parent process")                                     \
    X(ERR_STATE, -6, "not possible in this state")                                                 \
    /* -20..-39: it did not happen this time. The job goes on. */                                  \
    X(ERR_TIMEOUT, -20, "deadline passed")                                                         \
    X(ERR_BUSY, -21, "too much in flight")                                                         \
    X(ERR_DROPPED, -22, "round closed without this contribution")                                  \
    X(ERR_TOO_BIG, -23, "does not fit")                                                            \
    X(ERR_NO_MEMORY, -24, "out of memory")                                                         \
    X(ERR_IO, -25, "file system error")                                                            \
    X(ERR_CORRUPT, -26, "file is damaged")                                                         \
    /* -40..-59: this context is over. Open a new one, or exit. */                                 \
    X(ERR_PEER_LOST, -40, "a process of the job was lost")                                         \
    X(ERR_JOB_FAILED, -41, "the job failed")                                                       \
    X(ERR_FENCED, -42, "replaced by a newer process of the same rank")                             \
    X(ERR_REFUSED, -43, "refused by the job")                                                      \
    X(ERR_VERSION, -44, "protocol versions do not match")                                          \
    X(ERR_PROTOCOL, -45, "malformed message")                                                      \
    X(ERR_CLOSED, -46, "context closed")                                                           \
    /* -60: a bug in Poseidon. Report it. */                                                       \
    X(ERR_INTERNAL, -60, "internal error")

typedef enum psd_status {
#define PSD_STATUS_ENUM(name, code, text) PSD_##name = code,
    PSD_STATUS_MAP(PSD_STATUS_ENUM)
#undef PSD_STATUS_ENUM
} psd_status;

/*
 * An error with its text: "what was tried: what happened". Its room is fixed, so that reporting a
 * failure never allocates. It is the library's: a later version may append fields.
 */
struct psd_error {
    psd_status status;
    char text[508];
};

#if defined(__GNUC__)
#define PSD_API __attribute__((visibility("default")))
#else
#define PSD_API
#endif

/* The general meaning of a code, such as "deadline passed". Never NULL; static. Any thread. */
PSD_API const char *psd_status_text(psd_status status);

/* The name of a code, such as "PSD_ERR_TIMEOUT". Never NULL; static. Any thread. */
PSD_API const char *psd_status_name(psd_status status);

/*
 * The error of this thread's last failed psd call: status and text. Valid until the thread's next
 * psd call. After a call that succeeded, its content is unspecified.
 */
PSD_API const struct psd_error *psd_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
