/*
 * fail_points.h - moments at which a process of a test build can be made to die or to stop.
 *
 * A point is one line in the code, psi_fail_point(name), and one line in the map below, which says
 * what has happened when a process comes to it, and what has not. In test builds (meson option
 * fail_points) it counts the passings, and ends or stops the process at the one that was asked for.
 * In all other builds there is nothing: no code, no name.
 *
 *   PSD_FAIL_POINT=NAME[:N[:kill|stop]]   the N-th time (1) this process comes to it
 *   PSD_FAIL_BOARD=FILE                   a board that several processes share; whoever has the file
 *                                         open arms points on it while they run (fail_points.c)
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_FAIL_POINTS_H
#define PSI_BASE_FAIL_POINTS_H

#ifdef PSI_FAIL_POINTS

/* clang-format off */
#define PSI_FAIL_POINT_MAP(X)                                                                                          \
    /* a gradient, a round, and those who are told */                                                                  \
    X(server_push_counted, "a gradient has come and counts; its round is open, or it is about to be applied alone")    \
    X(server_push_applied, "a gradient without rounds was applied; no copy knows of it, nobody was told")              \
    X(server_push_repeated, "a gradient came again that counts already; it is not answered yet")                       \
    X(server_round_full, "the last gradient of a round is here; nothing was added")                                    \
    X(server_round_applied, "a round was added up and applied; no copy knows of it, nobody was told")                  \
    X(server_round_handed_over, "the sum of a round is queued for the copy, or needs none; its gradients are still here") \
    X(server_round_released, "the gradients of a round went back to their workers; nobody was answered")               \
    X(server_round_answered, "all were answered that a round lets go on")                                              \
    X(server_value_told, "one worker was sent a value; the others that wait for it were not")                          \
    X(server_chunk_loaded, "a chunk has a value that a worker brought; no copy knows of it")                           \
    X(server_chunk_load_told, "a chunk's loaded value is queued for the copy; the worker was not answered")            \
    X(server_global_step_added, "the global step has moved; no copy knows of it")                                      \
    X(server_global_step_waits, "an addition to the global step waits for the copy")                                   \
    X(server_global_step_told, "an addition to the global step is answered because the copy has it")                   \
    /* a lane that has a copy */                                                                                       \
    X(server_pair_ordered, "a lane was told who is to be its copy; it has told it nothing")                            \
    X(server_pair_begun, "a lane has queued views, tables and steps for a new copy; no chunk")                         \
    X(server_pair_parcel_queued, "a parcel for the copy has its number; it was not sent")                              \
    X(server_pair_parcel_sent, "a parcel was handed to the connection to the copy")                                    \
    X(server_pair_snapshot_queued, "a chunk joins: its snapshot is queued, later changes follow it")                   \
    X(server_pair_piece_queued, "a part of a sparse table is queued; rounds may close before the next one")            \
    X(server_pair_acked, "the copy has acknowledged parcels; what waited for them was not told")                       \
    X(server_pair_committed, "the copy has a change, so it is committed; nobody was told of it")                       \
    X(server_pair_eligible, "a lane knows that its copy lacks nothing; nobody else does")                              \
    X(server_pair_eligible_told, "the copy knows that it lacks nothing, and the master was told")                      \
    X(server_pair_lost_told, "a lane has told the master that it does not reach its copy; it still waits for it")      \
    X(server_pair_ended, "the master says that a lane goes on alone; it still waits for the copy")                     \
    X(server_pair_alone, "a lane has gone on alone: what waited for the copy is committed")                            \
    /* a lane that is a copy */                                                                                        \
    X(server_copy_ordered, "a lane that stands by is to be a copy; it has nothing yet")                                \
    X(server_copy_met, "the owner has found its copy")                                                                 \
    X(server_copy_change_applied, "the copy has applied a change; it has not acknowledged it")                         \
    X(server_copy_snapshot_taken, "the copy has a whole chunk; it has not acknowledged it")                            \
    X(server_copy_table_opened, "the copy has opened a table; it has not acknowledged it")                             \
    X(server_copy_acked, "the copy has acknowledged all of a turn")                                                    \
    X(server_copy_eligible, "the copy has heard that it lacks nothing")                                                \
    X(server_copy_promoted, "a copy has been given the place; it hears its owner no more")                             \
    X(server_place_taken, "a lane that stood by has the name of a lost one; the master does not know that it knows")   \
    X(server_give_ordered, "a lane is to hand its place over to its copy; it has not begun to")                        \
    X(server_place_handed, "a lane has queued for its copy that the place is the copy's")                              \
    X(server_copy_given, "the copy has heard that the place is its own; it has not taken it")                          \
    X(server_place_given, "the copy has the name of the lane that gave it the place; the master does not know")        \
    X(server_stands_by, "a server that came back stands by, because its copy has its place")                           \
    /* results that are held, chunks that are adopted */                                                               \
    X(server_hold_begun, "a result is with nobody, and is held from now on")                                           \
    X(server_hold_got, "a worker has said that it has a held result")                                                  \
    X(server_hold_released, "all have a held result; nobody was released")                                             \
    X(server_hold_told, "workers were sent that they are released")                                                    \
    X(server_adopt_begun, "a table of an earlier life is open, and every chunk waits for what workers tell")           \
    X(server_adopt_told, "a worker has told where it is in a chunk")                                                   \
    X(server_adopt_asked, "a worker was asked to show the result of a chunk")                                          \
    X(server_adopt_shown, "a result was shown; the chunk is not open")                                                 \
    X(server_adopt_opened, "a chunk of an earlier life is open again; nobody was answered")                            \
    /* what the master tells a lane */                                                                                 \
    X(server_view_proposed, "a lane is frozen for a change of members; it has not reported")                           \
    X(server_view_aborted, "a lane has heard that a change of members is off")                                         \
    X(server_view_arrived, "a view has come; the lane has not taken it")                                               \
    X(server_view_taken, "a lane has a new view; the master does not know")                                            \
    X(server_view_acked, "a lane has acknowledged a view")                                                             \
    X(server_table_ordered, "a lane is told to open a table; it has done nothing")                                     \
    X(server_table_opened, "a lane has found the memory of a table; no copy and no master knows")                      \
    X(server_table_ready, "the memory of a table is written; the master was told")                                     \
    X(server_done_kept, "a lane keeps in mind who is done; the master does not know")                                  \
    X(server_journal_told, "a lane has told a master that returned all that it keeps in mind")                         \
    X(server_welcomed, "a lane was let in by a master, the first or one that returned")                                \
    /* the master: members and views */                                                                                \
    X(master_lane_admitted, "a lane took its place; its server is not complete")                                       \
    X(master_server_lost, "a server is declared lost and fenced; nobody was told")                                     \
    X(master_server_awaited, "who starts servers was told that one is awaited")                                        \
    X(master_server_complete, "another life of a server is complete; no view has it")                                  \
    X(master_server_placed, "the places of a lost server were given to lanes that stand by; they have not come")       \
    X(master_view_proposed_one, "one lane of several was sent a proposal")                                             \
    X(master_view_proposed, "all lanes were sent a proposal; none has answered")                                       \
    X(master_view_decided, "all lanes have reported, and it is decided how a rank counts; none was told")              \
    X(master_join_decided, "all lanes have promised, and it is decided with which step a worker begins; none was told") \
    X(master_view_committed_one, "one lane of several was sent a view")                                                \
    X(master_view_committed, "all lanes were sent a view; none has answered")                                          \
    X(master_view_acked_one, "a lane has a view, others may not")                                                      \
    X(master_view_acked, "all lanes have a view; no worker was told")                                                  \
    X(master_view_told_one, "one worker of several was told of a view")                                                \
    X(master_view_told, "all workers were told of a view")                                                             \
    X(master_view_aborted, "a proposal is off because a server was lost; lanes were told")                             \
    X(master_worker_done, "a worker has said BYE; no lane knows")                                                      \
    X(master_done_acked, "a lane keeps in mind who is done; others may not")                                           \
    X(master_done_answered, "a worker was told that it may go")                                                        \
    X(master_barrier_arrived, "a worker has come to a barrier; nobody was released")                                   \
    X(master_barrier_released_one, "one worker of several was released from a barrier")                                \
    /* the master: tables */                                                                                           \
    X(master_table_asked, "a worker wants to open a table; nobody else knows")                                         \
    X(master_table_ordered, "all lanes were told to open a table")                                                     \
    X(master_table_acked, "a lane has a table; others may not")                                                        \
    X(master_table_ready, "all lanes have a table; no worker was told")                                                \
    X(master_table_told, "a worker was told of a table")                                                               \
    /* the master: copies */                                                                                           \
    X(master_pair_ordered_one, "a copy was told whose it is; its owner was not")                                       \
    X(master_pair_ordered, "both sides were told of a copy")                                                           \
    X(master_pair_eligible, "a lane has said that its copy lacks nothing")                                             \
    X(master_pair_whole, "all lanes of a server have a whole copy")                                                    \
    X(master_pair_crossed_out, "a copy is given up, and its number crossed out; lanes were told")                      \
    X(master_pair_ended, "a server was told to go on alone")                                                           \
    X(master_promotion_ordered_one, "one lane of a copy was given its place; others were not")                         \
    X(master_promotion_ordered, "all lanes of a copy were given their places; none has come")                          \
    X(master_move_ordered, "a lane was told to hand its place over")                                                   \
    X(master_move_taken, "a copy is here for a place that was handed over; the lane that gave it does not know")       \
    X(master_promotion_complete, "all lanes of a copy are here by their new names; no view has them")                  \
    /* the master: another life */                                                                                     \
    X(master_rebuild_begun, "a master that returned has met its first member")                                         \
    X(master_rebuild_lane_told, "a lane has told all it keeps in mind; others have not")                               \
    X(master_rebuild_copy_told, "a copy has told whose it is")                                                         \
    X(master_rebuild_decided, "all that count have told; the view to go on with is known, nothing was restored")       \
    X(master_rebuild_restored, "members, servers, copies and tables are restored; nobody was told")                    \
    X(master_rebuild_renewed, "lanes were sent the view anew, under a number of this life")                            \
    X(master_rebuild_done, "the master that returned goes on; workers were not let in")
/* clang-format on */

enum psi_fail_point {
#define PSI_FAIL_POINT_NUMBER(name, text) PSI_FAIL_AT_##name,
    PSI_FAIL_POINT_MAP(PSI_FAIL_POINT_NUMBER)
#undef PSI_FAIL_POINT_NUMBER
        PSI_FAIL_POINTS_COUNT
};

/* Passes the point, and may not return. Any thread. */
void psi_fail_point_pass(enum psi_fail_point point);

#define psi_fail_point(name) psi_fail_point_pass(PSI_FAIL_AT_##name)

#else

#define psi_fail_point(name) ((void)0)

#endif

#endif
