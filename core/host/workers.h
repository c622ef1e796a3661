/* workers.h -- what the rest of the engine must know of workers, and of what they send. */
#ifndef MOTH_WORKERS_H
#define MOTH_WORKERS_H

#include "moth_lua.h"


/* A context was opened on this thread, or is about to end: workers of its own are waited for. */
void moth_workers_opened(moth_ctx *ctx);
void moth_workers_close(moth_ctx *ctx);
void moth_workers_can_fork(void); /* from here on a fork waits for these locks and the tokens' */

/* -- tokens (token.c) -- */

void moth_token_discard(uint64_t token); /* one that may have been opened */
void moth_token_lock(void);              /* around a fork */
void moth_token_unlock(void);

#endif
