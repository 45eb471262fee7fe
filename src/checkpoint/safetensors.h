/*
 * safetensors.h - the head of a safetensors file, both ways. Pure.
 *
 * A file is: u64 header length (little-endian), a JSON header, the data. The header names each
 * tensor with its type, shape and place in the data. Heads from elsewhere are read, too: keys in
 * any order, white space, escapes, types we do not use. What is wrong is PSD_ERR_CORRUPT, naming
 * the file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_SAFETENSORS_H
#define PSI_CHECKPOINT_SAFETENSORS_H

#include "checkpoint/tensors.h"

enum { PSI_SAFETENSORS_LENGTH_BYTES = 8, PSI_SAFETENSORS_HEADER_MAX = 100 * 1000 * 1000 };

/* Bytes before the data, from the first eight of the file. */
psd_status psi_safetensors_head_bytes(const char *file,
                                      const uint8_t length[PSI_SAFETENSORS_LENGTH_BYTES],
                                      uint64_t file_bytes, size_t *head_bytes_p,
                                      struct psd_error *err);

/* Reads a head: that many bytes from the start of a file. The tensors are checked. */
psd_status psi_safetensors_parse(const char *file, const uint8_t *head, size_t head_bytes,
                                 uint64_t file_bytes, struct psi_tensors *tensors_p,
                                 struct psd_error *err);

/*
 * Gives every tensor of the list its place and makes the head, a pure function of tensors and step.
 * The caller frees *head_p.
 */
psd_status psi_safetensors_layout(struct psi_tensors *tensors, uint64_t step, uint8_t **head_p,
                                  size_t *head_bytes_p, struct psd_error *err);

#endif
