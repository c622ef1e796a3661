/* abi.c -- version, header text and configuration of the library. */
#include "vendor/blas.h"
#include "context.h"
#include "kernel/level.h"

#include "moth_header.inc" /* moth.h and moth_lua.h without comments, made by the build */

#ifndef MOTH_VERSION
#define MOTH_VERSION "0.1.0"
#endif

uint32_t moth_abi_version(void) { return MOTH_ABI; }
uint32_t moth_lua_abi_version(void) { return MOTH_LUA_ABI; }
const char *moth_version(void) { return MOTH_VERSION; }
const char *moth_header(void) { return moth_header_text; }

const char *moth_config(moth_ctx *ctx) {
  if (!ctx) return "no context";
  snprintf(ctx->error.shown, sizeof ctx->error.shown,
           "moth %s, abi %d, loops %s, threads %d, BLAS %s, compiler %s", MOTH_VERSION, MOTH_ABI,
           moth_level_name(), moth_get_num_threads(), moth_blas_name(), __VERSION__);
  return ctx->error.shown;
}
