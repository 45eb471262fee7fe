/*
 * document_bytes.h - what tools/embed_page.py writes: the page in two halves, between which the data
 * of a report stands.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_DOCUMENT_BYTES_H
#define LAUNCH_PAGE_DOCUMENT_BYTES_H

extern const char document_head[];
extern const char document_tail[];
extern const char document_policy_text[];

#endif
