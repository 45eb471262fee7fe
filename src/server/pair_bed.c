/*
 * pair_bed.c - two lanes for tests, one the copy of the other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/pair_bed.h"

#include <stdio.h>

#include "server/state.h"

void
order(struct lane_bed *bed, const struct psi_pair *pair)
{
    uint8_t bytes[256];
    struct psi_pack pack;

    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_pair_encode(&pack, pair);
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_PAIR, .seq = PAIR_NUMBER}, bytes,
        pack.used);
}

void
join_lines(struct two *two)
{
    const struct world_heard *hello;
    const struct world_heard *welcome;

    world_settle(&two->owner->world);
    two->to_copy = peer_at(two->owner, "test://copy");
    hello = hear(two->to_copy, PSI_FRAME_HELLO);
    assert_non_null(hello);
    two->from_owner = &two->copy->peer[two->copy->peers++];
    two->from_owner->line = world_accept(&two->copy->world);
    world_say_bytes(&two->copy->world, two->from_owner->line, &hello->frame, NULL, hello->body,
                    hello->frame.payload_bytes);
    welcome = hear(two->from_owner, PSI_FRAME_WELCOME);
    assert_non_null(welcome);
    world_say_bytes(&two->owner->world, two->to_copy->line, &welcome->frame, NULL, welcome->body,
                    welcome->frame.payload_bytes);
}

struct two
pair_up(struct lane_bed *owner)
{
    struct two two = {.owner = owner, .copy = lane_bed_start_standby(owner->workers)};
    struct psi_pair place = {.lanes = 1, .life = owner->lane->life};
    struct psi_pair copy = {.server = 1, .lanes = 1, .life = two.copy->lane->life};

    snprintf(copy.address, sizeof(copy.address), "test://copy");
    order(two.copy, &place);
    order(two.owner, &copy);
    join_lines(&two);
    return two;
}

/* Hands over what one has said to the other, at most so many frames. Returns how many. */
static unsigned
carry(struct peer *from, struct lane_bed *to_bed, struct peer *to, unsigned most)
{
    unsigned count = 0;

    while (count < most && from->line->heard_read < from->line->heard_count) {
        const struct world_heard *heard = from->line->heard[from->line->heard_read++];

        world_say_bytes(&to_bed->world, to->line, &heard->frame, NULL, heard->body,
                        heard->frame.payload_bytes);
        count++;
    }
    return count;
}

unsigned
to_copy(struct two *two, unsigned most)
{
    return carry(two->to_copy, two->copy, two->from_owner, most);
}

unsigned
to_owner(struct two *two)
{
    return carry(two->from_owner, two->owner, two->to_copy, 1000);
}

void
settle(struct two *two)
{
    while (to_owner(two) + to_copy(two, 1000) > 0) {
    }
}

void
stop(struct two *two)
{
    lane_bed_stop(two->owner);
    lane_bed_stop(two->copy);
}
