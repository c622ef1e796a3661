# Writes text of sources as a C character array. Numbers rather than a string literal: C promises
# literals of 4095 characters only.
#
#   cmake -DFROM=core/moth.h -DTO=moth_header.inc -DNAME=moth_header_text -P core/embed.cmake
#
# FROM may be several files, separated by |, whose texts are joined. Of a file with the markers
# "cdef begins" and "cdef ends" the text is what ffi.cdef reads: the lines between the two without
# comments, and "@NAME" for a marker "cdef continues: NAME". Of other files it is all but the lines
# that include.

set(BEGIN "/* ---- cdef begins ---- */")
set(END "/* ---- cdef ends ---- */")
set(CONTINUES "/[*] ---- cdef continues: ([a-z]+) ---- [*]/")

string(REPLACE "|" ";" files "${FROM}")
set(text "")
foreach(file IN LISTS files)
  file(READ "${file}" part)
  string(FIND "${part}" "${BEGIN}" first)
  string(FIND "${part}" "${END}" last)
  if(first LESS 0)
    string(REGEX REPLACE "#include [^\n]*\n" "" part "${part}")
  else()
    math(EXPR length "${last} - ${first}")
    string(SUBSTRING "${part}" ${first} ${length} part)
    string(REGEX REPLACE "${CONTINUES}" "@\\1" part "${part}")
    string(REGEX REPLACE "/[*]([^*]|[*]+[^*/])*[*]+/" "" part "${part}")
    string(REGEX REPLACE "[ \n]*\n" "\n" part "${part}")
  endif()
  string(APPEND text "${part}")
endforeach()

string(HEX "${text}" bytes)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REPEAT "0x..," 20 row)
string(REGEX REPLACE "(${row})" "  \\1\n" bytes "${bytes}")
file(WRITE "${TO}" "/* Made by embed.cmake. */
static const char ${NAME}[] = {
${bytes}  0};
")
