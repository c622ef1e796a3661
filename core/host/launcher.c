/* launcher.c -- the program build/moth: LuaJIT with Moth on its paths.
**
** Runs a script, a line of code, standard input or one of Moth's commands, and turns Ctrl-C into a
** Lua error. The first Ctrl-C cancels the running op, or stops the interpreter between two
** instructions. A second one before the first took effect ends the process. If a second one follows
** quickly after the first took effect, every later instruction of the script raises, so that
** `while true do pcall(step) end` ends too.
**
** The commands and the prompt are written in Lua (lua/moth/cli.lua, lua/moth/repl/). This file has
** only the parts that need C.
*/
#include "moth_lua.h"
#include "base/system.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <luajit.h>
#include <lualib.h>

/* From the directory of an installed program to the Lua files and the library; the build sets
** them. */
#ifndef MOTH_TO_LUA
#define MOTH_TO_LUA "../share/lua/5.1"
#endif
#ifndef MOTH_TO_LIB
#define MOTH_TO_LIB "../lib"
#endif

typedef struct places { /* paths of the program and its files */
  char program[MOTH_PATH_SIZE]; /* this program */
  char home[MOTH_PATH_SIZE];    /* its directory */
  char root[MOTH_PATH_SIZE];    /* the checkout; "": installed */
  char path[4 * MOTH_PATH_SIZE], cpath[4 * MOTH_PATH_SIZE];
} places;

/* Used by the signal handler; set before the handler is installed. */
static lua_State *main_state;
static void (*cancel_ops)(void);        /* moth_interrupt */
static int32_t (*cancel_pending)(void); /* moth_interrupt_pending */
static void (*cancel_withdraw)(void);   /* moth_interrupt_withdraw */
static volatile sig_atomic_t interrupts;
static volatile sig_atomic_t unheard; /* without a library: the last Ctrl-C has not taken effect */
static volatile sig_atomic_t insists; /* two came quickly: set until the script ends */
static double last_interrupt;         /* its time in seconds; used in the handler */

/* ---- paths ---- */

static bool exists(const char *format, const char *directory) {
  char path[MOTH_PATH_SIZE + 64];
  int n = snprintf(path, sizeof path, format, directory);
  return n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0;
}

static void cut_last_name(char *path) {
  char *slash = strrchr(path, '/');
  if (slash) *slash = '\0';
}

/* A build folder inside the checkout has the root one level up; any other names it in `.root`. */
static void find_root(places *at) {
  memcpy(at->root, at->home, sizeof at->root);
  cut_last_name(at->root);
  if (exists("%s/lua/moth/init.lua", at->root) && exists("%s/core/moth.h", at->root)) return;

  at->root[0] = '\0';
  char note[MOTH_PATH_SIZE + 8];
  snprintf(note, sizeof note, "%s/.root", at->home);
  FILE *file = fopen(note, "r");
  if (!file) return;
  if (fgets(at->root, sizeof at->root, file)) at->root[strcspn(at->root, "\n")] = '\0';
  fclose(file);
}

static bool find_places(places *at) {
  memset(at, 0, sizeof *at);
  if (!moth_program_path(at->program)) return false;
  memcpy(at->home, at->program, sizeof at->home);
  cut_last_name(at->home);
  find_root(at);
  int wrote, cwrote;
  if (at->root[0]) {
    wrote = snprintf(at->path, sizeof at->path, "%s/lua/?.lua;%s/lua/?/init.lua;", at->root,
                     at->root);
    cwrote = snprintf(at->cpath, sizeof at->cpath, "%s/" MOTH_LIBRARIES ";", at->home);
  } else {
    wrote = snprintf(at->path, sizeof at->path, "%s/%s/?.lua;%s/%s/?/init.lua;", at->home,
                     MOTH_TO_LUA, at->home, MOTH_TO_LUA);
    cwrote = snprintf(at->cpath, sizeof at->cpath, "%s/%s/" MOTH_LIBRARIES ";", at->home,
                      MOTH_TO_LIB);
  }
  return wrote > 0 && (size_t)wrote < sizeof at->path && cwrote > 0 &&
         (size_t)cwrote < sizeof at->cpath;
}

/* Puts `front` before package[field]; entries of LUA_PATH stay after it. */
static void prepend(lua_State *L, const char *field, const char *front) {
  lua_getglobal(L, "package");
  lua_pushstring(L, front);
  lua_getfield(L, -2, field);
  lua_concat(L, 2);
  lua_setfield(L, -2, field);
  lua_pop(L, 1);
}

/* Adds the folder of a script at the end of package.path. */
static void find_beside(lua_State *L, const char *script) {
  size_t n = strlen(script);
  while (n > 0 && !strchr(MOTH_SLASHES, script[n - 1])) n--;
  if (n == 0 || memchr(script, '?', n) || memchr(script, ';', n)) return;
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "path");
  lua_pushliteral(L, ";");
  lua_pushlstring(L, script, n);
  lua_pushliteral(L, "?.lua;");
  lua_pushlstring(L, script, n);
  lua_pushliteral(L, "?/init.lua");
  lua_concat(L, 6);
  lua_setfield(L, -2, "path");
  lua_pop(L, 1);
}

/* ---- Ctrl-C ---- */

/* Is the running function a C function or a function of Moth? An error in the middle of such a
** function would leave its work incomplete. */
static bool is_own(lua_State *L, lua_Debug *record) {
  int top = lua_gettop(L);
  bool own = false;
  luaL_findtable(L, LUA_REGISTRYINDEX, "_LOADED", 1);
  lua_getfield(L, -1, "moth.error");
  if (lua_istable(L, -1)) {
    lua_getfield(L, -1, "is_own");
    if (lua_getinfo(L, "f", record) && lua_pcall(L, 1, 1, 0) == 0) own = lua_toboolean(L, -1);
  }
  lua_settop(L, top);
  return own;
}

static void stop_hook(lua_State *L, lua_Debug *record);

static void watch(lua_State *L) {
  lua_sethook(L, stop_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

/* Stops user code that calls no op. If an op was stopped already, this is not needed, except when
** `insists` is set. */
static void stop_hook(lua_State *L, lua_Debug *record) {
  if (cancel_pending && !cancel_pending() && !insists) {
    lua_sethook(L, NULL, 0, 0);
    if (cancel_pending()) watch(L); /* another came in between */
    return;
  }
  if (is_own(L, record)) return; /* tried again in user code */
  if (!insists) lua_sethook(L, NULL, 0, 0);
  unheard = 0;
  if (cancel_withdraw) cancel_withdraw();
  luaL_error(L, "interrupted!");
}

#define IN_A_ROW 0.4 /* seconds between two that count as quick */

/* Does this Ctrl-C follow another one quickly? */
static bool in_a_row(void) {
  const double before = last_interrupt;
  last_interrupt = moth_seconds();
  return before > 0 && last_interrupt - before < IN_A_ROW;
}

/* Cancels the current or next op, or stops the interpreter at its next instruction, whichever is
** first. If the last Ctrl-C had no effect, as in a compiled loop without ops, ends the process. If
** a script caught the error of the last one, this one counts as the first. */
static void on_interrupt(int number) {
  if (cancel_pending ? cancel_pending() : unheard) {
    moth_interrupts_to(SIG_DFL, true);
    raise(number);
    return;
  }
  moth_interrupts_to(on_interrupt, true); /* some systems reset it */
  interrupts = unheard = 1;
  if (in_a_row()) insists = 1;
  if (cancel_ops) cancel_ops();
  watch(main_state);
}

/* Opens libmoth.so now, so that the handler has the addresses. The Lua side's ffi.load of the same
** file returns the same library. */
static void find_cancel(lua_State *L) {
  const char *file = getenv("MOTH_LIB");
  int top = lua_gettop(L);
  if (!file || !*file) {
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "searchpath");
    lua_pushliteral(L, "libmoth");
    lua_getfield(L, -3, "cpath");
    lua_call(L, 2, 1);
    file = lua_tostring(L, -1);
  }
  void *library = file ? moth_library_open(file) : NULL;
  if (library) { /* memcpy: C has no cast from object to function */
    void *found = moth_library_symbol(library, "moth_interrupt");
    memcpy(&cancel_ops, &found, sizeof cancel_ops);
    found = moth_library_symbol(library, "moth_interrupt_pending");
    memcpy(&cancel_pending, &found, sizeof cancel_pending);
    found = moth_library_symbol(library, "moth_interrupt_withdraw");
    memcpy(&cancel_withdraw, &found, sizeof cancel_withdraw);
  }
  lua_settop(L, top);
}

/* ---- running ---- */

/* Calls Moth, if it is loaded, to extend the message at index 1 (lua/moth/error/hint.lua). A script
** that uses `moth` without `require` has not loaded it. */
static void add_hint(lua_State *L) {
  const char *absent = strstr(lua_tostring(L, 1), "global 'moth' (a nil value)");
  if (absent) {
    lua_pushfstring(L, "%s (write first: local moth = require \"moth\")", lua_tostring(L, 1));
    lua_replace(L, 1);
    return;
  }
  lua_getfield(L, LUA_REGISTRYINDEX, "moth");
  if (lua_istable(L, -1)) lua_getfield(L, -1, "hint");
  if (lua_isfunction(L, -1)) {
    lua_pushvalue(L, 1);
    if (lua_pcall(L, 1, 1, 0) == 0 && lua_isstring(L, -1)) lua_replace(L, 1);
  }
  lua_settop(L, 1);
}

/* Appends the line of a frame to the text on top of the stack, in luaL_traceback's format. */
static void add_frame(lua_State *L, const lua_Debug *frame) {
  lua_pushfstring(L, "\n\t%s:", frame->short_src);
  if (frame->currentline > 0) lua_pushfstring(L, "%d:", frame->currentline);
  else lua_pushliteral(L, "");
  if (*frame->namewhat) lua_pushfstring(L, " in function '%s'", frame->name);
  else if (*frame->what == 'm') lua_pushliteral(L, " in main chunk");
  else lua_pushfstring(L, " in function <%s:%d>", frame->short_src, frame->linedefined);
  lua_concat(L, 4);
}

/* Appends a traceback to the message on top of the stack, without C functions and Moth's own files.
** MOTH_TRACEBACK=full shows all. */
static void add_traceback(lua_State *L) {
  enum { MAX_LINES = 22, DEPTH = 300 }; /* lines, levels */
  const char *wanted = getenv("MOTH_TRACEBACK");
  if (wanted && strcmp(wanted, "full") == 0) {
    luaL_traceback(L, L, lua_tostring(L, -1), 1);
    return;
  }
  lua_Debug frame;
  int shown = 0;
  for (int level = 1; level < DEPTH && lua_getstack(L, level, &frame); level++) {
    lua_getinfo(L, "Snl", &frame);
    if (*frame.what == 'C' || is_own(L, &frame)) continue;
    if (shown++ == 0) {
      lua_pushliteral(L, "\nstack traceback:");
      lua_concat(L, 2);
    }
    if (shown > MAX_LINES) {
      lua_pushliteral(L, "\n\t...");
      lua_concat(L, 2);
      return;
    }
    add_frame(L, &frame);
  }
}

static int with_traceback(lua_State *L) {
  if (!lua_isstring(L, 1)) { /* a user's error value */
    if (lua_isnoneornil(L, 1) || !luaL_callmeta(L, 1, "__tostring") || !lua_isstring(L, -1)) {
      lua_pushfstring(L, "(the error is a %s value)", luaL_typename(L, 1));
    }
    lua_replace(L, 1);
    lua_settop(L, 1);
  } else {
    add_hint(L);
  }
  add_traceback(L);
  return 1;
}

/* Calls the function below its n arguments. Ctrl-C stops it, and errors become text. */
static int guarded(lua_State *L, int n) {
  int base = lua_gettop(L) - n;
  lua_pushcfunction(L, with_traceback);
  lua_insert(L, base);
  unheard = insists = 0;
  last_interrupt = 0;
  moth_interrupts_to(on_interrupt, true);
  int status = lua_pcall(L, n, 0, base);
  moth_interrupts_to(SIG_DFL, true);
  insists = 0;
  lua_sethook(L, NULL, 0, 0);
  if (cancel_pending && cancel_pending()) cancel_withdraw(); /* Ctrl-C came too late */
  lua_remove(L, base);
  return status;
}

static volatile sig_atomic_t reads_line; /* reading a line, which Ctrl-C ends with an error */

static void note_interrupt(int number) {
  (void)number;
  interrupts = 1;
  moth_interrupts_to(note_interrupt, !reads_line);
}

/* For the prompt: moth_guarded(f, ...) runs f as a script runs. Returns true or false, message.
** After it Ctrl-C is only recorded, so that one too many does not end the prompt. */
static int guarded_call(lua_State *L) {
  luaL_checkany(L, 1);
  interrupts = 0;
  int status = guarded(L, lua_gettop(L) - 1);
  moth_interrupts_to(note_interrupt, true);
  lua_pushboolean(L, status == 0);
  lua_insert(L, 1);
  return status == 0 ? 1 : 2;
}

/* For the prompt: reads a line of standard input. Returns nothing at its end, false after Ctrl-C.
** The handler does not restart the read, so that it ends with an error. */
static int read_line(lua_State *L) {
  luaL_Buffer line;
  int c = 0;
  luaL_buffinit(L, &line);
  interrupts = 0;
  reads_line = 1;
  moth_interrupts_to(note_interrupt, false);
  bool any = false;
  while (!interrupts && (c = getc(stdin)) != EOF) {
    any = true;
    if (c == '\n') break;
    luaL_addchar(&line, (char)c);
  }
  reads_line = 0;
  moth_interrupts_to(note_interrupt, true);
  luaL_pushresult(&line);
  if (interrupts) {
    clearerr(stdin);
    lua_pushboolean(L, 0);
  } else if (!any) {
    lua_pushnil(L);
  }
  interrupts = 0;
  return 1;
}

static int report(lua_State *L, int status) {
  if (status == 0) return EXIT_SUCCESS;
  const char *text = lua_tostring(L, -1);
  fflush(stdout);
  fprintf(stderr, "%s\n", text ? text : "moth: not enough memory");
  /* not if the script caught the interrupt and this is another error */
  return interrupts && text && strstr(text, "interrupted") ? 128 + SIGINT : EXIT_FAILURE;
}

/* Sets the global `arg` as the stand-alone interpreter does: arg[0] is argv[script]. Pushes the
** later arguments and returns their number, or -1 if Lua's stack cannot hold them. */
static int push_arguments(lua_State *L, int argc, char **argv, int script) {
  lua_createtable(L, argc, 1);
  for (int i = 0; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i - script);
  }
  lua_setglobal(L, "arg");
  int n = argc - script - 1;
  if (n <= 0) return 0;
  if (!lua_checkstack(L, n + 2)) return -1;
  for (int i = script + 1; i < argc; i++) lua_pushstring(L, argv[i]);
  return n;
}

/* Calls the function below the n arguments that push_arguments pushed. */
static int run_with(lua_State *L, int n) {
  if (n >= 0) return report(L, guarded(L, n));
  fprintf(stderr, "moth: too many arguments\n");
  return EXIT_FAILURE;
}

/* Extends the syntax error on the stack if the code is Python (lua/moth/repl/python.lua).
** Either the path of the file or its text is known. */
static void explain_syntax(lua_State *L, const char *path, const char *text) {
  const int top = lua_gettop(L);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "moth.repl.python");
  if (lua_pcall(L, 1, 1, 0) == 0 && lua_istable(L, -1)) {
    lua_getfield(L, -1, "located");
    lua_pushvalue(L, top);
    lua_pushstring(L, path);
    lua_pushstring(L, text);
    if (lua_pcall(L, 3, 1, 0) == 0 && lua_isstring(L, -1)) lua_replace(L, top);
  }
  lua_settop(L, top);
}

/* Runs the chunk on the stack, if it was loaded, with the arguments after argv[script]. */
static int run_chunk(lua_State *L, int loaded, int argc, char **argv, int script) {
  if (loaded != 0) return report(L, loaded);
  return run_with(L, push_arguments(L, argc, argv, script));
}

/* Runs require(module)(argv[from], ...), one of Moth's commands. */
static int run_module(lua_State *L, const char *module, int argc, char **argv, int script) {
  lua_getglobal(L, "require");
  lua_pushstring(L, module);
  int status = guarded(L, 1);
  if (status != 0) return report(L, status);
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "loaded");
  lua_getfield(L, -1, module);
  lua_getfield(L, -1, "main");
  return run_with(L, push_arguments(L, argc, argv, script));
}

/* Runs the lines of code after each -e. Arguments of the script follow the last one. */
static int run_lines(lua_State *L, int argc, char **argv) {
  lua_getglobal(L, "require");
  lua_pushliteral(L, "moth.repl.preload");
  int status = guarded(L, 1);
  if (status != 0) return report(L, status);
  int last = 2;
  while (last + 1 < argc && strcmp(argv[last + 1], "-e") == 0) last += 2;
  if (last >= argc) {
    fprintf(stderr, "moth: -e needs a line of code behind it\n");
    return EXIT_FAILURE;
  }
  for (int at = 2; at <= last; at += 2) {
    int loaded = luaL_loadbuffer(L, argv[at], strlen(argv[at]), "=(command line)");
    if (loaded == LUA_ERRSYNTAX) explain_syntax(L, NULL, argv[at]);
    status = run_chunk(L, loaded, argc, argv, last);
    if (status != 0) return status;
  }
  return status;
}

static bool is_command(const char *word) {
  static const char *const commands[] = {"test", "bench",  "docs",    "doctor", "help",     "run",
                                         "-h",   "--help", "version", "-v",     "--version",
                                         "jupyter"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    if (strcmp(word, commands[i]) == 0) return true;
  }
  return false;
}

static int run(lua_State *L, int argc, char **argv) {
  const char *first = argc > 1 ? argv[1] : NULL;
  if (!first && isatty(STDIN_FILENO)) return run_module(L, "moth.repl", argc, argv, 0);
  if (!first || strcmp(first, "-") == 0) {
    return run_chunk(L, luaL_loadfile(L, NULL), argc, argv, first ? 1 : 0);
  }
  if (strcmp(first, "-e") == 0) return run_lines(L, argc, argv);
  if (strcmp(first, "-i") == 0 && argc > 2) { /* the prompt runs the file: see repl/init.lua */
    find_beside(L, argv[2]);
    return run_module(L, "moth.repl", argc, argv, 2);
  }
  if (is_command(first)) return run_module(L, "moth.cli", argc, argv, 0);
  if (first[0] == '-') {
    fprintf(stderr, "moth: unknown option '%s' (moth --help lists what there is)\n", first);
    return EXIT_FAILURE;
  }
  if (access(first, R_OK) != 0) {
    fprintf(stderr, "moth: cannot open '%s': %s%s\n", first, strerror(errno),
            strpbrk(first, "./") ? "" : " (moth --help lists the commands)");
    return EXIT_FAILURE;
  }
  find_beside(L, first);
  const int loaded = luaL_loadfile(L, first);
  if (loaded == LUA_ERRSYNTAX) explain_syntax(L, first, NULL);
  return run_chunk(L, loaded, argc, argv, 1);
}

/* ---- start ---- */

/* Under AddressSanitizer each Lua object is a separate block, so that overruns of buffers that Lua
** passes to the core are detected. */
#if defined(__SANITIZE_ADDRESS__)
static void *allocate(void *unused, void *block, size_t old_size, size_t new_size) {
  (void)unused;
  (void)old_size;
  if (new_size > 0) return realloc(block, new_size);
  free(block);
  return NULL;
}

static lua_State *new_state(void) { return lua_newstate(allocate, NULL); }
#else
static lua_State *new_state(void) { return luaL_newstate(); }
#endif

/* __index of _G: without it True, False and None would be nil without an error.
** lua/moth/base/strict.lua does the same. */
static int undefined_global(lua_State *L) {
  static const char *const words[][2] = {
      {"True", "true"}, {"False", "false"}, {"None", "nil, or moth.none in a list of arguments"}};
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(name, words[i][0]) == 0)
      return luaL_error(L, "'%s' is no word of Lua; write %s", name, words[i][1]);
  return 0;
}

static void watch_globals(lua_State *L) {
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, undefined_global);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, LUA_GLOBALSINDEX);
}

static int prepare(lua_State *L) {
  const places *at = lua_touserdata(L, 1);
  luaL_openlibs(L);
  const char *jit = getenv("MOTH_JIT");
  if (jit && strcmp(jit, "off") == 0) luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
  prepend(L, "path", at->path);
  prepend(L, "cpath", at->cpath);
  watch_globals(L);

  /* paths for Moth's commands */
  lua_createtable(L, 0, 4);
  lua_pushstring(L, at->program);
  lua_setfield(L, -2, "program");
  if (at->root[0]) {
    lua_pushstring(L, at->root);
    lua_setfield(L, -2, "root");
  }
  lua_pushliteral(L, MOTH_VERSION);
  lua_setfield(L, -2, "version");
  lua_pushcfunction(L, guarded_call);
  lua_setfield(L, -2, "guarded");
  lua_pushcfunction(L, read_line);
  lua_setfield(L, -2, "read_line");
  lua_setfield(L, LUA_REGISTRYINDEX, "moth.launcher");
  find_cancel(L);
  return 0;
}

/* Calls Moth's function for the end of a script, if there is one: moth.distributed ends the other
** processes if this one has failed, else leaves MPI. */
static int finish(lua_State *L, int status) {
  lua_getfield(L, LUA_REGISTRYINDEX, "moth");
  if (lua_istable(L, -1)) lua_getfield(L, -1, "finish");
  if (!lua_isfunction(L, -1)) return status;
  lua_pushboolean(L, status != EXIT_SUCCESS);
  const int failed = report(L, guarded(L, 1));
  return failed ? failed : status;
}

int main(int argc, char **argv) {
  static places at;
  if (!find_places(&at)) {
    fprintf(stderr, "moth: cannot tell where this program lies (/proc/self/exe)\n");
    return EXIT_FAILURE;
  }
  lua_State *L = new_state();
  if (!L) {
    fprintf(stderr, "moth: not enough memory\n");
    return EXIT_FAILURE;
  }
  main_state = L;
  int status = report(L, lua_cpcall(L, prepare, &at));
  if (status == EXIT_SUCCESS) status = finish(L, run(L, argc, argv));
  lua_close(L);
  if (fflush(stdout) == 0 && !ferror(stdout)) return status;
  fprintf(stderr, "moth: not all that was printed could be written; is the disk full?\n");
  return EXIT_FAILURE;
}
