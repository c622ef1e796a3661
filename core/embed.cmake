# Writes the public part of moth.h, the lines between its two markers, as a C character array.
# Numbers rather than a string literal: C promises literals of 4095 characters only.
#
#   cmake -DFROM=core/moth.h -DTO=moth_header.inc -P core/embed.cmake

set(BEGIN "/* ---- cdef begins ---- */\n")
set(END "/* ---- cdef ends ---- */")

file(READ "${FROM}" text)
string(FIND "${text}" "${BEGIN}" first)
string(FIND "${text}" "${END}" last)
if(first LESS 0 OR last LESS first)
  message(FATAL_ERROR "${FROM} lacks the marker comments 'cdef begins' and 'cdef ends'")
endif()
string(LENGTH "${BEGIN}" skip)
math(EXPR first "${first} + ${skip}")
math(EXPR length "${last} - ${first}")
string(SUBSTRING "${text}" ${first} ${length} text)

string(HEX "${text}" bytes)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REPEAT "0x..," 20 row)
string(REGEX REPLACE "(${row})" "  \\1\n" bytes "${bytes}")
file(WRITE "${TO}" "/* Made from moth.h by embed.cmake. */
static const char moth_header_text[] = {
${bytes}  0};
")
