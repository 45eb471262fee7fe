/*
 * master_bed.h - a master for tests: the test is its servers, its workers and whoever else knocks,
 * frame by frame.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_MASTER_BED_H
#define MASTER_MASTER_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "master/master.h"
#include "world/world.h"

#define MS_NS UINT64_C(1000000)

enum { PEERS_MAX = WORLD_CONNS_MAX, LOG_BYTES = 1 << 16, SECOND_LIFE = 2000 };

/* The test's end of one connection. */
struct peer {
    struct world_conn *line;
    uint64_t life;
};

struct master_bed {
    struct world world; /* first */
    struct peer peer[PEERS_MAX];
    unsigned peers;
    char log_text[LOG_BYTES];
    char told[4096]; /* to whoever started the master: lines */
    struct psi_log log;
    struct master *master;
    struct peer *lane[8]; /* of all servers, one after the other */
    struct peer *worker[4];
    uint32_t servers;
    uint32_t lanes; /* of each server */
    uint32_t workers;
};

/* A master that has just begun to listen. Destroying asserts that it left no connection open. */
struct master_bed *master_bed_start(uint32_t workers, uint32_t servers,
                                    enum psi_death_policy policy);

/* Its workers may take any time to join. */
struct master_bed *master_bed_start_patient(uint32_t workers, uint32_t servers);
void master_bed_stop(struct master_bed *bed);
bool logged(const struct master_bed *bed, const char *text);
struct peer *dial(struct master_bed *bed);
bool is_gone(const struct peer *peer); /* has either side ended the connection? */
void hang_up(struct peer *peer, const char *text);

/* Bytes that a peer may well make up. */
void deliver(struct master_bed *bed, struct peer *peer, const uint8_t head[PSI_FRAME_BYTES]);
void say(struct master_bed *bed, struct peer *peer, struct psi_frame frame,
         const struct psi_pack *body);

/* The next frame from the master of this type; frames of other types before it are skipped. NULL:
 * there is none. */
const struct world_heard *hear(struct peer *peer, uint8_t type);
struct psi_verdict hear_verdict(struct peer *peer, uint8_t type);
void assert_refused(struct peer *peer, psd_status status, const char *text);
struct psi_welcome hear_welcome(struct peer *peer);
struct peer *join(struct master_bed *bed, uint8_t role, uint32_t rank, uint64_t life);

/* ... as that lane of a server. `process` is the index of the one that it is in. */
struct peer *join_as(struct master_bed *bed, uint8_t role, uint32_t rank, uint32_t lane,
                     uint32_t process, uint64_t life);

/* A lane's answer; `view` is the one it has when it answers. */
void ack_view(struct master_bed *bed, uint32_t server, uint32_t id, uint32_t view,
              const struct psi_given *given);
struct master_bed *start_job(uint32_t workers, uint32_t servers, enum psi_death_policy policy);

/* One that waits 10 s for another life of a server. */
struct master_bed *start_lasting_job(uint32_t workers, uint32_t servers,
                                     enum psi_death_policy policy);

/* ... and whose servers have copies, if lanes stand by. */
struct master_bed *start_copied_job(uint32_t workers, uint32_t servers);

/* One worker, three servers of two lanes each, with so many copies of each lane, if lanes stand by. */
struct master_bed *start_wide_job(uint32_t replicas);

/* One worker, one server of two lanes; there may be three servers. Places move with 1000 bytes a second. */
struct master_bed *start_moving_job(void);
struct master_bed *start_moving_second_life(void); /* ... which knows nothing of it */

/* One with room for so many ranks, which begins with fewer workers, and needs as many to go on. */
struct master_bed *start_elastic_job(uint32_t ranks, uint32_t workers, uint32_t servers,
                                     enum psi_death_policy policy);

/* One whose members wait for another life of the master, before it has begun, too; and that other
 * life, which knows nothing of the job. */
struct master_bed *master_bed_start_lives(uint32_t workers, uint32_t servers,
                                          enum psi_death_policy policy);
struct master_bed *start_lives(uint32_t workers, uint32_t servers, enum psi_death_policy policy);
struct master_bed *start_second_life(uint32_t workers, uint32_t servers,
                                     enum psi_death_policy policy);

/* ... of a job whose servers have copies. */
struct master_bed *start_copied_second_life(uint32_t workers, uint32_t servers);

/* Lets time pass with everybody else alive: all members but `silent` (NULL: none) send PINGs. */
void pass_ms(struct master_bed *bed, uint64_t ms, const struct peer *silent);
void assert_over(struct master_bed *bed, int exit_code, const char *text);
bool is_over(const struct master_bed *bed);
struct psi_table_info table_named(const char *name, uint64_t rows);
void open_table(struct master_bed *bed, uint32_t rank, const struct psi_table_info *info,
                uint32_t request);
struct psi_table_info hear_table(struct peer *peer, uint8_t type, uint32_t request);

/* Every lane has the memory for it. */
void ack_table(struct master_bed *bed, uint32_t id);

/* Worker 0 opens a table of sums, or of values, all lanes have it, and it hears so. It is the
 * first one, table 0. */
void open_everywhere(struct master_bed *bed, const char *name, psd_use use);
void bye(struct master_bed *bed, uint32_t rank);
void give_up(struct master_bed *bed, struct peer *peer, int exit_code, const char *text);
struct psi_view hear_view(struct peer *peer, struct psi_view_table *tables);

/* A frame with a message as its body. */
void say_hello(struct master_bed *bed, struct peer *peer, struct psi_frame frame,
               const struct psi_hello *message);
void say_subscribe(struct master_bed *bed, struct peer *peer, struct psi_frame frame,
                   const struct psi_subscribe *message);
void say_telling(struct master_bed *bed, struct peer *peer, struct psi_frame frame,
                 const struct psi_telling *message);
void say_verdict(struct master_bed *bed, struct peer *peer, struct psi_frame frame,
                 const struct psi_verdict *message);
void say_ping(struct master_bed *bed, struct peer *peer, struct psi_frame frame,
              const struct psi_ping *message);
void say_view_ack(struct master_bed *bed, struct peer *peer, struct psi_frame frame,
                  const struct psi_view_ack *message);
void say_table_info(struct master_bed *bed, struct peer *peer, struct psi_frame frame,
                    const struct psi_table_info *message);
void say_view(struct master_bed *bed, struct peer *peer, struct psi_frame frame,
              const struct psi_view *message);
void say_lane_state(struct master_bed *bed, struct peer *peer, struct psi_frame frame,
                    const struct psi_lane_state *message);
void say_worker_state(struct master_bed *bed, struct peer *peer, struct psi_frame frame,
                      const struct psi_worker_state *message);

#endif
