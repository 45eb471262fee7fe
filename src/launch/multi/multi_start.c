/*
 * multi_start.c - several psd_run that make up one job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/multi/multi_start.h"

#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/socket.h>

#include "base/fail.h"
#include "config/settings.h"
#include "launch/link/secret.h"
#include "launch/meet/join.h"
#include "launch/system/wall_clock.h"
#include "launch/text/memory.h"

/* The first that is wanted is taken: the command line overrides the environment. */
static const struct meet_ops *const ways[] = {&meet_directory, &meet_name, &meet_slurm};

static const struct meet_ops *
find_way(const struct launch_options *options)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (ways[i]->detect(options)) {
            return ways[i];
        }
    }
    return NULL;
}

bool
multi_start_nothing_asked(const struct launch_options *options)
{
    return options->rendezvous == NULL && options->coordinator == NULL && !options->local &&
           options->tf_config.count == 0 && !options->print_cluster && options->emit == NULL;
}

bool
multi_start_wanted(const struct launch_options *options)
{
    return find_way(options) != NULL;
}

/* ------------------------------------------------------------------------------- who is who --- */

psd_status
multi_start_servers(const struct multi_start *multi, uint32_t *servers_p, struct psd_error *err)
{
    const struct launch_options *options = multi->options;

    *servers_p = options->servers != LAUNCH_NOT_GIVEN
                     ? options->servers
                     : personality_usual_servers(multi->personality);
    return personality_check_servers(multi->personality, options->personality, *servers_p, err);
}

/* A name is fine: the others need the number. */
static psd_status
find_advertised(struct multi_start *multi, struct psd_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const char *text = multi->options->advertise_addr != NULL ? multi->options->advertise_addr
                                                              : psi_environment("PSD_ADVERTISE");
    struct addrinfo *found = NULL;
    int code;

    if (text == NULL) {
        return PSD_OK;
    }
    code = getaddrinfo(text, NULL, &hints, &found);
    if (code != 0) {
        return psi_fail(err, PSD_ERR_INVALID, "--advertise_addr %.100s: %s", text,
                        gai_strerror(code));
    }
    getnameinfo(found->ai_addr, found->ai_addrlen, multi->advertised, sizeof(multi->advertised),
                NULL, 0, NI_NUMERICHOST);
    freeaddrinfo(found);
    return PSD_OK;
}

const char *
multi_start_hint(const struct multi_start *multi)
{
    const bool contained =
        access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0;

    return contained && psi_environment("KUBERNETES_SERVICE_HOST") == NULL &&
                   multi->advertised[0] == '\0'
               ? "this is a container: the others must be on its network, or it on theirs "
                 "(--network host); --advertise_addr says which address is meant"
               : NULL;
}

bool
multi_start_has_secret(const struct multi_start *multi)
{
    return multi->options->secret_file != NULL || psi_environment("PSD_SECRET_FILE") != NULL;
}

const char *
multi_start_advertised(const struct multi_start *multi)
{
    return multi->advertised[0] != '\0' ? multi->advertised : NULL;
}

static enum launch_role
role_of(const struct multi_start *multi, uint32_t rank)
{
    if (multi->roles.count > 0) {
        return multi->roles.list[rank];
    }
    return rank < multi->servers ? LAUNCH_SERVER : LAUNCH_WORKER;
}

struct layout_task
multi_start_task(const struct multi_start *multi, uint32_t rank)
{
    return (struct layout_task){
        .rank = rank,
        .role = role_of(multi, rank),
        .port = multi->ops->port_of != NULL ? multi->ops->port_of(multi, rank) : 0};
}

/* Everybody, until it is known who is there. */
static void
list_tasks(struct multi_start *multi)
{
    multi->tasks = memory_need(calloc(multi->size, sizeof(*multi->tasks)));
    for (uint32_t rank = 0; rank < multi->size; rank++) {
        multi->tasks[rank] = multi_start_task(multi, rank);
    }
    multi->task_count = multi->size;
}

psd_status
multi_start_open(struct multi_start *multi, const struct launch_options *options,
                 struct psd_error *err)
{
    psd_status status;

    *multi = (struct multi_start){.ops = find_way(options),
                                  .options = options,
                                  .incarnation = wall_clock_ms(), /* later lives have larger ones */
                                  .secret_file = options->secret_file};
    status = personality_parse(options->personality, &multi->personality, err);
    status = status == PSD_OK ? multi->ops->roles(multi, err) : status;
    status = status == PSD_OK ? find_advertised(multi, err) : status;
    if (status == PSD_OK) {
        list_tasks(multi);
    }
    if (status == PSD_OK && multi->ops->enter != NULL) {
        status = multi->ops->enter(multi, err);
    }
    if (status != PSD_OK) {
        multi_start_close(multi);
    }
    return status;
}

void
multi_start_close(struct multi_start *multi)
{
    join_close(multi->join);
    if (multi->ops->close != NULL) {
        multi->ops->close(multi);
    }
    roles_fini(&multi->roles);
    if (multi->prepared_anew) {
        prepare_fini(&multi->prepared);
    }
    free(multi->tasks);
}

int
multi_start_secret(struct multi_start *multi, struct psd_error *err)
{
    return multi->ops->secret != NULL ? multi->ops->secret(multi, err)
                                      : launch_secret_offer(multi->secret_file, err);
}

int
multi_start_join(struct multi_start *multi, int secret_fd)
{
    const struct joiner_config config = {.rank = multi->rank,
                                         .size = multi->size,
                                         .incarnation = multi->incarnation,
                                         .wait_ms = multi->options->max_wait_s * 1000,
                                         .hint = multi_start_hint(multi),
                                         .advertised = multi_start_advertised(multi),
                                         .saves = multi->ops->returns &&
                                                  multi->options->checkpoint != NULL,
                                         .secret_fd = secret_fd,
                                         .environment = environ,
                                         .find = multi->ops->find,
                                         .beat = multi->ops->beat,
                                         .context = multi};

    return joiner_run(&config);
}
