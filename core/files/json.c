/* json.c -- the JSON of file headers: scanner, writer, and UTF-8 checks for both. */
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- UTF-8 -- */

/* The length of the well-formed UTF-8 sequence at `at`, or 0. Overlong forms, surrogates and code
** points above U+10FFFF are malformed. */
static size_t utf8_length(const char *at, const char *end) {
  const unsigned char *s = (const unsigned char *)at;
  size_t left = (size_t)(end - at);
  if (s[0] < 0x80) return 1;
  size_t n = s[0] >= 0xc2 && s[0] <= 0xdf ? 2 : (s[0] & 0xf0) == 0xe0 ? 3
             : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : 0;
  if (n == 0 || left < n) return 0;
  for (size_t i = 1; i < n; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  if (s[0] == 0xe0 && s[1] < 0xa0) return 0;
  if (s[0] == 0xed && s[1] > 0x9f) return 0;
  if (s[0] == 0xf0 && s[1] < 0x90) return 0;
  if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
  return n;
}

bool moth_utf8(moth_text text) {
  const char *at = text.at, *end = text.at + text.size;
  while (at < end) {
    size_t n = utf8_length(at, end);
    if (n == 0) return false;
    at += n;
  }
  return true;
}

static size_t utf8_write(uint32_t code, char *to) {
  if (code < 0x80) {
    to[0] = (char)code;
    return 1;
  }
  size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = n - 1; i > 0; i--, code >>= 6) to[i] = (char)(0x80u | (code & 0x3fu));
  to[0] = (char)(lead[n] | code);
  return n;
}

const char *moth_quote(moth_text text, char *to, size_t size) {
  char *at = to, *end = to + size - 8; /* space for one character, "..." and the quote */
  *at++ = '\'';
  const char *from = text.at, *stop = text.at + text.size;
  while (from < stop) {
    size_t n = utf8_length(from, stop);
    if (at + (n > 4 || n == 0 ? 4 : n) > end) break;
    const unsigned char c = (unsigned char)*from;
    const bool second = n == 2 && c == 0xc2 && (unsigned char)from[1] < 0xa0; /* C1 controls */
    if (n == 0 || second || (n == 1 && (c < 0x20 || c == 0x7f))) {
      at += snprintf(at, 5, "\\x%02x", (unsigned char)*from++);
    } else {
      memcpy(at, from, n);
      at += n;
      from += n;
    }
  }
  memcpy(at, from < stop ? "...'" : "'", from < stop ? 5 : 2);
  return to;
}

/* -- reading -- */

static void skip_space(moth_json *j) {
  while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\t' || *j->at == '\r'))
    j->at++;
}

static bool wrong(moth_json *j, const char *wanted) {
  if (!j->wrong) j->wrong = wanted;
  return false;
}

bool moth_json_next(moth_json *j, char c) {
  if (j->wrong) return false;
  skip_space(j);
  if (j->at == j->end || *j->at != c) return false;
  j->at++;
  return true;
}

bool moth_json_need(moth_json *j, char c, const char *wanted) {
  return moth_json_next(j, c) || wrong(j, wanted);
}

bool moth_json_end(moth_json *j) {
  if (j->wrong) return false;
  skip_space(j);
  return j->at == j->end || wrong(j, "the end of the header");
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* The value of the four hex digits after \u, or -1. */
static int32_t hex4(const char *at, const char *end) {
  int32_t value = 0;
  if (end - at < 4) return -1;
  for (int i = 0; i < 4; i++) {
    int digit = hex_digit(at[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

/* Reads one character at `at`, escaped or not. Returns the number of bytes read, 0 if malformed.
** Writes its UTF-8 to `to` (4 bytes) and the number of these bytes to *n. */
static size_t one_character(const char *at, const char *end, char *to, size_t *n) {
  if (*at != '\\') {
    *n = (unsigned char)*at < 0x20 ? 0 : utf8_length(at, end);
    memcpy(to, at, *n);
    return *n;
  }
  if (end - at < 2) return 0;
  static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
  const char *e = at[1] ? strchr(escapes, at[1]) : NULL;
  if (e) {
    to[0] = meant[e - escapes];
    *n = 1;
    return 2;
  }
  if (at[1] != 'u') return 0;
  int32_t code = hex4(at + 2, end), low;
  if (code < 0 || (code >= 0xdc00 && code <= 0xdfff)) return 0;
  if (code < 0xd800 || code > 0xdbff) {
    *n = utf8_write((uint32_t)code, to);
    return 6;
  }
  if (end - at < 12 || at[6] != '\\' || at[7] != 'u') return 0;
  low = hex4(at + 8, end);
  if (low < 0xdc00 || low > 0xdfff) return 0;
  *n = utf8_write(0x10000u + ((uint32_t)(code - 0xd800) << 10) + (uint32_t)(low - 0xdc00), to);
  return 12;
}

bool moth_json_string(moth_json *j, moth_text *raw) {
  if (!moth_json_need(j, '"', "a string")) return false;
  const char *from = j->at;
  while (j->at < j->end && *j->at != '"') {
    char character[4];
    size_t n, step = one_character(j->at, j->end, character, &n);
    if (step == 0) return wrong(j, "a valid character of a string");
    j->at += step;
  }
  if (j->at == j->end) return wrong(j, "the end of a string");
  *raw = (moth_text){from, (size_t)(j->at - from)};
  j->at++;
  return true;
}

bool moth_json_size(moth_json *j, int64_t *value) {
  if (j->wrong) return false;
  skip_space(j);
  const char *from = j->at;
  uint64_t sum = 0;
  for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++) {
    uint64_t digit = (uint64_t)(*j->at - '0');
    if (sum > ((uint64_t)INT64_MAX - digit) / 10) return wrong(j, "a number below 2^63");
    sum = sum * 10 + digit;
  }
  bool fraction = j->at < j->end && (*j->at == '.' || *j->at == 'e' || *j->at == 'E');
  if (j->at == from || fraction || (*from == '0' && j->at - from > 1)) {
    j->at = from;
    return wrong(j, from < j->end && *from == '-' ? "a number that is not negative"
                                                  : "an integer");
  }
  *value = (int64_t)sum;
  return true;
}

bool moth_json_is(moth_text raw, const char *word) {
  const char *at = raw.at, *end = raw.at + raw.size;
  while (at < end) {
    char character[4];
    size_t n, step = one_character(at, end, character, &n);
    if (step == 0 || strncmp(character, word, n) != 0 || strlen(word) < n) return false;
    at += step;
    word += n;
  }
  return *word == 0;
}

size_t moth_json_decode(moth_text raw, char *to) {
  char *start = to;
  const char *at = raw.at, *end = raw.at + raw.size;
  while (at < end) {
    char character[4];
    size_t n, step = one_character(at, end, character, &n);
    if (step == 0) break;
    memcpy(to, character, n);
    at += step;
    to += n;
  }
  return (size_t)(to - start);
}

/* -- writing -- */

void moth_put(moth_buffer *b, const char *bytes, size_t size) {
  if (b->failed || size == 0) return;
  if (size > b->capacity - b->size) {
    size_t capacity = b->capacity < 1024 ? 1024 : b->capacity;
    while (capacity - b->size < size && capacity < SIZE_MAX / 4) capacity *= 2;
    char *at = capacity - b->size < size ? NULL : realloc(b->at, capacity);
    if (!at) {
      b->failed = true;
      return;
    }
    b->at = at;
    b->capacity = capacity;
  }
  memcpy(b->at + b->size, bytes, size);
  b->size += size;
}

void moth_put_word(moth_buffer *b, const char *word) { moth_put(b, word, strlen(word)); }

void moth_put_size(moth_buffer *b, int64_t value) {
  char digits[24];
  moth_put(b, digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)value));
}

void moth_put_json(moth_buffer *b, moth_text text) {
  moth_put(b, "\"", 1);
  size_t from = 0;
  for (size_t i = 0; i < text.size; i++) {
    unsigned char c = (unsigned char)text.at[i];
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    char escape[8];
    moth_put(b, text.at + from, i - from);
    int n = c >= 0x20 ? snprintf(escape, sizeof escape, "\\%c", c)
                      : snprintf(escape, sizeof escape, "\\u%04x", c);
    moth_put(b, escape, (size_t)n);
    from = i + 1;
  }
  if (text.size > from) moth_put(b, text.at + from, text.size - from);
  moth_put(b, "\"", 1);
}
