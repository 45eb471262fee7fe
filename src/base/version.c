/*
 * version.c - which version this is. Here, not with the other public calls: programs that ask for
 * nothing else should not carry the whole client.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <psd/psd.h>

const char *
psd_version(void)
{
    return PSD_VERSION;
}
