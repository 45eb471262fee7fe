/*
 * redundancy_table.c - the part of `psd_run show` about copies of servers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/redundancy_table.h"

#include <stdio.h>
#include <string.h>

#include "launch/cli/table.h"

static const char *
text_or(const json_t *place, const char *key, const char *other)
{
    const char *text = json_string_value(json_object_get(place, key));

    return text != NULL ? text : other;
}

/* "whole"; "being made: 12 chunks to go, 3.5 MiB under way"; "none: its death ends the job" */
static void
add_state(struct table *table, const json_t *place)
{
    const char *copy = text_or(place, "copy", "");

    if (strcmp(copy, "forming") == 0) {
        table_cell(table, "being made: %lld chunks to go, %.1f MiB under way",
                   (long long)json_integer_value(json_object_get(place, "chunks_left")),
                   (double)json_integer_value(json_object_get(place, "queued_bytes")) / (1 << 20));
    } else if (strcmp(copy, "needless") == 0) {
        table_cell(table, "not needed: workers can make anew what it has");
    } else if (strcmp(copy, "none") == 0) {
        table_cell(table, "none: its death ends the job");
    } else {
        table_cell(table, "%s", copy);
    }
}

void
redundancy_table_print(const json_t *job)
{
    static const char *const heads[] = {"PART OF", "SERVED BY", "COPY IN", "COPY"};
    const json_t *places = json_object_get(job, "redundancy");
    struct table table = {0};
    const json_t *place;
    size_t i;

    if (json_array_size(places) == 0) {
        return;
    }
    printf("\nreplicas %lld (%s)\n\n",
           (long long)json_integer_value(json_object_get(job, "replicas")),
           text_or(job, "replicas_why", ""));
    table_begin(&table, heads, sizeof(heads) / sizeof(heads[0]));
    json_array_foreach(places, i, place)
    {
        table_cell(&table, "%s", text_or(place, "server", ""));
        table_cell(&table, "%s", text_or(place, "by", "nobody yet"));
        table_cell(&table, "%s", text_or(place, "copy_in", "-"));
        add_state(&table, place);
    }
    table_print(&table, stdout);
    table_fini(&table);
}
