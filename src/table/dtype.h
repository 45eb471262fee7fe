/*
 * dtype.h - sizes and names of element types.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TABLE_DTYPE_H
#define PSI_TABLE_DTYPE_H

#include <stddef.h>

#include <psd/psd.h>

/* 4, 8, 2, 2; 0 for anything else */
static inline size_t
psi_dtype_bytes(psd_dtype dtype)
{
    return dtype == PSD_F32                        ? 4
           : dtype == PSD_F64                      ? 8
           : dtype == PSD_F16 || dtype == PSD_BF16 ? 2
                                                   : 0;
}

size_t psi_dtype_state_bytes(psd_dtype dtype); /* optimizer state: 4, or 8 for f64 */
const char *psi_dtype_name(psd_dtype dtype);   /* "f32"; "?" for anything else */

/* The type that numbers of this one are added in. */
static inline psd_dtype
psi_dtype_real(psd_dtype dtype)
{
    return dtype == PSD_F64 ? PSD_F64 : PSD_F32;
}

#endif
