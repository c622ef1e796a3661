/* gif.h -- the first frame of a GIF file. */
#ifndef MOTH_GIF_H
#define MOTH_GIF_H

#include "moth_lua.h"

/* NULL, or what is wrong with the file, a constant text. */
const char *moth_gif_parse(const moth_text *bytes, moth_gif *gif);
/* Writes width * height pixels of red, green, blue, alpha. Returns as moth_gif_parse. */
const char *moth_gif_decode(const moth_text *bytes, const moth_gif *gif, uint8_t *rgba);

#endif
