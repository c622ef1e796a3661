# Writes text of sources as a C character array. Numbers rather than a string literal: C promises
# literals of 4095 characters only.
#
#   cmake -DFROM=core/moth.h -DTO=moth_header.inc -DNAME=moth_header_text -P core/embed.cmake
#
# Of moth.h that is its public part, the lines between two markers. FROM may be several files,
# separated by |: then it is all of them, one behind the other, without the lines that include.

set(BEGIN "/* ---- cdef begins ---- */\n")
set(END "/* ---- cdef ends ---- */")

if(FROM MATCHES "[|]")
  string(REPLACE "|" ";" files "${FROM}")
  set(text "")
  foreach(file IN LISTS files)
    file(READ "${file}" part)
    string(REGEX REPLACE "#include [^\n]*\n" "" part "${part}")
    string(APPEND text "${part}")
  endforeach()
else()
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
endif()

string(HEX "${text}" bytes)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REPEAT "0x..," 20 row)
string(REGEX REPLACE "(${row})" "  \\1\n" bytes "${bytes}")
file(WRITE "${TO}" "/* Made by embed.cmake. */
static const char ${NAME}[] = {
${bytes}  0};
")
