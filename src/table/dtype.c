/*
 * dtype.c - sizes and names of element types.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "table/dtype.h"

size_t
psi_dtype_state_bytes(psd_dtype dtype)
{
    return dtype == PSD_F64 ? 8 : 4;
}

const char *
psi_dtype_name(psd_dtype dtype)
{
    switch (dtype) {
    case PSD_F32:
        return "f32";
    case PSD_F64:
        return "f64";
    case PSD_F16:
        return "f16";
    case PSD_BF16:
        return "bf16";
    }
    return "?";
}
