/* cover.c -- records the blocks of Lua and C that a process executes, for .ci/cover.lua.
** It is preloaded (LD_PRELOAD) as a library and marks executed blocks in the file that MOTH_MARKS
** names; child processes mark the same file. With COVER_STUB it is an object that an instrumented
** library links, and does nothing.
*/
#ifdef COVER_STUB

void __sanitizer_cov_trace_pc(void);
__attribute__((weak, visibility("default"))) void __sanitizer_cov_trace_pc(void) {}

#else

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lualib.h>

enum { MARKS = 1 << 20, TEXT = 64 << 20 };

static unsigned char *marks; /* a byte for each Lua block */
static unsigned char *text;  /* a byte for each address of libmoth.so */
static uintptr_t base;

static int find_base(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size, (void)unused;
  if (strstr(info->dlpi_name, "/libmoth.so")) base = info->dlpi_addr;
  return base != 0;
}

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("MOTH_MARKS");
  int file = path ? open(path, O_RDWR) : -1;
  if (file < 0) return;
  unsigned char *map = mmap(NULL, MARKS + TEXT, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (map == MAP_FAILED) return;
  marks = map;
  text = map + MARKS;
}

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) { /* gcc calls it in each basic block */
  uintptr_t at = (uintptr_t)__builtin_return_address(0);
  if (!text) return;
  if (!base) dl_iterate_phdr(find_base, NULL);
  if (at - base < TEXT && !text[at - base]) text[at - base] = 1;
}

/* Lua's marks: a global pointer, which the instrumented files read. */
static const char GIVE[] =
    "rawset(_G, 'MOTH_MARKS', require('ffi').cast('uint8_t *', (...)))\n";

void luaL_openlibs(lua_State *L) {
  void (*open_all)(lua_State *) = (void (*)(lua_State *))dlsym(RTLD_NEXT, "luaL_openlibs");
  open_all(L);
  if (!marks || luaL_loadstring(L, GIVE)) return;
  lua_pushlightuserdata(L, marks);
  lua_call(L, 1, 0);
}

#endif
