/*
 * start_order.c - an order to start a process, as LINK_START brings it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/start_order.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/agent/hook.h"
#include "launch/text/memory.h"
#include "launch/text/variables.h"

void
start_order_fini(struct start_order *order)
{
    words_fini(&order->strings);
    words_fini(&order->environment);
    free(order->path);
}

/* Item `index` of a list with commas; of a short list, from its beginning again. */
static void
add_item(FILE *stream, const char *list, unsigned long index)
{
    unsigned long count = 1;
    size_t at = 0;

    for (const char *comma = strchr(list, ','); comma != NULL; comma = strchr(comma + 1, ',')) {
        count++;
    }
    for (index %= count; index > 0; index--) {
        at += strcspn(list + at, ",") + 1;
    }
    fprintf(stream, "%.*s", (int)strcspn(list + at, ","), list + at);
}

/*
 * A batch system names the GPUs that a machine, or a process of its own, may use: those are dealt
 * out, not the first ones, which may be somebody else's.
 */
static void
translate_gpus(const struct setup *setup, struct words *environment)
{
    static const char name[] = "CUDA_VISIBLE_DEVICES";
    const char *given = variables_get(setup->service_environment.list, name);
    const char *dealt = variables_get(environment->list, name);
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream;

    if (!setup->deals_gpus || given == NULL || given[0] == '\0' || dealt == NULL ||
        dealt[0] == '\0' || strspn(dealt, "0123456789,") != strlen(dealt)) {
        return;
    }
    stream = memory_need(open_memstream(&text, &bytes));
    for (const char *number = dealt; number != NULL;) {
        const char *comma = strchr(number, ',');

        add_item(stream, given, strtoul(number, NULL, 10));
        fputs(comma != NULL ? "," : "", stream);
        number = comma != NULL ? comma + 1 : NULL;
    }
    fclose(stream);
    variables_set_pair(environment, name, memory_need(text));
    free(text);
}

/* argv is cut out of the strings by a NULL where the environment begins. */
int
start_order_read(struct start_order *order, const struct setup *setup,
                 const struct link_message *message)
{
    const size_t argc = (size_t)(message->number > 0 ? message->number : 0);
    struct words *strings = &order->strings;
    bool worker;

    if (link_words(message, strings, NULL) != PSD_OK || argc < 1 || strings->count < 3 + argc) {
        return EINVAL;
    }
    order->role = strings->list[0];
    order->log = strings->list[1];
    order->ports = strings->list[2];
    order->argv = strings->list + 3;
    worker = strcmp(order->role, "worker") == 0;
    variables_set_all(&order->environment,
                      worker ? setup->worker_environment.list : setup->service_environment.list);
    variables_set_all(&order->environment, strings->list + 3 + argc);
    while (strings->count > 3 + argc) {
        free(strings->list[--strings->count]);
        strings->list[strings->count] = NULL;
    }
    if (worker) {
        translate_gpus(setup, &order->environment);
        hook_enter(setup->hook_directory, &order->environment);
    }
    order->path = setup_find(order->argv[0], worker, order->environment.list);
    return order->path != NULL ? 0 : ENOENT;
}
