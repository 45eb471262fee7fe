/*
 * status.c - names and meanings of status codes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <psd/status.h>

const char *
psd_status_text(psd_status status)
{
    switch (status) {
#define STATUS_TEXT(name, code, text)                                                              \
    case PSD_##name:                                                                               \
        return text;
        PSD_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

const char *
psd_status_name(psd_status status)
{
    switch (status) {
#define STATUS_NAME(name, code, text)                                                              \
    case PSD_##name:                                                                               \
        return "PSD_" #name;
        PSD_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "PSD_?";
}
