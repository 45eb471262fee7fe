/*
 * tls_pair.h - what bare TLS reaches: two processes, SSL_write and SSL_read, nothing else.
 *
 * One connection over loopback tcp, TLS 1.3 with the cipher that Poseidon uses between hosts. The
 * worker writes the tensor in pieces of 256 KiB and meanwhile reads it back; the server reads a
 * piece and writes it back. Nothing is added up or applied.
 */
#ifndef BENCH_TLS_PAIR_H
#define BENCH_TLS_PAIR_H

#include "ceiling.h"

/* The crew's one worker follows CREW_RUN. Stop it with ceiling_stop(). */
psd_status tls_pair_start(uint64_t bytes, struct ceiling *pair_p, struct psd_error *err);

#endif
