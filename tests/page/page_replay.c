/*
 * page_replay.c - serves psd_run's page over a feed that somebody else makes: the page at 64 workers, or
 * of a job that says hostile things, without such a job.
 *
 *   page_replay [REPORT] <FEED
 *
 * FEED has a line "W JSON" for the whole state and "D JSON" for what is new. The first line that is printed
 * is the address of the page. At the end of the feed open pages get the last state, and REPORT is
 * written.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/epoll.h>

#include "launch/page/document.h"
#include "launch/page/page.h"

enum { NEWS_MAX = 64, READ_BYTES = 1 << 16 }; /* psd_run itself keeps none */

struct replay {
    char *whole;
    char *news[NEWS_MAX]; /* not yet shown */
    size_t news_count;
    char *line; /* not yet complete */
    size_t line_bytes;
    size_t line_room;
    unsigned wholes; /* that were asked for */
};

static char *
snapshot(void *context, bool whole)
{
    struct replay *replay = context;
    char *first;

    replay->wholes += whole;
    if (whole || replay->news_count == 0) {
        return strdup(whole && replay->whole != NULL ? replay->whole : "{}");
    }
    first = replay->news[0];
    memmove(replay->news, replay->news + 1, --replay->news_count * sizeof(replay->news[0]));
    return first;
}

static char *
metrics(void *context)
{
    const struct replay *replay = context;
    char *text = NULL;

    return asprintf(&text,
                    "# HELP psd_replay A feed that was recorded.\n# TYPE psd_replay gauge\n"
                    "psd_replay 1\npsd_replay_wholes %u\n",
                    replay->wholes) < 0
               ? NULL
               : text;
}

static void
take_line(struct replay *replay, const char *line)
{
    char *json = strdup(line + (strlen(line) >= 2 ? 2 : 0));

    if (line[0] == 'W') {
        free(replay->whole);
        replay->whole = json;
    } else if (line[0] == 'D' && replay->news_count < NEWS_MAX) {
        replay->news[replay->news_count++] = json;
    } else {
        free(json);
    }
}

/* Returns false at the end of the feed. */
static bool
read_some(struct replay *replay)
{
    char bytes[READ_BYTES];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof(bytes));

    for (ssize_t i = 0; i < count; i++) {
        if (replay->line_bytes + 1 >= replay->line_room) {
            replay->line_room = 2 * replay->line_room + READ_BYTES;
            replay->line = realloc(replay->line, replay->line_room);
        }
        if (bytes[i] != '\n') {
            replay->line[replay->line_bytes++] = bytes[i];
            continue;
        }
        replay->line[replay->line_bytes] = '\0';
        take_line(replay, replay->line);
        replay->line_bytes = 0;
    }
    return count > 0;
}

int
main(int argc, char **argv)
{
    struct replay replay = {0};
    const struct page_source source = {
        .snapshot = snapshot, .metrics = metrics, .context = &replay};
    const struct page_args args = {0};
    struct psd_error err = {0};
    struct page *page = NULL;
    char address[PAGE_ADDRESS_BYTES];
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    bool more = true;

    if (page_open(&args, &page, &err) != PSD_OK) {
        fprintf(stderr, "page_replay: %s\n", err.text);
        return 1;
    }
    while (replay.whole == NULL && more) { /* whoever comes finds a job */
        more = read_some(&replay);
    }
    page_show(page, &source);
    page_address(page, address);
    printf("%s\n", address);
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        const int fd = i == 0 ? page_fd(page) : STDIN_FILENO;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    }
    while (more) {
        struct epoll_event event;

        if (epoll_wait(epoll, &event, 1, -1) == 1) {
            if (event.data.fd == STDIN_FILENO) {
                more = read_some(&replay);
            } else {
                page_turn(page);
            }
        }
    }
    if (argc > 1 && document_write(argv[1], replay.whole, &err) != PSD_OK) {
        fprintf(stderr, "page_replay: %s\n", err.text);
        return 1;
    }
    page_end(page);
    page_close(page);
    for (size_t i = 0; i < replay.news_count; i++) {
        free(replay.news[i]);
    }
    free(replay.whole);
    free(replay.line);
    close(epoll);
    return 0;
}
