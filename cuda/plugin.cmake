# plugin.cmake -- libmoth_cuda.so, twice: for GPUs where a CUDA toolkit is found, and by a plain C++
# compiler on top of cuda/emulator/, which the specs use on machines without a card.
#
#   MOTH_CUDA=AUTO    the plugin is built if there is a toolkit and a GPU to run it (the default)
#   MOTH_CUDA=ON      it must be built; a toolkit is enough
#   MOTH_CUDA=OFF     it is not
#   CMAKE_CUDA_ARCHITECTURES    all-major by default; CUDAARCHS in the environment says it as well

set(MOTH_CUDA AUTO CACHE STRING "AUTO, ON or OFF: build the plugin for NVIDIA GPUs")
file(GLOB MOTH_CUDA_SOURCES CONFIGURE_DEPENDS cuda/*/*.cu)
file(GLOB MOTH_CUDA_HEADERS CONFIGURE_DEPENDS cuda/host/*.h cuda/*/*.cuh)

set(MOTH_BUILD_CUDA OFF)
if(MOTH_CUDA STREQUAL "ON" OR (MOTH_CUDA STREQUAL "AUTO" AND EXISTS /dev/nvidiactl))
  include(CheckLanguage)
  find_program(MOTH_NVCC nvcc HINTS ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(MOTH_NVCC AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} "${MOTH_NVCC}")
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE) # it may have come since
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(MOTH_BUILD_CUDA ON)
  elseif(MOTH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MOTH_CUDA=ON, but no CUDA compiler that works was found: nvcc of a CUDA "
      "toolkit, on PATH, in CUDACXX or below CUDA_PATH, and a C++ compiler (g++) for it")
  endif()
endif()

# The text that kernels begin with that NVRTC compiles at run time (fused.cu): headers of the plugin's
# own kernels, so that both compute the same.
set(MOTH_MADE cuda/host/preamble.cuh core/kernel/math/exp.h core/tensor/half.h cuda/lib/numbers.cuh cuda/lib/walk.cuh
  core/kernel/math/special_real.h core/kernel/math/special_bessel.h
  core/kernel/math/special_rare.h core/kernel/math/special_derivatives.h
  cuda/lib/functions.cuh cuda/lib/forms.cuh cuda/lib/program.cuh)
list(TRANSFORM MOTH_MADE PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
string(REPLACE ";" "|" MOTH_MADE_FROM "${MOTH_MADE}")
add_custom_command(
  OUTPUT "${MOTH_GENERATED}/moth_made.inc"
  COMMAND "${CMAKE_COMMAND}" "-DFROM=${MOTH_MADE_FROM}" -DTO=${MOTH_GENERATED}/moth_made.inc
          -DNAME=moth_made_text -P ${CMAKE_CURRENT_SOURCE_DIR}/core/embed.cmake
  DEPENDS ${MOTH_MADE} core/embed.cmake
  COMMENT "Embedding what kernels made at run time begin with"
  VERBATIM)

# What both have: no symbol but moth_backend_init, whatever the C++ library brings.
function(moth_plugin target)
  target_include_directories(${target} PRIVATE core cuda "${MOTH_GENERATED}")
  target_sources(${target} PRIVATE "${MOTH_GENERATED}/moth_made.inc")
  target_link_options(${target} PRIVATE -Wl,-z,start-stop-visibility=hidden
    "-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cuda/exports.map")
  set_target_properties(${target} PROPERTIES OUTPUT_NAME moth_cuda CXX_STANDARD 17
    CXX_VISIBILITY_PRESET hidden)
endfunction()

if(MOTH_BUILD_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES all-major)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  add_library(moth_cuda MODULE ${MOTH_CUDA_SOURCES})
  moth_plugin(moth_cuda)
  # NVIDIA's other libraries are opened by their names (library.cu): those of this toolkit are found
  # where the loader has not been told of it, too.
  set_target_properties(moth_cuda PROPERTIES CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static
    CUDA_VISIBILITY_PRESET hidden INSTALL_RPATH "${CUDAToolkit_LIBRARY_DIR}"
    BUILD_WITH_INSTALL_RPATH ON)
  # 186: an unsigned number is never below 0, 177: a helper that not every file uses.
  # Kernels lie compressed, and are unpacked file by file where the first of a file is launched.
  target_compile_options(moth_cuda PRIVATE --expt-relaxed-constexpr -diag-suppress=186,177
    -Xfatbin=-compress-all)
  # Random numbers, ranges, and which boxes overlap too much, are the same bits everywhere:
  # multiply and add stay apart there.
  set_source_files_properties(cuda/op/random.cu cuda/op/create.cu cuda/op/detect.cu
    PROPERTIES COMPILE_OPTIONS -fmad=false)
  target_link_libraries(moth_cuda PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)
  install(TARGETS moth_cuda LIBRARY DESTINATION "${MOTH_LIBDIR}")
endif()

# cmake --build build --target moth_cuda_emulated
include(CheckLanguage)
if(NOT CMAKE_CXX_COMPILER)
  unset(CMAKE_CXX_COMPILER CACHE) # it may have come since
endif()
check_language(CXX)
if(CMAKE_CXX_COMPILER AND NOT MOTH_BUILD_CUDA) # a source has one language a build
  enable_language(CXX)
  set(MOTH_STANDS cuda/emulator/counts.cpp cuda/emulator/emulated.cpp cuda/emulator/jit.cpp
    cuda/emulator/memory.cpp cuda/emulator/ptx.cpp cuda/emulator/streams.cpp)
  add_library(moth_cuda_emulated MODULE EXCLUDE_FROM_ALL ${MOTH_CUDA_SOURCES} ${MOTH_STANDS})
  moth_plugin(moth_cuda_emulated)
  set_source_files_properties(${MOTH_CUDA_SOURCES} PROPERTIES LANGUAGE CXX)
  set_target_properties(moth_cuda_emulated PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/emulated")
  target_include_directories(moth_cuda_emulated PRIVATE cuda/emulator)
  target_compile_options(moth_cuda_emulated PRIVATE -x c++ -O1 -Wall -Wextra -Wno-unknown-pragmas
    -Wno-type-limits -Wno-unused-function -fno-strict-aliasing -ffp-contract=off)
  # A GPU faults where 16 bytes that are moved at once do not lie at a multiple of 16.
  if(MOTH_SANITIZE MATCHES "address") # kernels' shared memory and the plugin's own are seen, too
    target_compile_options(moth_cuda_emulated PRIVATE -fsanitize=${MOTH_SANITIZE} -g1
      -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(moth_cuda_emulated PRIVATE -fsanitize=${MOTH_SANITIZE})
  else()
    target_compile_options(moth_cuda_emulated PRIVATE -fsanitize=alignment
      -fsanitize-undefined-trap-on-error)
  endif()
  target_link_libraries(moth_cuda_emulated PRIVATE Threads::Threads)
  if(MOTH_RACECHECK)
    # The compiler calls __tsan_read4(address) and its variants before each access of a kernel; whom it
    # calls is watch.cpp, so nothing is linked for it. Copies of memory are calls too.
    set_source_files_properties(${MOTH_STANDS} cuda/emulator/watch.cpp
      PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
    target_sources(moth_cuda_emulated PRIVATE cuda/emulator/watch.cpp)
    target_compile_definitions(moth_cuda_emulated PRIVATE MOTH_WATCHED)
    target_compile_options(moth_cuda_emulated PRIVATE -g1 -fsanitize=thread
      --param=tsan-instrument-func-entry-exit=0 --param=tsan-distinguish-volatile=1
      -fno-builtin-memset -fno-builtin-memmove)
    target_link_options(moth_cuda_emulated PRIVATE -Wl,--wrap=memcpy,--wrap=memset,--wrap=memmove)
  endif()
endif()
