/* workers.h -- functions of workers and tokens for the rest of the core. */
#ifndef MOTH_WORKERS_H
#define MOTH_WORKERS_H

#include "moth_lua.h"


/* A context was opened on this thread; a context closes: waits for its workers. */
void moth_workers_opened(moth_ctx *ctx);
void moth_workers_close(moth_ctx *ctx);
void moth_workers_can_fork(void); /* a fork then takes these locks and the tokens' locks */

/* -- tokens (token.c) -- */

void moth_token_discard(uint64_t token); /* drops a token that may have been opened */
void moth_token_lock(void);              /* around a fork */
void moth_token_unlock(void);

#endif
