/*
 * master_bed.h - a small world for the master's tests: a clock that the test moves, connections
 * that record every frame the master sends and hand it the test's own. Nothing sleeps, nothing
 * listens.
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
#include "rpc/inbox.h"

#define MS_NS UINT64_C(1000000)

enum { PEERS_MAX = 32, FRAMES_MAX = 64, LOG_BYTES = 1 << 16 };

struct record {
    struct psi_frame frame;
    uint8_t *body;
};

/* The test's end of one connection; `conn` is what the master holds. */
struct peer {
    struct psi_conn conn;
    bool closed;   /* by either side */
    size_t queued; /* what it does not read */
    struct record frame[FRAMES_MAX];
    unsigned frames;
    unsigned read; /* frames the test has looked at */
    uint64_t life;
};

struct world {
    struct psi_env env;
    uint64_t now_ns;
    uint64_t drawn;
    const struct psi_listener_events *listener_events;
    void *listener_owner;
    struct peer *peer[PEERS_MAX];
    unsigned peers;
    char log_text[LOG_BYTES];
    char told[4096]; /* to whoever started the master: lines */
    struct psi_log log;
    struct master *master;
    struct peer *lane[4]; /* one lane per server */
    struct peer *worker[4];
    uint32_t servers;
    uint32_t workers;
};

/* A master that has just begun to listen. Destroying asserts that it left no connection open. */
struct world *world_create(uint32_t workers, uint32_t servers, enum psi_death_policy policy);

/* Its workers may take any time to join. */
struct world *world_create_patient(uint32_t workers, uint32_t servers);
void world_destroy(struct world *world);
bool logged(const struct world *world, const char *text);
struct peer *dial(struct world *world);
void hang_up(struct peer *peer, const char *text);

/* Raw bytes of one frame, as the transport would hand them over. */
void deliver(struct world *world, struct peer *peer, const uint8_t head[PSI_FRAME_BYTES],
             const void *body);
void say(struct world *world, struct peer *peer, struct psi_frame frame,
         const struct psi_pack *body);

/* The next frame from the master of this type; frames of other types before it are skipped. NULL:
 * there is none. */
const struct record *hear(struct peer *peer, uint8_t type);
struct psi_verdict hear_verdict(struct peer *peer, uint8_t type);
void assert_refused(struct peer *peer, psd_status status, const char *text);
struct psi_welcome hear_welcome(struct peer *peer);
struct peer *join(struct world *world, uint8_t role, uint32_t rank, uint64_t life);

/* A lane's answer; `view` is the one it has when it answers. */
void ack_view(struct world *world, uint32_t server, uint32_t id, uint32_t view,
              const struct psi_given *given);
struct world *start_job(uint32_t workers, uint32_t servers, enum psi_death_policy policy);

/* Lets time pass with everybody else alive: all members but `silent` (NULL: none) send PINGs. */
void pass_ms(struct world *world, uint64_t ms, const struct peer *silent);
void assert_over(struct world *world, int exit_code, const char *text);
bool is_over(const struct world *world);
struct psi_table_info table_named(const char *name, uint64_t rows);
void open_table(struct world *world, uint32_t rank, const struct psi_table_info *info,
                uint32_t request);
struct psi_table_info hear_table(struct peer *peer, uint8_t type, uint32_t request);

/* Every lane has the memory for it. */
void ack_table(struct world *world, uint32_t id);
void bye(struct world *world, uint32_t rank);
void give_up(struct world *world, struct peer *peer, int exit_code, const char *text);
struct psi_view hear_view(struct peer *peer, struct psi_view_table *tables);

/* A frame with a message as its body. */
void say_hello(struct world *world, struct peer *peer, struct psi_frame frame,
               const struct psi_hello *message);
void say_subscribe(struct world *world, struct peer *peer, struct psi_frame frame,
                   const struct psi_subscribe *message);
void say_verdict(struct world *world, struct peer *peer, struct psi_frame frame,
                 const struct psi_verdict *message);
void say_ping(struct world *world, struct peer *peer, struct psi_frame frame,
              const struct psi_ping *message);
void say_view_ack(struct world *world, struct peer *peer, struct psi_frame frame,
                  const struct psi_view_ack *message);
void say_table_info(struct world *world, struct peer *peer, struct psi_frame frame,
                    const struct psi_table_info *message);

#endif
