--- traverse.lua -- pairs and next that LuaJIT does not compile, for versions in which the compiled
-- functions crash.
--
-- LuaJIT 2.1 beta 3 (Debian 12) may crash in a compiled traversal of a table (its issue 829; see
-- core/host/traverse.c). In this version, this file replaces the globals for the life of the Lua
-- state. On ARM all code that it compiles may crash (the golden values do), so its compiler is off
-- there; the globals are replaced in case a program turns it on.

local system = require "moth.base.system"

--- Keeps this LuaJIT from compiling pairs and next.
-- @param path    the library
-- @param anchor  a table that lives as long as the state; its field `next` stores the function
return function(path, anchor)
  if anchor.next or not jit.version:find("beta3", 1, true) then return end
  if jit.arch == "arm64" then jit.off() end
  if path == system.found_as then path = system.library end
  local traverse = package.loadlib(path, "moth_lua_next")
  if not traverse or select("#", traverse {}) ~= 1 then return end
  anchor.next = traverse
  local compiled_next, compiled_pairs = next, pairs
  rawset(_G, "next", traverse)
  rawset(_G, "pairs", function(t)
    if type(t) ~= "table" then return compiled_pairs(t) end -- a tensor; or an error
    local iterate, state, first = compiled_pairs(t)
    if iterate == compiled_next then iterate = traverse end
    return iterate, state, first
  end)
end
