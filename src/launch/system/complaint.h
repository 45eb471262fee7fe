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

/*
 * That line; else what the other side printed in the place of an agent's words (a login that is not
 * allowed says so there); else how the program ended. status: as waitpid() told it, -1: unknown.
 */
void complaint_describe(const char *program, const char *complaint, const char *printed,
                        bool (*is_noise)(const char *line), int status, char *text_p, size_t size);

/* Whether there is nothing but such words to go by. */
bool complaint_is_printed(const char *complaint, const char *printed,
                          bool (*is_noise)(const char *line));

#endif
