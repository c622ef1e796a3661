/* call_log.h -- the call log: an observer of the host's calls, see moth_call_log_begin. */
#ifndef MOTH_CALL_LOG_H
#define MOTH_CALL_LOG_H

#include "base/context.h"

/* Called for an event that no entry can describe. A log with EVENTS gets no more entries;
** other logs fail. */
int moth_call_log_refuse(moth_ctx *ctx, const char *why);

#endif
