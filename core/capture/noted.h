/* noted.h -- the call log: an observer of what the host calls, see moth_calls_begin. */
#ifndef MOTH_NOTED_H
#define MOTH_NOTED_H

#include "base/context.h"

/* For what cannot be noted: ends the log's entries, if it has EVENTS; else an error. */
int moth_calls_refuse(moth_ctx *ctx, const char *why);

#endif
