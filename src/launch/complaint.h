/*
 * complaint.h - what a program that was to start an agent printed, reduced to what matters.
 */
#ifndef LAUNCH_COMPLAINT_H
#define LAUNCH_COMPLAINT_H

#include <stdbool.h>
#include <stddef.h>

/* The last line for which is_noise() is false; "" if there is none. A line given to is_noise() does
 * not end where it does: it is the rest of the text. */
void complaint_last_line(const char *complaint, bool (*is_noise)(const char *line), char *text_p,
                         size_t size);

/* That line; or how a program ended that said nothing. status: as waitpid() told it, -1: unknown.
 */
void complaint_describe(const char *program, const char *complaint,
                        bool (*is_noise)(const char *line), int status, char *text_p, size_t size);

#endif
