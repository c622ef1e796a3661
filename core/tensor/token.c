/* token.c -- moves tensors between contexts and threads.
**
** A token is a number for an entry in one table with a lock; it can be opened once. Making a token
** makes the storage's counts atomic, so that both contexts may use it. If only the token holds the
** storage, its bytes move to the context that opens it. The opened tensor has neither history nor
** gradient.
*/
#include <pthread.h>
#include <stdlib.h>

#include "device/device.h"
#include "call/observer.h"
#include "host/workers.h"
#include "base/error.h"
#include "handles.h"
#include "collect.h"
#include "tensor.h"

typedef struct token_entry {
  moth_storage *storage; /* counted; NULL: a free entry */
  moth_layout layout;
  uint32_t gen;
  bool held; /* being opened: not free yet */
} token_entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static token_entry *entries;
static uint32_t nentries, capacity, lowest; /* no entry below `lowest` is free */

static uint32_t free_entry(void) {
  for (; lowest < nentries; lowest++)
    if (!entries[lowest].storage && !entries[lowest].held) return lowest;
  if (nentries == capacity) {
    uint32_t more = capacity ? capacity * 2 : 64;
    token_entry *grown = realloc(entries, more * sizeof *grown);
    if (!grown) return UINT32_MAX;
    entries = grown;
    capacity = more;
  }
  entries[nentries] = (token_entry){.gen = 1};
  return nentries++;
}

int32_t moth_token(moth_ctx *ctx, const moth_handle *h, uint64_t *token) {
  MOTH_NEED(ctx, h && token, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *x = moth_resolve(ctx, h, NULL);
  if (!x || MOTH_NOTICE(ctx, READ, .what = "a tensor is given away")) return ctx->error.code;
  if (x->l.device) {
    char name[24];
    return moth_fail(ctx, MOTH_E_DEVICE, NULL,
                     "a tensor on %s cannot be given to another state; move it with :cpu()",
                     moth_device_name(x->l.device, name));
  }
  if (moth_storage_root(x->storage)->symbolic)
    return moth_fail(ctx, MOTH_E_TYPE, NULL,
                     "a tensor is needed, got a stream, an event or workers, which belong to one "
                     "state");
  moth_storage_share(ctx, x->storage);
  moth_storage_retain(x->storage);
  moth_workers_can_fork();
  pthread_mutex_lock(&lock);
  uint32_t i = free_entry();
  if (i != UINT32_MAX) {
    entries[i].storage = x->storage;
    entries[i].layout = x->l;
    *token = (uint64_t)(entries[i].gen & 0xfffffu) << 32 | (i + 1); /* below 2^53 */
  }
  pthread_mutex_unlock(&lock);
  if (i != UINT32_MAX) return MOTH_OK;
  moth_storage_release(ctx, x->storage);
  return moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory for tokens");
}

/* Takes the entry out of the table. The caller gets its reference. */
static moth_storage *take(uint64_t token, moth_layout *l) {
  uint32_t i = (uint32_t)token - 1;
  moth_storage *s = NULL;
  pthread_mutex_lock(&lock);
  if (i < nentries && entries[i].storage && (entries[i].gen & 0xfffffu) == token >> 32) {
    s = entries[i].storage;
    *l = entries[i].layout;
    entries[i].storage = NULL;
    entries[i].held = true;
    entries[i].gen++;
  }
  pthread_mutex_unlock(&lock);
  return s;
}

/* Restores an entry that could not be opened because memory ran out. */
static void put_back(uint64_t token, moth_storage *s, const moth_layout *l) {
  uint32_t i = (uint32_t)token - 1;
  pthread_mutex_lock(&lock);
  entries[i].gen--;
  entries[i].storage = s;
  entries[i].layout = *l;
  entries[i].held = false;
  pthread_mutex_unlock(&lock);
}

static void let_go(uint64_t token) {
  pthread_mutex_lock(&lock);
  const uint32_t i = (uint32_t)token - 1;
  entries[i].held = false;
  if (i < lowest) lowest = i;
  pthread_mutex_unlock(&lock);
}

int32_t moth_token_open(moth_ctx *ctx, uint64_t token, moth_handle *out) {
  MOTH_NEED(ctx, out, MOTH_E_ARG);
  moth_layout l;
  moth_error_clear(ctx);
  moth_storage *s = take(token, &l);
  if (!s) return moth_fail(ctx, MOTH_E_STATE, "token", "no such token, or it was opened before");
  moth_tensor *x = moth_tensor_bare(ctx, &l);
  moth_storage *own = x ? moth_storage_receive(ctx, s) : NULL;
  if (!own) {
    moth_tensor_release(x);
    put_back(token, s, &l);
    return ctx->error.code;
  }
  x->storage = moth_storage_retain(own);
  int status = moth_hand_out(ctx, x, out);
  if (status) {
    moth_storage_share(ctx, own);
    put_back(token, own, &l);
    return status;
  }
  let_go(token);
  moth_storage_release(ctx, own);
  return moth_due(ctx);
}

int32_t moth_token_drop(moth_ctx *ctx, uint64_t token) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_layout l;
  moth_error_clear(ctx);
  moth_storage *s = take(token, &l);
  if (!s) return moth_fail(ctx, MOTH_E_STATE, "token", "no such token, or it was opened before");
  let_go(token);
  moth_storage_release(ctx, s);
  return MOTH_OK;
}

void moth_token_discard(uint64_t token) {
  moth_layout l;
  moth_storage *s = take(token, &l);
  if (!s) return;
  let_go(token);
  moth_storage_discard(s);
}

void moth_token_lock(void) { pthread_mutex_lock(&lock); }
void moth_token_unlock(void) { pthread_mutex_unlock(&lock); }
