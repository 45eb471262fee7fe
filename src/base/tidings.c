/*
 * tidings.c - what ps_master tells whoever started it.
 *
 *   joined worker 3
 *   joined server 1 life 5f0c2a
 *   done worker 3 at step 40
 *   cut server 1
 *   lost worker 3 silent: silent for 2000 ms
 *   awaited server 1
 *   hosted server 1
 *   place server 1 by 0 whole in 2
 *   place server 1 by - none in -
 *   end 70 worker 3 silent: worker 3 (tcp://10.0.0.3:40112) lost: silent for 2000 ms
 *
 * and what it is told:
 *
 *   gone server 1 life 5f0c2a
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/tidings.h"

#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {
    [PSI_TIDING_JOINED] = "joined", [PSI_TIDING_DONE] = "done",
    [PSI_TIDING_CUT] = "cut",       [PSI_TIDING_BACK] = "back",
    [PSI_TIDING_QUIET] = "quiet",   [PSI_TIDING_HEARD] = "heard",
    [PSI_TIDING_LOST] = "lost",     [PSI_TIDING_AWAITED] = "awaited",
    [PSI_TIDING_HOSTED] = "hosted", [PSI_TIDING_COPIED] = "copied",
    [PSI_TIDING_PLACE] = "place",   [PSI_TIDING_END] = "end"};
static const char *const roles[] = {
    [PSI_TIDING_MASTER] = "master", [PSI_TIDING_SERVER] = "server", [PSI_TIDING_WORKER] = "worker"};
static const char *const losses[] = {[PSI_LOSS_NONE] = "well",
                                     [PSI_LOSS_SILENT] = "silent",
                                     [PSI_LOSS_CLOSED] = "closed",
                                     [PSI_LOSS_GAVE_UP] = "gave_up",
                                     [PSI_LOSS_UNREACHED] = "unreached"};
static const char *const copies[] = {[PSI_COPY_NONE] = "none",
                                     [PSI_COPY_FORMING] = "forming",
                                     [PSI_COPY_WHOLE] = "whole",
                                     [PSI_COPY_NEEDLESS] = "needless"};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* "1", "-" */
static void
format_index(uint32_t index, char text_p[12])
{
    snprintf(text_p, 12, "%u", index);
    if (index == PSI_TIDING_NOBODY) {
        snprintf(text_p, 12, "-");
    }
}

static int
format_place(const struct psi_tiding *tiding, char line_p[PSI_TIDING_LINE])
{
    char by[12];
    char copy[12];

    format_index(tiding->place.by, by);
    format_index(tiding->place.copy, copy);
    return snprintf(line_p, PSI_TIDING_LINE, "place %s %u by %s %s in %s", roles[tiding->role],
                    tiding->rank, by, copies[tiding->place.state], copy);
}

size_t
psi_tiding_format(const struct psi_tiding *tiding, char line_p[PSI_TIDING_LINE])
{
    const char *role = roles[tiding->role];
    int bytes = 0;

    switch (tiding->kind) {
    case PSI_TIDING_DONE:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "done %s %u at step %llu", role, tiding->rank,
                         (unsigned long long)tiding->step);
        break;
    case PSI_TIDING_JOINED:
        bytes = snprintf(line_p, PSI_TIDING_LINE,
                         tiding->life != 0 ? "joined %s %u life %llx" : "joined %s %u", role,
                         tiding->rank, (unsigned long long)tiding->life);
        break;
    case PSI_TIDING_PLACE:
        bytes = format_place(tiding, line_p);
        break;
    case PSI_TIDING_LOST:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "lost %s %u %s: %s", role, tiding->rank,
                         losses[tiding->loss], tiding->text);
        break;
    case PSI_TIDING_END:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "end %d %s %u %s: %s", tiding->code, role,
                         tiding->rank, losses[tiding->loss], tiding->text);
        break;
    default:
        bytes =
            snprintf(line_p, PSI_TIDING_LINE, "%s %s %u", kinds[tiding->kind], role, tiding->rank);
        break;
    }
    for (char *c = line_p; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    }
    line_p[bytes] = '\n'; /* the longest line is far shorter than the buffer */
    line_p[bytes + 1] = '\0';
    return (size_t)bytes + 1;
}

/* The place of a word in a list; false: not there. */
static bool
find_word(const char *word, const char *const *list, size_t count, unsigned *place_p)
{
    for (*place_p = 0; *place_p < count; ++*place_p) {
        if (strcmp(word, list[*place_p]) == 0) {
            return true;
        }
    }
    return false;
}

/* "worker 3 silent: TEXT" */
static bool
parse_loss(const char *rest, struct psi_tiding *tiding_p)
{
    const char *text = strstr(rest, ": ");
    char role[16];
    char loss[16];
    unsigned place;

    if (text == NULL || sscanf(rest, "%15s %u %15[a-z_]", role, &tiding_p->rank, loss) != 3) {
        return false;
    }
    snprintf(tiding_p->text, sizeof(tiding_p->text), "%.511s", text + 2);
    if (!find_word(loss, losses, COUNT(losses), &place)) {
        return false;
    }
    tiding_p->loss = (enum psi_loss)place;
    if (!find_word(role, roles, COUNT(roles), &place)) {
        return false;
    }
    tiding_p->role = (enum psi_tiding_role)place;
    return true;
}

static bool
parse_index(const char *text, uint32_t *index_p)
{
    *index_p = PSI_TIDING_NOBODY;
    return strcmp(text, "-") == 0 || sscanf(text, "%u", index_p) == 1;
}

/* "server 1 by 0 whole in 2" */
static bool
parse_place(const char *rest, struct psi_tiding *tiding_p)
{
    char role[16];
    char by[16];
    char state[16];
    char copy[16];
    unsigned place;

    if (sscanf(rest, "%15s %u by %15s %15s in %15s", role, &tiding_p->rank, by, state, copy) != 5 ||
        !parse_index(by, &tiding_p->place.by) || !parse_index(copy, &tiding_p->place.copy) ||
        !find_word(state, copies, COUNT(copies), &place)) {
        return false;
    }
    tiding_p->place.state = (enum psi_copy_state)place;
    if (!find_word(role, roles, COUNT(roles), &place)) {
        return false;
    }
    tiding_p->role = (enum psi_tiding_role)place;
    return true;
}

bool
psi_tiding_parse(const char *line, struct psi_tiding *tiding_p)
{
    struct psi_tiding tiding = {0};
    unsigned long long step = 0;
    unsigned long long life = 0;
    char kind[16];
    char role[16];
    unsigned place;
    int used = 0;
    bool well;

    if (sscanf(line, "%15s", kind) != 1 || !find_word(kind, kinds, COUNT(kinds), &place)) {
        return false;
    }
    tiding.kind = (enum psi_tiding_kind)place;
    if (tiding.kind == PSI_TIDING_LOST) {
        well = parse_loss(line + strlen("lost "), &tiding);
    } else if (tiding.kind == PSI_TIDING_PLACE) {
        well = parse_place(line + strlen("place "), &tiding);
    } else if (tiding.kind == PSI_TIDING_END) {
        well = sscanf(line, "end %d %n", &tiding.code, &used) == 1 && used > 0 &&
               parse_loss(line + used, &tiding);
    } else {
        well = sscanf(line, "%*s %15s %u at step %llu", role, &tiding.rank, &step) >= 2 &&
               find_word(role, roles, COUNT(roles), &place);
        tiding.role = (enum psi_tiding_role)place;
        tiding.step = step;
        if (well && sscanf(line, "joined %*s %*u life %llx", &life) == 1) {
            tiding.life = life;
        }
    }
    if (well) {
        *tiding_p = tiding;
    }
    return well;
}

size_t
psi_gone_format(const struct psi_gone *gone, char line_p[PSI_TIDING_LINE])
{
    return (size_t)snprintf(line_p, PSI_TIDING_LINE, "gone server %u life %llx\n", gone->server,
                            (unsigned long long)gone->life);
}

bool
psi_gone_parse(const char *line, struct psi_gone *gone_p)
{
    unsigned long long life = 0;
    unsigned server = 0;
    int used = 0;

    if (sscanf(line, "gone server %u life %llx%n", &server, &life, &used) != 2 ||
        line[used] != '\0' || life == 0) {
        return false;
    }
    *gone_p = (struct psi_gone){.server = server, .life = life};
    return true;
}
