/* maps.h -- all elementwise functions by number, for fused programs. */
#ifndef MOTH_KERNEL_MAPS_H
#define MOTH_KERNEL_MAPS_H

#include "elementwise.h"

const moth_loops *moth_map_at(int64_t number);     /* NULL: there is no such number */
int64_t moth_map_number(const moth_loops *loops); /* -1: the loops are in no family */

#endif
