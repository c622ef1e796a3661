--- editor.lua -- reads a line with history and completion: with isocline if it is installed, else
-- with libedit, both through the FFI; on a pipe, or without both, with io.read.
--
-- Each returns an object with `name` and `read(prompt, before)`, which returns a line, nil at the
-- end of input, or false after Ctrl-C; `before` is the list of earlier lines of the same input.
-- The libraries call back into Lua while they read, so the reading functions are not JIT-compiled,
-- and no error leaves a callback.

local ffi = require "ffi"

local complete = require "moth.repl.complete"
local show = require "moth.repl.show"
local machine = require "moth.base.machine"

local C = ffi.C
local editor = {}

ffi.cdef [[
char *setlocale(int category, const char *locale);
void free(void *block);

typedef struct moth_libedit moth_libedit;
typedef struct moth_libhistory moth_libhistory;
typedef struct { const char *buffer, *cursor, *lastchar; } moth_lineinfo;
typedef struct { int number; const char *text; } moth_histevent;
moth_libedit *el_init(const char *program, void *in, void *out, void *errors);
const char *el_gets(moth_libedit *e, int *count);
int el_set(moth_libedit *e, int what, ...);
int el_source(moth_libedit *e, const char *file);
const moth_lineinfo *el_line(moth_libedit *e);
int el_insertstr(moth_libedit *e, const char *text);
void el_deletestr(moth_libedit *e, int count);
void el_resize(moth_libedit *e);
moth_libhistory *history_init(void);
int history(moth_libhistory *h, moth_histevent *event, int what, ...);

char *ic_readline(const char *prompt);
void ic_set_history(const char *file, long most);
void ic_history_add(const char *line);
void ic_set_prompt_marker(const char *marker, const char *continued);
void ic_set_default_completer(void (*completer)(void *env, const char *text), void *unused);
bool ic_add_completion_prim(void *env, const char *text, const char *shown, const char *help,
                            long delete_before, long delete_after);
]]

local LIST = 100 -- candidates shown at once

-- ---- plain ----

local launcher = debug.getregistry()["moth.launcher"] or {}
local read_line = launcher.read_line or function() return io.read("*l") end

local function plain()
  local function read(prompt)
    io.write(prompt)
    io.flush()
    local line = read_line()
    if not line then io.write("\n") end
    return line
  end
  return {name = "none: lines are read as they come", read = read}
end

-- ---- isocline ----

local function isocline(past)
  local found, ic = pcall(ffi.load, "isocline")
  if not found then return nil end
  local before = ""
  ic.ic_set_history(nil, -1)
  for _, line in ipairs(past) do ic.ic_history_add(line) end
  ic.ic_set_prompt_marker("", "")
  local completer = ffi.cast("void (*)(void *, const char *)", function(env, text)
    pcall(function()
      local all = before .. ffi.string(text)
      local word, list = complete.find(all)
      local signature = complete.signature(all)
      if signature then ic.ic_add_completion_prim(env, "", signature, nil, 0, 0) end
      for _, name in ipairs(list) do
        ic.ic_add_completion_prim(env, name, nil, nil, #word, 0)
      end
    end)
  end)
  ic.ic_set_default_completer(completer, nil)
  local function read(prompt, earlier)
    before = earlier
    local line = ic.ic_readline((prompt:gsub("%[", "\\["))) -- brackets are markup there
    if line == nil then return nil end
    local text = ffi.string(line)
    C.free(line)
    return text
  end
  jit.off(read)
  local function add(text) -- it has added the lines of a block one by one
    if text:find("\n", 1, true) then ic.ic_history_add(text) end
  end
  -- Ctrl-C returns an empty line there
  return {name = "isocline", read = read, add = add, keep = completer, blank_leaves = true}
end

-- ---- libedit ----

-- EL_..., H_..., CC_... of histedit.h
local PROMPT, EDITOR, SIGNAL, BIND, SETTY, ADDFN, HIST, PREPARE
  = 0, 2, 3, 4, 8, 9, 10, 16
local H_SETSIZE, H_ENTER = 1, 10
local NEWLINE, REFRESH, REDISPLAY, ERROR = 1, 4, 8, 6
local KEY = "unsigned char (*)(moth_libedit *, int)"

--- Completes the common prefix of all candidates, then lists them. Behind `f(` shows the signature.
local function tab(el, e, before)
  local info = el.el_line(e)
  local line = ffi.string(info.buffer, info.cursor - info.buffer)
  if not line:find("%S") then
    el.el_insertstr(e, "  ")
    return REFRESH
  end
  local word, list = complete.find(before .. line)
  local signature = complete.signature(before .. line)
  if #list == 0 and not signature then return ERROR end
  local common = complete.common(list)
  if not signature and (#list == 1 or #common > #word) then
    el.el_deletestr(e, #word)
    el.el_insertstr(e, common)
    return REFRESH
  end
  local more = #list - LIST
  local text = show.columns({unpack(list, 1, LIST)})
  if signature then io.write("\n", signature) end
  io.write("\n", text, more > 0 and ("\n... %d more"):format(more) or "", #list > 0 and "\n" or "")
  io.flush()
  return REDISPLAY
end

local function set_up(el, e, h, past)
  local event = ffi.new("moth_histevent")
  el.history(h, event, H_SETSIZE, ffi.cast("int", 4000))
  for _, line in ipairs(past) do el.history(h, event, H_ENTER, ffi.cast("const char *", line)) end
  el.el_set(e, HIST, ffi.cast("void *", el.history), h)
  el.el_set(e, EDITOR, "emacs")
  el.el_set(e, SIGNAL, ffi.cast("int", 1))
  el.el_source(e, nil)
  local none = ffi.cast("const char *", nil)
  -- Ctrl-C is read as a key while a line is edited, not as a signal
  el.el_set(e, SETTY, "-d", "-isig", none)
  el.el_set(e, BIND, "^I", "moth-complete", none)
  el.el_set(e, BIND, "^C", "moth-break", none)
  el.el_set(e, BIND, "^R", "em-inc-search-prev", none)
  el.el_set(e, BIND, "\\e[3~", "ed-delete-next-char", none)
  el.el_set(e, BIND, "\\e[1;5C", "em-next-word", none)
  el.el_set(e, BIND, "\\e[1;5D", "ed-prev-word", none)
  return function(line) el.history(h, event, H_ENTER, ffi.cast("const char *", line)) end
end

local function libedit(past)
  local found, el = pcall(ffi.load, "libedit.so.2")
  if not found then return nil end
  C.setlocale(0, "") -- LC_CTYPE
  local e = el.el_init("moth", io.stdin, io.stdout, io.stderr)
  if e == nil then return nil end
  local prompt, before, broken = ffi.new("char[64]"), "", false
  local callbacks = {
    prompt = ffi.cast("char *(*)(moth_libedit *)", function() return prompt end),
    tab = ffi.cast(KEY, function()
      local ok, answer = pcall(tab, el, e, before)
      return ok and answer or ERROR
    end),
    stop = ffi.cast(KEY, function()
      broken = true
      return NEWLINE
    end),
  }
  el.el_set(e, PROMPT, callbacks.prompt)
  el.el_set(e, ADDFN, "moth-complete", "completes a word", callbacks.tab)
  el.el_set(e, ADDFN, "moth-break", "drops the line", callbacks.stop)
  local add = set_up(el, e, el.history_init(), past)
  local count = ffi.new("int[1]")

  local function read(text, earlier)
    ffi.copy(prompt, text:sub(1, 63))
    before, broken = earlier, false
    el.el_resize(e)
    el.el_set(e, PREPARE, ffi.cast("int", 1)) -- else keys pressed right after the prompt are lost
    local line = el.el_gets(e, count)
    if broken then
      io.write("\n")
      return false
    elseif line == nil or count[0] <= 0 then
      io.write("\n")
      return nil
    end
    return (ffi.string(line, count[0]):gsub("\n$", ""))
  end
  jit.off(read)
  return {name = "libedit", read = read, add = add, keep = callbacks}
end

-- ---- selection ----

--- The editor for terminals, for `moth doctor`.
function editor.found()
  if pcall(ffi.load, "isocline") then return "isocline" end
  if pcall(ffi.load, "libedit.so.2") then return "libedit" end
end

--- The best installed editor.
-- @param past  lines typed at earlier prompts
function editor.open(past)
  if not (machine.is_terminal(0) and machine.is_terminal(1)) then return plain() end
  return isocline(past) or libedit(past) or plain()
end

return editor
