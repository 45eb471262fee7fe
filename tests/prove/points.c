/*
 * points.c - psd_points: lists the fail points of this build, in the order of the board.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>

#include "base/fail_points.h"

int
main(void)
{
#define PRINT_POINT(name, text) printf("%-30s %s\n", #name, text);
    PSI_FAIL_POINT_MAP(PRINT_POINT)
#undef PRINT_POINT
    return 0;
}
