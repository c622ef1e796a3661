--- traverse.lua -- pairs and next that LuaJIT does not compile, where compiled ones may crash.
--
-- LuaJIT 2.1 beta 3, which Debian 12 has, may crash in a compiled traversal of a table (its issue
-- 829; core/host/traverse.c tells more). There the globals are replaced, for as long as the state
-- lives. On ARM all that it compiles may crash (the golden values do): its compiler is turned off
-- there, and the globals are replaced for who turns it on again.

local system = require "moth.base.system"

--- Keeps this LuaJIT from compiling what may crash.
-- @param path    the library
-- @param anchor  what stays in the state: the function found stands in its field `next`
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
