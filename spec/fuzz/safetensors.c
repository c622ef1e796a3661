/* safetensors.c -- a libFuzzer target: no file may crash the reader, leak memory, or result in a
** tensor that exceeds the file. Not part of the build; from the top of the checkout
**
**   clang -std=c11 -D_GNU_SOURCE -O1 -g -fno-strict-aliasing -fsanitize=fuzzer,address,undefined \
**     -fno-sanitize-recover=all -Icore -Ibuild/generated -DMOTH_VERSION='"fuzz"' -o fuzz \
**     spec/fuzz/safetensors.c $(ls core/[a-z]*/*.c core/kernel/[a-z]*/*.c \
**     | grep -vE 'launcher|windows|amx_emulated') -lm -ldl -lpthread
**   mkdir -p corpus && ./fuzz -max_len=4096 -max_total_time=120 corpus
**
** The mutator knows the format: it replaces words and numbers in the header and corrects the length
** before it, so that inputs pass the first check.
*/
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "moth_lua.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

#define CHECK(x) \
  if (!(x)) __builtin_trap()

/* -- the property -- */

static moth_ctx *ctx;
static int fd = -1;

static void read_tensor(const moth_handle *file, int64_t i, moth_text *name, moth_handle *out) {
  moth_stored stored;
  CHECK(moth_safetensors_at(ctx, file, i, &stored) == MOTH_OK);
  CHECK(moth_safetensors_find(ctx, file, &stored.name) == i);
  *name = stored.name;
  *out = (moth_handle){0, 0};
  int status = moth_safetensors_tensor(ctx, file, i, out);
  CHECK(status >= 0 || status == MOTH_E_UNSUPPORTED);
  if (status < 0) return;
  char *bytes = malloc((size_t)stored.nbytes + 1);
  CHECK(moth_bytes(ctx, out, bytes, (size_t)stored.nbytes) >= 0);
  for (int64_t k = 0; stored.dtype == MOTH_BOOL && k < stored.nbytes; k++)
    CHECK((unsigned char)bytes[k] <= 1);
  free(bytes);
}

static void read_all(const moth_handle *file) {
  uint32_t n = (uint32_t)moth_safetensors_count(ctx, file), taken = 0;
  moth_text *names = calloc(n + 1u, sizeof *names), key, value, path = {"/dev/null", 9};
  moth_handle *tensors = calloc(n + 1u, sizeof *tensors);
  CHECK(names && tensors);
  for (uint32_t i = 0; i < n; i++) {
    read_tensor(file, i, &names[taken], &tensors[taken]);
    taken += tensors[taken]._slot != 0;
  }
  for (int64_t i = moth_safetensors_metadata_count(ctx, file) - 1; i >= 0; i--)
    CHECK(moth_safetensors_metadata(ctx, file, i, &key, &value) == MOTH_OK);
  CHECK(moth_safetensors_save(ctx, &path, names, tensors, taken, NULL, NULL, 0, 1) == MOTH_OK);
  for (uint32_t i = 0; i < taken; i++) moth_free(ctx, &tensors[i]);
  free(names);
  free(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char name[64];
  moth_memory_info before, after;
  if (!ctx) ctx = moth_open();
  if (fd < 0) fd = memfd_create("fuzz", 0);
  CHECK(ctx && fd >= 0 && ftruncate(fd, (off_t)size) == 0);
  CHECK(pwrite(fd, data, size, 0) == (ssize_t)size);
  moth_text path = {name, (size_t)snprintf(name, sizeof name, "/proc/self/fd/%d", fd)};
  moth_memory(ctx, &before);
  for (int map = 0; map < 2; map++) {
    moth_handle file;
    int status = moth_safetensors_open(ctx, &path, map, &file);
    CHECK(status >= 0 || status == MOTH_E_FORMAT || status == MOTH_E_UNSUPPORTED);
    if (status < 0) {
      CHECK(strlen(moth_error(ctx, 1)) > 10);
      continue;
    }
    read_all(&file);
    moth_free(ctx, &file);
  }
  moth_memory(ctx, &after);
  CHECK(before.live_bytes == after.live_bytes && before.live_handles == after.live_handles);
  CHECK(before.live_storages == after.live_storages);
  return 0;
}

/* -- the mutator -- */

static const char *const words[] = {
    "\"dtype\"", "\"shape\"", "\"data_offsets\"", "\"__metadata__\":{}", "\"F32\"", "\"BOOL\"",
    "\"F64\"", "\"I8\"", "\"F8_E4M3\"", "\"F4\"", "\"U64\"", "\"BF16\"", "[]", "{}", "[0,0]", ":",
    ",", "\"\\ud83d\\ude00\"", "\"\\u0000\"", "null", "-1", "1e3", "\"a\"", "\"b\"",
    "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"};
static const char *const numbers[] = {
    "0", "1", "2", "3", "4", "8", "12", "16", "65536", "4294967296", "2305843009213693952",
    "9223372036854775807", "9223372036854775808", "18446744073709551616", "00"};
static const char *const seeds[] = {
    "{}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}\1\2\3\4\5\6\7\1",
    "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":"
    "[0,3]},\"b\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[3,11]}}\1\2\3\1\2\3\4\1\2\3\4",
    "{\"e\":{\"dtype\":\"F16\",\"shape\":[0,4],\"data_offsets\":[0,0]},\"f\":{\"dtype\":"
    "\"F8_E5M2\",\"shape\":[2],\"data_offsets\":[0,2]}}\1\2"};
#define PICK(list) list[(unsigned)rand_r(&seed) % (sizeof list / sizeof list[0])]

/* The end of the header: the last brace. */
static size_t mend(uint8_t *data, size_t size) {
  uint64_t n = 0;
  for (size_t i = 8; i < size; i++)
    if (data[i] == '}') n = i + 1 - 8;
  if (n == 0) n = size > 8 ? size - 8 : 0;
  for (int i = 0; i < 8; i++) data[i] = (uint8_t)(n >> (8 * i));
  return size;
}

static size_t replace(uint8_t *data, size_t size, size_t room, size_t from, size_t to,
                      const char *word) {
  size_t n = strlen(word);
  if (size - (to - from) + n > room) return size;
  memmove(data + from + n, data + to, size - to);
  memcpy(data + from, word, n);
  return size - (to - from) + n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
  if (size < 10 || rand_r(&seed) % 64 == 0) {
    const char *text = PICK(seeds);
    size = 8 + strlen(text);
    if (size > room) return 0;
    memcpy(data + 8, text, size - 8);
    return mend(data, size);
  }
  size_t at = 8 + (unsigned)rand_r(&seed) % (size - 8), to = at;
  switch (rand_r(&seed) % 4) {
  case 0: /* replaces a number */
    while (at < size && (data[at] < '0' || data[at] > '9')) at++;
    for (to = at; to < size && data[to] >= '0' && data[to] <= '9';) to++;
    size = replace(data, size, room, at, to, PICK(numbers));
    break;
  case 1: /* replaces a word, or inserts one */
    while (to < size && rand_r(&seed) % 8 && data[to] != ',' && data[to] != '}') to++;
    size = replace(data, size, room, at, to, PICK(words));
    break;
  case 2:
    size = 8 + LLVMFuzzerMutate(data + 8, size - 8, room - 8);
    break;
  default:
    size = LLVMFuzzerMutate(data, size, room);
    if (size < 8 || rand_r(&seed) % 4) return size;
  }
  return mend(data, size);
}
