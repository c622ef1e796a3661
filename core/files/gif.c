/* gif.c -- reads the first frame of a GIF file: blocks, palettes, LZW codes, interlaced rows.
**
** The file is untrusted: each read is checked against its end, and the frame against the canvas.
** The decoder allocates nothing.
*/
#include "gif.h"

#include <string.h>

#include "base/context.h"
#include "base/error.h"

enum { CODES = 4096, SCREEN = 13, DESCRIPTOR = 9, HAS_PALETTE = 0x80, INTERLACED = 0x40 };
enum { PIXELS_PER_BYTE = 4 * CODES }; /* a code has at least 2 bits and fewer than CODES pixels */

typedef struct cursor {
  const uint8_t *start, *at, *end;
} cursor;

static cursor over(const moth_text *bytes) {
  const uint8_t *at = (const uint8_t *)bytes->at;
  return (cursor){at, at, at + bytes->size};
}

static size_t left(const cursor *c) { return (size_t)(c->end - c->at); }

static int u16(const uint8_t *at) { return at[0] | at[1] << 8; }

/* -- blocks -- */

static bool skip_blocks(cursor *c) {
  while (left(c)) {
    const size_t n = *c->at++;
    if (!n) return true;
    if (n > left(c)) return false;
    c->at += n;
  }
  return false;
}

/* The number of colors of a palette, which is skipped; -1: it exceeds the file. */
static int palette_at(cursor *c, int flags) {
  if (!(flags & HAS_PALETTE)) return 0;
  const int colors = 2 << (flags & 7);
  if (left(c) < (size_t)colors * 3) return -1;
  c->at += colors * 3;
  return colors;
}

static bool read_extension(cursor *c, moth_gif *gif) {
  if (left(c) < 1) return false;
  const int label = *c->at++;
  if (label == 0xF9 && left(c) >= 5 && c->at[0] >= 4)
    gif->transparent = c->at[1] & 1 ? c->at[4] : -1;
  return skip_blocks(c);
}

static const char *read_descriptor(cursor *c, moth_gif *gif) {
  if (left(c) < DESCRIPTOR) return "it ends in the description of its first frame";
  gif->x = u16(c->at), gif->y = u16(c->at + 2);
  gif->frame_width = u16(c->at + 4), gif->frame_height = u16(c->at + 6);
  const int flags = c->at[8];
  c->at += DESCRIPTOR;
  gif->interlaced = (flags & INTERLACED) != 0;
  const int64_t palette = c->at - c->start;
  const int colors = palette_at(c, flags);
  if (colors < 0) return "it ends in a palette";
  if (colors) gif->palette = palette, gif->colors = colors;
  gif->data = c->at - c->start;
  const int64_t pixels = (int64_t)gif->frame_width * gif->frame_height;
  if (!pixels) return "its first frame is empty";
  if (pixels > PIXELS_PER_BYTE * (int64_t)left(c)) return "it is truncated";
  if (gif->width < gif->x + gif->frame_width) gif->width = gif->x + gif->frame_width;
  if (gif->height < gif->y + gif->frame_height) gif->height = gif->y + gif->frame_height;
  return NULL;
}

const char *moth_gif_parse(const moth_text *bytes, moth_gif *gif) {
  cursor c = over(bytes);
  memset(gif, 0, sizeof *gif);
  gif->transparent = -1;
  if (left(&c) < SCREEN || (memcmp(c.at, "GIF87a", 6) && memcmp(c.at, "GIF89a", 6)))
    return "it does not begin as a GIF file";
  gif->width = u16(c.at + 6), gif->height = u16(c.at + 8);
  const int flags = c.at[10];
  c.at += SCREEN;
  gif->palette = SCREEN;
  if ((gif->colors = palette_at(&c, flags)) < 0) return "it ends in its palette";
  while (left(&c)) {
    const int kind = *c.at++;
    if (kind == 0x2C) return read_descriptor(&c, gif);
    if (kind == 0x3B) return "it has no frame";
    if (!kind) continue; /* padding, which other readers skip too */
    if (kind != 0x21) return "it has a block of an unknown kind";
    if (!read_extension(&c, gif)) return "it ends in an extension";
  }
  return "it ends before its first frame";
}

/* -- codes -- */

typedef struct codes { /* bits of the data blocks */
  cursor c;
  size_t block; /* bytes left in the current block */
  uint32_t bits;
  int held;
} codes;

static int next_byte(codes *s) {
  if (!s->block) {
    if (!left(&s->c)) return -1;
    s->block = *s->c.at++;
    if (!s->block) s->c.at = s->c.end; /* the last block */
  }
  if (!s->block || !left(&s->c)) return -1;
  s->block--;
  return *s->c.at++;
}

static int next_code(codes *s, int width) {
  while (s->held < width) {
    const int byte = next_byte(s);
    if (byte < 0) return -1;
    s->bits |= (uint32_t)byte << s->held;
    s->held += 8;
  }
  const int code = (int)(s->bits & ((1u << width) - 1));
  s->bits >>= width;
  s->held -= width;
  return code;
}

/* -- pixels -- */

typedef struct writer { /* where the next pixel of the frame goes */
  const moth_gif *gif;
  uint8_t color[256][4], *rgba;
  int column, row, pass;
} writer;

static void read_palette(writer *w, const moth_text *bytes) {
  const moth_gif *gif = w->gif;
  const uint8_t *palette = (const uint8_t *)bytes->at + gif->palette;
  for (int i = 0; i < 256; i++) {
    for (int k = 0; k < 3; k++)
      w->color[i][k] = !gif->colors ? (uint8_t)i : i < gif->colors ? palette[3 * i + k] : 0;
    w->color[i][3] = i == gif->transparent ? 0 : 255;
  }
}

/* Outside the frame the canvas has the transparent color, or the first one, as in PIL. */
static void clear(const writer *w) {
  const uint8_t *color = w->color[w->gif->transparent < 0 ? 0 : w->gif->transparent];
  const size_t n = (size_t)w->gif->width * (size_t)w->gif->height;
  for (size_t i = 0; i < n; i++) memcpy(w->rgba + 4 * i, color, 4);
}

static void next_row(writer *w) {
  static const int first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
  w->column = 0;
  w->row += w->gif->interlaced ? step[w->pass] : 1;
  while (w->gif->interlaced && w->row >= w->gif->frame_height && w->pass < 3)
    w->row = first[++w->pass];
}

static bool full(const writer *w) { return w->row >= w->gif->frame_height; }

static void put(writer *w, int index) {
  const moth_gif *gif = w->gif;
  const size_t at = (size_t)(gif->y + w->row) * (size_t)gif->width + (size_t)(gif->x + w->column);
  memcpy(w->rgba + 4 * at, w->color[index], 4);
  if (++w->column == gif->frame_width) next_row(w);
}

typedef struct table { /* code -> the code before its last byte, that byte */
  uint16_t before[CODES];
  uint8_t last[CODES], text[CODES + 1];
  int size, least; /* codes in use; the width of the first codes */
} table;

/* The bytes of a code, backwards in t->text. Returns their number. */
static int spell(table *t, int code) {
  int n = 0;
  const int clear_code = 1 << t->least;
  while (code >= clear_code) {
    t->text[n++] = t->last[code];
    code = t->before[code];
  }
  t->text[n++] = (uint8_t)code;
  return n;
}

/* Decodes one code after `old` (-1: none). Returns false for a code that does not exist. */
static bool decode_code(table *t, writer *w, int code, int old) {
  const int clear_code = 1 << t->least;
  if (code > t->size || (code == t->size && old < 0) || code == clear_code + 1) return false;
  const bool itself = code == t->size; /* the code that this step defines */
  int n = spell(t, itself ? old : code);
  const uint8_t first = t->text[n - 1];
  if (itself) {
    memmove(t->text + 1, t->text, (size_t)n);
    t->text[0] = first;
    n++;
  }
  if (old >= 0 && t->size < CODES) {
    t->before[t->size] = (uint16_t)old;
    t->last[t->size] = first;
    t->size++;
  }
  while (n && !full(w)) put(w, t->text[--n]);
  return true;
}

const char *moth_gif_decode(const moth_text *bytes, const moth_gif *gif, uint8_t *rgba) {
  codes s = {.c = over(bytes)};
  table t;
  writer w = {.gif = gif, .rgba = rgba};
  s.c.at += gif->data;
  if (!left(&s.c)) return "it ends before its pixels";
  t.least = *s.c.at++;
  if (t.least < 1 || t.least > 8) return "its codes have a wrong width";
  read_palette(&w, bytes);
  clear(&w);
  const int clear_code = 1 << t.least;
  int width = t.least + 1, old = -1;
  t.size = clear_code + 2;
  while (!full(&w)) {
    const int code = next_code(&s, width);
    if (code < 0) return "it is truncated";
    if (code == clear_code + 1) return "its pixels end too early";
    if (code == clear_code) {
      t.size = clear_code + 2;
      width = t.least + 1;
      old = -1;
      continue;
    }
    if (!decode_code(&t, &w, code, old)) return "it has a wrong code";
    old = code;
    if (t.size == 1 << width && width < 12) width++;
  }
  return NULL;
}

/* -- for Lua -- */

int32_t moth_gif_read_size(moth_ctx *ctx, const moth_text *bytes, moth_gif *gif) {
  MOTH_NEED(ctx, bytes && gif, MOTH_E_ARG);
  const char *wrong = moth_gif_parse(bytes, gif);
  return wrong ? moth_fail(ctx, MOTH_E_FORMAT, "bytes", "%s", wrong) : MOTH_OK;
}

int32_t moth_gif_read(moth_ctx *ctx, const moth_text *bytes, const moth_gif *gif, uint8_t *rgba) {
  MOTH_NEED(ctx, bytes && gif && rgba, MOTH_E_ARG);
  const char *wrong = moth_gif_decode(bytes, gif, rgba);
  return wrong ? moth_fail(ctx, MOTH_E_FORMAT, "bytes", "%s", wrong) : MOTH_OK;
}
