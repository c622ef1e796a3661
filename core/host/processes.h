/* processes.h -- messages between processes; moth_lua.h declares the functions. */
#ifndef MOTH_PROCESSES_H
#define MOTH_PROCESSES_H

#include "base/context.h"

void moth_processes_free(moth_ctx *ctx); /* a context closes */

#endif
