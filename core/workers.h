/* workers.h -- what the rest of the engine must know of workers, and of what they send. */
#ifndef MOTH_WORKERS_H
#define MOTH_WORKERS_H

#include "tensor.h"

bool moth_on_worker(void); /* whether this thread is one: it starts no jobs on others */
/* A context was opened on this thread, or is about to end: workers of its own are waited for. */
void moth_workers_opened(moth_ctx *ctx);
void moth_workers_close(moth_ctx *ctx);
bool moth_is_workers_storage(const moth_storage *s); /* does it stand for a handle of theirs? */

/* -- tokens (token.c) -- */

void moth_token_discard(uint64_t token); /* one that may have been opened */
void moth_token_lock(void);              /* around a fork */
void moth_token_unlock(void);

/* -- storages between contexts (tensor.c) -- */

void moth_storage_discard(moth_storage *s); /* releases a shared one, in no context */
/* Takes a reference to a shared storage. Where it is the last one, the bytes move to a storage of
** this context, which is returned; else it is s itself. NULL: an error, and s is as before. */
moth_storage *moth_storage_receive(moth_ctx *ctx, moth_storage *s);

#endif
