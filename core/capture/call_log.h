/* call_log.h -- the call log: an observer of what the host calls, see moth_call_log_begin. */
#ifndef MOTH_NOTED_H
#define MOTH_NOTED_H

#include "base/context.h"

/* For what no entry can describe: ends the log's entries, if it has EVENTS; else an error. */
int moth_call_log_refuse(moth_ctx *ctx, const char *why);

#endif
