/* traverse.c -- Lua's next() as a plain C function, which LuaJIT does not compile.
**
** LuaJIT 2.1 beta 3 of Debian 12 (and versions of September 2021 to April 2022) may cut a pointer
** to 32 bits in a compiled loop over pairs() or next(), which crashes the process (LuaJIT issue
** 829). There lua/moth/base/traverse.lua replaces both by this function. The core links no Lua: the
** Lua functions are the host's. If the host does not export them, nothing is replaced.
*/
#include <stddef.h>

typedef struct lua_State lua_State;

#define WEAK __attribute__((weak))
WEAK int lua_next(lua_State *L, int index);
WEAK void lua_settop(lua_State *L, int index);
WEAK void lua_pushnil(lua_State *L);
WEAK void luaL_checktype(lua_State *L, int index, int type);

__attribute__((visibility("default"))) int moth_lua_next(lua_State *L);

int moth_lua_next(lua_State *L) {
  enum { TABLE = 5 }; /* LUA_TTABLE */
  if (!lua_next || !lua_settop || !lua_pushnil || !luaL_checktype) return 0;
  luaL_checktype(L, 1, TABLE);
  lua_settop(L, 2);
  if (lua_next(L, 1)) return 2;
  lua_pushnil(L);
  return 1;
}
