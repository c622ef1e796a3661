/* jit_cache.cu -- NVRTC's compiled code, cached on disk for later processes.
**
** The folder is MOTH_CACHE, else $XDG_CACHE_HOME/moth or ~/.cache/moth; `none` disables the cache.
** The GPU emulator uses no cache unless a folder is named. A file's name is a hash of all that its
** code depends on. A truncated or changed file is ignored; a new file is written to a temporary
** name and renamed. */
#include "jit.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct head { /* the header of a file; the code follows */
  char magic[8];
  uint64_t size, sum;
} head;

static const char MAGIC[8] = {'m', 'o', 't', 'h', 'm', 'a', 'd', '1'};
static const uint64_t MOST = 64 << 20;

static uint64_t hash_bytes(uint64_t hash, const char *at, size_t n) {
  for (size_t i = 0; i < n; i++) { /* FNV-1a, with its high bits mixed into the low ones */
    hash = (hash ^ (unsigned char)at[i]) * 1099511628211u;
    hash ^= hash >> 29;
  }
  return hash;
}

static uint64_t sum_of(const char *code, uint64_t n) {
  return hash_bytes(14695981039346656037u, code, (size_t)n);
}

/* Finds the folder, and creates it if it is missing; false: there is none. */
static bool folder(char *to, size_t capacity) {
  const char *own = getenv("MOTH_CACHE"), *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int n = 0;
#ifndef __CUDACC__
  if (!own) return false;
#endif
  if (own && (!*own || !strcmp(own, "none"))) return false;
  if (own) n = snprintf(to, capacity, "%s", own);
  else if (base && *base == '/') n = snprintf(to, capacity, "%s/moth", base);
  else if (home && *home == '/') n = snprintf(to, capacity, "%s/.cache/moth", home);
  if (n <= 0 || (size_t)n >= capacity) return false;
  for (char *at = to + 1;; at++) {
    if (*at && *at != '/') continue;
    const char held = *at;
    *at = 0;
    mkdir(to, 0700);
    if (!held) break;
    *at = held;
  }
  return access(to, W_OK) == 0;
}

bool moth_cache_name(const char *target, int version, const char *source, char *to,
                     size_t capacity) {
  char key[128];
  if (!folder(to, capacity)) return false;
  const size_t n = (size_t)snprintf(key, sizeof key, "%s %d ", target, version);
  uint64_t hash[2] = {14695981039346656037u, 0x9e3779b97f4a7c15u};
  for (uint64_t &h : hash) h = hash_bytes(hash_bytes(h, key, n), source, strlen(source));
  const size_t used = strlen(to);
  const int more = snprintf(to + used, capacity - used, "/%016llx%016llx.kernel",
                            (unsigned long long)hash[0], (unsigned long long)hash[1]);
  return (size_t)more < capacity - used;
}

char *moth_cache_read(const char *name) {
  head h;
  FILE *file = fopen(name, "rb");
  char *code = NULL;
  if (!file) return NULL;
  if (fread(&h, sizeof h, 1, file) == 1 && !memcmp(h.magic, MAGIC, sizeof MAGIC) && h.size > 0 &&
      h.size <= MOST)
    code = (char *)malloc((size_t)h.size);
  const bool whole = code && fread(code, 1, (size_t)h.size, file) == h.size &&
                     sum_of(code, h.size) == h.sum;
  fclose(file);
  if (whole) return code;
  free(code);
  return NULL;
}

void moth_cache_write(const char *name, const char *code, size_t size) {
  char temporary[4096 + 8];
  head h = {{}, size, sum_of(code, size)};
  memcpy(h.magic, MAGIC, sizeof MAGIC);
  snprintf(temporary, sizeof temporary, "%s.XXXXXX", name);
  const int number = mkstemp(temporary);
  FILE *file = number < 0 ? NULL : fdopen(number, "wb");
  if (!file) {
    if (number >= 0) close(number), unlink(temporary);
    return;
  }
  bool good = fwrite(&h, sizeof h, 1, file) == 1 && fwrite(code, 1, size, file) == size;
  good = fclose(file) == 0 && good;
  if (!good || rename(temporary, name)) unlink(temporary);
}
