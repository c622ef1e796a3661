/* gif.c -- a libFuzzer target: no file may crash the reader of GIF, read outside the file, or write
** outside the canvas. Not part of the build; from the top of the checkout
**
**   clang -std=c11 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined \
**     -fno-sanitize-recover=all -Icore -Ibuild/generated -o fuzz_gif \
**     spec/fuzz/gif.c core/files/gif.c
**   mkdir -p corpus && ./fuzz_gif -max_len=2048 -max_total_time=120 corpus
**
** The seeds are mutated by libFuzzer and by a mutator that knows the numbers of the header.
*/
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/gif.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

enum { MOST = 1 << 18 }; /* pixels */

/* The functions for Lua are linked, too; they are not called. */
int moth_fail(moth_ctx *ctx, int code, const char *arg, const char *format, ...) {
  (void)ctx, (void)arg, (void)format;
  return code;
}
void moth_fail_need(moth_ctx *ctx) { (void)ctx; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const moth_text bytes = {(const char *)data, size};
  moth_gif gif;
  if (moth_gif_parse(&bytes, &gif)) return 0;
  if (gif.frame_width < 1 || gif.frame_height < 1 || gif.x + gif.frame_width > gif.width ||
      gif.y + gif.frame_height > gif.height)
    __builtin_trap();
  const size_t n = (size_t)gif.width * (size_t)gif.height;
  if (n > MOST) return 0;
  uint8_t *rgba = malloc(4 * n);
  if (!rgba) return 0;
  memset(rgba, 7, 4 * n);
  if (!moth_gif_decode(&bytes, &gif, rgba))
    for (size_t i = 0; i < n; i++)
      if (rgba[4 * i + 3] != 0 && rgba[4 * i + 3] != 255) __builtin_trap(); /* never written */
  free(rgba);
  return 0;
}

static const char seed_file[] =
    "GIF89a\3\0\2\0\x80\0\0\12\24\36\377\0\0!\371\4\1\0\0\1\0,\1\0\1\0\1\0\1\0\0\2\2L\1\0;";

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
  static const uint8_t numbers[] = {0, 1, 2, 3, 4, 7, 8, 9, 12, 16, 64, 0x80, 0x87, 0xC0, 255};
  if ((size < 14 || rand_r(&seed) % 256 == 0) && room >= sizeof seed_file) {
    memcpy(data, seed_file, sizeof seed_file - 1);
    return sizeof seed_file - 1;
  }
  if (rand_r(&seed) % 3 == 0) {
    data[6 + (unsigned)rand_r(&seed) % (size - 6)] =
        numbers[(unsigned)rand_r(&seed) % sizeof numbers];
    return size;
  }
  size = LLVMFuzzerMutate(data, size, room);
  if (size > 6) memcpy(data, seed_file, 6);
  return size;
}
