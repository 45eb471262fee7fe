/*
 * tidings.c - what ps_master tells whoever started it.
 *
 *   joined worker 3
 *   joined server 1 life 5f0c2a
 *   done worker 3 at step 40
 *   counts worker 4 at step 30
 *   left worker 3 at step 41
 *   cut server 1
 *   lost worker 3 silent: silent for 2000 ms
 *   awaited server 1
 *   hosted server 1
 *   place server 1 by 0,2 whole in 2,3
 *   place server 1 by -,- none in -,-
 *   crossed server 1 lane 0 number 100000003
 *   moved server 1 lane 0 to 2 bytes 262144
 *   drained server 1 life 5f0c2a
 *   held server 1: lane 0 of server 0 has no room in server 2
 *   end 70 worker 3 silent: worker 3 (tcp://10.0.0.3:40112) lost: silent for 2000 ms
 *   end 71 server 1 life 5f0c2a closed: server 1 (tcp://10.0.0.2:40113) lost: connection closed
 *
 * and what it is told:
 *
 *   gone server 1 life 5f0c2a
 *   leave server 1 life 5f0c2a
 *   done worker 3
 *   crossed server 1 lane 0 number 100000003
 *   save
 *   all
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
    [PSI_TIDING_PLACE] = "place",   [PSI_TIDING_CROSSED] = "crossed",
    [PSI_TIDING_COUNTS] = "counts", [PSI_TIDING_LEFT] = "left",
    [PSI_TIDING_MOVED] = "moved",   [PSI_TIDING_DRAINED] = "drained",
    [PSI_TIDING_HELD] = "held",     [PSI_TIDING_SAVED] = "saved",
    [PSI_TIDING_END] = "end"};
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

/* Of a process, with a comma: at most four bytes. */
enum { INDICES_BYTES = 4 * PSI_TIDING_LANES + 1 };

/* "1,-,3" */
static void
format_indices(const uint32_t *index, uint32_t count, char text_p[INDICES_BYTES])
{
    size_t used = 0;

    text_p[0] = '\0';
    for (uint32_t i = 0; i < count && used < INDICES_BYTES; i++) {
        const char *comma = i > 0 ? "," : "";

        used +=
            (size_t)(index[i] == PSI_TIDING_NOBODY
                         ? snprintf(text_p + used, INDICES_BYTES - used, "%s-", comma)
                         : snprintf(text_p + used, INDICES_BYTES - used, "%s%u", comma, index[i]));
    }
}

static int
format_place(const struct psi_tiding *tiding, char line_p[PSI_TIDING_LINE])
{
    char by[INDICES_BYTES];
    char copy[INDICES_BYTES];

    format_indices(tiding->place.by, tiding->place.lanes, by);
    format_indices(tiding->place.copy, tiding->place.lanes, copy);
    return snprintf(line_p, PSI_TIDING_LINE, "place %s %u by %s %s in %s", roles[tiding->role],
                    tiding->rank, by, copies[tiding->place.state], copy);
}

static int
format_end(const struct psi_tiding *tiding, char line_p[PSI_TIDING_LINE])
{
    char life[32] = "";

    if (tiding->life != 0) {
        snprintf(life, sizeof(life), "life %llx ", (unsigned long long)tiding->life);
    }
    return snprintf(line_p, PSI_TIDING_LINE, "end %d %s %u %s%s: %s", tiding->code,
                    roles[tiding->role], tiding->rank, life, losses[tiding->loss], tiding->text);
}

size_t
psi_tiding_format(const struct psi_tiding *tiding, char line_p[PSI_TIDING_LINE])
{
    const char *role = roles[tiding->role];
    int bytes = 0;

    switch (tiding->kind) {
    case PSI_TIDING_DONE:
    case PSI_TIDING_COUNTS:
    case PSI_TIDING_LEFT:
    case PSI_TIDING_SAVED:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "%s %s %u at step %llu", kinds[tiding->kind],
                         role, tiding->rank, (unsigned long long)tiding->step);
        break;
    case PSI_TIDING_JOINED:
    case PSI_TIDING_DRAINED:
        bytes =
            snprintf(line_p, PSI_TIDING_LINE, tiding->life != 0 ? "%s %s %u life %llx" : "%s %s %u",
                     kinds[tiding->kind], role, tiding->rank, (unsigned long long)tiding->life);
        break;
    case PSI_TIDING_MOVED:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "moved %s %u lane %u to %u bytes %llu", role,
                         tiding->rank, tiding->lane, tiding->to, (unsigned long long)tiding->bytes);
        break;
    case PSI_TIDING_CROSSED:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "crossed %s %u lane %u number %llx", role,
                         tiding->rank, tiding->lane, (unsigned long long)tiding->life);
        break;
    case PSI_TIDING_PLACE:
        bytes = format_place(tiding, line_p);
        break;
    case PSI_TIDING_LOST:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "lost %s %u %s: %s", role, tiding->rank,
                         losses[tiding->loss], tiding->text);
        break;
    case PSI_TIDING_HELD:
        bytes =
            snprintf(line_p, PSI_TIDING_LINE, "held %s %u: %s", role, tiding->rank, tiding->text);
        break;
    case PSI_TIDING_END:
        bytes = format_end(tiding, line_p);
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

/* "worker 3 silent: TEXT", "server 1 life 5f0c2a closed: TEXT" */
static bool
parse_loss(const char *rest, struct psi_tiding *tiding_p)
{
    const char *text = strstr(rest, ": ");
    unsigned long long life = 0;
    char role[16];
    char loss[16];
    unsigned place;

    if (text == NULL ||
        (sscanf(rest, "%15s %u life %llx %15[a-z_]", role, &tiding_p->rank, &life, loss) != 4 &&
         sscanf(rest, "%15s %u %15[a-z_]", role, &tiding_p->rank, loss) != 3)) {
        return false;
    }
    tiding_p->life = life;
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

/* What comes after the colon; false: nothing does. */
static bool
parse_text(const char *line, struct psi_tiding *tiding_p)
{
    const char *text = strstr(line, ": ");

    if (text == NULL) {
        return false;
    }
    snprintf(tiding_p->text, sizeof(tiding_p->text), "%.511s", text + 2);
    return true;
}

/* "1,-,3"; false: no such list, or one that is too long. */
static bool
parse_indices(const char *text, uint32_t *index_p, uint32_t *count_p)
{
    uint32_t count = 0;
    int used = 0;

    for (const char *next = text; count < PSI_TIDING_LANES; next++) {
        index_p[count] = PSI_TIDING_NOBODY;
        if (*next == '-') {
            next++;
        } else if (sscanf(next, "%u%n", &index_p[count], &used) == 1) {
            next += used;
        } else {
            return false;
        }
        *count_p = ++count;
        if (*next != ',') {
            return *next == '\0';
        }
    }
    return false;
}

/* "server 1 by 0,2 whole in 2,3" */
static bool
parse_place(const char *rest, struct psi_tiding *tiding_p)
{
    char role[16];
    char by[PSI_TIDING_LINE];
    char state[16];
    char copy[PSI_TIDING_LINE];
    uint32_t copies_told = 0;
    unsigned place;

    if (sscanf(rest, "%15s %u by %1023s %15s in %1023s", role, &tiding_p->rank, by, state, copy) !=
            5 ||
        !parse_indices(by, tiding_p->place.by, &tiding_p->place.lanes) ||
        !parse_indices(copy, tiding_p->place.copy, &copies_told) ||
        copies_told != tiding_p->place.lanes || !find_word(state, copies, COUNT(copies), &place)) {
        return false;
    }
    tiding_p->place.state = (enum psi_copy_state)place;
    if (!find_word(role, roles, COUNT(roles), &place)) {
        return false;
    }
    tiding_p->role = (enum psi_tiding_role)place;
    return true;
}

static uint32_t
count_indices(const uint32_t *list, uint32_t lanes, uint32_t index)
{
    uint32_t count = 0;

    for (uint32_t lane = 0; lane < lanes; lane++) {
        count += list[lane] == index;
    }
    return count;
}

uint32_t
psi_tiding_place_served(const struct psi_tiding_place *place, uint32_t index)
{
    return count_indices(place->by, place->lanes, index);
}

uint32_t
psi_tiding_place_copied(const struct psi_tiding_place *place, uint32_t index)
{
    return count_indices(place->copy, place->lanes, index);
}

bool
psi_tiding_place_same(const struct psi_tiding_place *one, const struct psi_tiding_place *other)
{
    const size_t bytes = one->lanes * sizeof(one->by[0]);

    return one->lanes == other->lanes && one->state == other->state &&
           memcmp(one->by, other->by, bytes) == 0 && memcmp(one->copy, other->copy, bytes) == 0;
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
        if (well && (tiding.kind == PSI_TIDING_JOINED || tiding.kind == PSI_TIDING_DRAINED) &&
            sscanf(line, "%*s %*s %*u life %llx", &life) == 1) {
            tiding.life = life;
        } else if (well && tiding.kind == PSI_TIDING_MOVED) {
            well = sscanf(line, "moved %*s %*u lane %u to %u bytes %llu", &tiding.lane, &tiding.to,
                          &life) == 3 &&
                   tiding.lane < PSI_TIDING_LANES;
            tiding.bytes = life;
        } else if (well && tiding.kind == PSI_TIDING_HELD) {
            well = parse_text(line, &tiding);
        } else if (well && tiding.kind == PSI_TIDING_CROSSED) {
            well = sscanf(line, "crossed %*s %*u lane %u number %llx", &tiding.lane, &life) == 2 &&
                   tiding.lane < PSI_TIDING_LANES;
            tiding.life = life;
        }
    }
    if (well) {
        *tiding_p = tiding;
    }
    return well;
}

size_t
psi_word_format(const struct psi_word *word, char line_p[PSI_TIDING_LINE])
{
    const unsigned long long number = word->number;
    int bytes = 0;

    switch (word->kind) {
    case PSI_WORD_GONE:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "gone server %u life %llx\n", word->rank, number);
        break;
    case PSI_WORD_LEAVE:
        bytes =
            snprintf(line_p, PSI_TIDING_LINE, "leave server %u life %llx\n", word->rank, number);
        break;
    case PSI_WORD_DONE:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "done worker %u\n", word->rank);
        break;
    case PSI_WORD_DEAD:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "dead worker %u\n", word->rank);
        break;
    case PSI_WORD_CROSSED:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "crossed server %u lane %u number %llx\n",
                         word->rank, word->lane, number);
        break;
    case PSI_WORD_SAVE:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "save\n");
        break;
    case PSI_WORD_ALL:
        bytes = snprintf(line_p, PSI_TIDING_LINE, "all\n");
        break;
    }
    return (size_t)bytes;
}

/* Did the format take all of the line? */
static bool
is_whole(const char *line, int used)
{
    return used > 0 && line[used] == '\0';
}

bool
psi_word_parse(const char *line, struct psi_word *word_p)
{
    struct psi_word word = {.kind = PSI_WORD_ALL};
    unsigned long long number = 0;
    int used = 0;

    if (sscanf(line, "gone server %u life %llx%n", &word.rank, &number, &used) == 2) {
        word.kind = PSI_WORD_GONE;
    } else if (sscanf(line, "leave server %u life %llx%n", &word.rank, &number, &used) == 2) {
        word.kind = PSI_WORD_LEAVE;
    } else if (sscanf(line, "crossed server %u lane %u number %llx%n", &word.rank, &word.lane,
                      &number, &used) == 3) {
        word.kind = PSI_WORD_CROSSED;
    } else if (sscanf(line, "dead worker %u%n", &word.rank, &used) == 1) {
        word.kind = PSI_WORD_DEAD;
    } else if (sscanf(line, "done worker %u%n", &word.rank, &used) == 1) {
        word.kind = PSI_WORD_DONE;
    } else if (strcmp(line, "save") == 0) {
        word.kind = PSI_WORD_SAVE;
        used = (int)strlen(line);
    } else if (strcmp(line, "all") == 0) {
        used = (int)strlen(line);
    }
    if (!is_whole(line, used) || word.lane >= PSI_TIDING_LANES ||
        (number == 0 && (word.kind == PSI_WORD_GONE || word.kind == PSI_WORD_LEAVE ||
                         word.kind == PSI_WORD_CROSSED))) {
        return false;
    }
    word.number = number;
    *word_p = word;
    return true;
}
