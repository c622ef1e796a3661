# plugin.cmake -- builds libmoth_cuda.so: for GPUs if a CUDA toolkit is found, else for the GPU
# emulator (cuda/emulator/) by a C++ compiler, for specs on machines without a GPU.
#
#   MOTH_CUDA=AUTO    builds the plugin if there are a toolkit and a GPU (the default)
#   MOTH_CUDA=ON      builds the plugin; needs only a toolkit
#   MOTH_CUDA=OFF     does not build it
#   CMAKE_CUDA_ARCHITECTURES    all-major by default; the variable CUDAARCHS sets it, too

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
    unset(CMAKE_CUDA_COMPILER CACHE) # search again
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(MOTH_BUILD_CUDA ON)
  elseif(MOTH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MOTH_CUDA=ON, but no CUDA compiler that works was found: nvcc of a CUDA "
      "toolkit, on PATH, in CUDACXX or below CUDA_PATH, and a C++ compiler (g++) for it")
  endif()
endif()

# The beginning of the source of kernels that NVRTC compiles at run time (fused.cu): headers of the
# plugin's own kernels, so that both compute the same.
set(MOTH_JIT_HEADERS cuda/host/preamble.cuh core/kernel/math/exp.h core/tensor/half.h
  cuda/lib/dtypes.cuh cuda/lib/strided.cuh
  core/kernel/math/special_real.h core/kernel/math/special_bessel.h
  core/kernel/math/special_rare.h core/kernel/math/special_derivatives.h
  cuda/lib/functions.cuh cuda/lib/expressions.cuh cuda/lib/fused_steps.cuh)
list(TRANSFORM MOTH_JIT_HEADERS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
string(REPLACE ";" "|" MOTH_JIT_HEADER_LIST "${MOTH_JIT_HEADERS}")
add_custom_command(
  OUTPUT "${MOTH_GENERATED}/moth_jit_preamble.inc"
  COMMAND "${CMAKE_COMMAND}" "-DFROM=${MOTH_JIT_HEADER_LIST}"
          -DTO=${MOTH_GENERATED}/moth_jit_preamble.inc -DNAME=moth_jit_preamble
          -P ${CMAKE_CURRENT_SOURCE_DIR}/core/embed.cmake
  DEPENDS ${MOTH_JIT_HEADERS} core/embed.cmake
  COMMENT "Embedding the preamble of kernels compiled at run time"
  VERBATIM)

# Settings of both. Only moth_backend_init is exported, no symbol of the C++ library.
function(moth_plugin target)
  target_include_directories(${target} PRIVATE core cuda "${MOTH_GENERATED}")
  target_sources(${target} PRIVATE "${MOTH_GENERATED}/moth_jit_preamble.inc")
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
  # NVIDIA's other libraries are opened by name (library.cu): the rpath finds those of this toolkit.
  set_target_properties(moth_cuda PROPERTIES CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static
    CUDA_VISIBILITY_PRESET hidden INSTALL_RPATH "${CUDAToolkit_LIBRARY_DIR}"
    BUILD_WITH_INSTALL_RPATH ON)
  # 186: an unsigned number is never below 0, 177: a helper that not every file uses.
  # Kernels are stored compressed; a file's kernels are unpacked when the first one is launched.
  target_compile_options(moth_cuda PRIVATE --expt-relaxed-constexpr -diag-suppress=186,177
    -Xfatbin=-compress-all)
  # Random numbers, ranges and the overlap of boxes are the same bits on all devices: no fused
  # multiply-add.
  set_source_files_properties(cuda/op/random.cu cuda/op/create.cu cuda/op/detect.cu
    PROPERTIES COMPILE_OPTIONS -fmad=false)
  target_link_libraries(moth_cuda PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)
  install(TARGETS moth_cuda LIBRARY DESTINATION "${MOTH_LIBDIR}")
endif()

# cmake --build build --target moth_cuda_emulated
include(CheckLanguage)
if(NOT CMAKE_CXX_COMPILER)
  unset(CMAKE_CXX_COMPILER CACHE) # search again
endif()
check_language(CXX)
if(CMAKE_CXX_COMPILER AND NOT MOTH_BUILD_CUDA) # a source file has one language in a build
  enable_language(CXX)
  set(MOTH_EMULATOR_SOURCES cuda/emulator/counts.cpp cuda/emulator/emulated.cpp
    cuda/emulator/jit.cpp cuda/emulator/memory.cpp cuda/emulator/ptx.cpp cuda/emulator/streams.cpp)
  add_library(moth_cuda_emulated MODULE EXCLUDE_FROM_ALL ${MOTH_CUDA_SOURCES}
    ${MOTH_EMULATOR_SOURCES})
  moth_plugin(moth_cuda_emulated)
  set_source_files_properties(${MOTH_CUDA_SOURCES} PROPERTIES LANGUAGE CXX)
  set_target_properties(moth_cuda_emulated PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/emulated")
  target_include_directories(moth_cuda_emulated PRIVATE cuda/emulator)
  target_compile_options(moth_cuda_emulated PRIVATE -x c++ -O1 -Wall -Wextra -Wno-unknown-pragmas
    -Wno-type-limits -Wno-unused-function -fno-strict-aliasing -ffp-contract=off)
  # A GPU faults if a 16-byte access is not aligned to 16.
  if(MOTH_SANITIZE MATCHES "address") # also checks shared memory and host memory
    target_compile_options(moth_cuda_emulated PRIVATE -fsanitize=${MOTH_SANITIZE} -g1
      -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(moth_cuda_emulated PRIVATE -fsanitize=${MOTH_SANITIZE})
  else()
    target_compile_options(moth_cuda_emulated PRIVATE -fsanitize=alignment
      -fsanitize-undefined-trap-on-error)
  endif()
  target_link_libraries(moth_cuda_emulated PRIVATE Threads::Threads)
  # NCCL of the emulator: MOTH_NCCL=build/emulated/libmoth_nccl.so
  add_library(moth_nccl_emulated MODULE EXCLUDE_FROM_ALL cuda/emulator/nccl.cpp)
  target_include_directories(moth_nccl_emulated PRIVATE core)
  set_target_properties(moth_nccl_emulated PROPERTIES OUTPUT_NAME moth_nccl CXX_STANDARD 17
    CXX_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/emulated")
  target_compile_options(moth_nccl_emulated PRIVATE -O1 -Wall -Wextra -fno-strict-aliasing)
  add_dependencies(moth_cuda_emulated moth_nccl_emulated)
  if(MOTH_RACECHECK)
    # The compiler calls __tsan_read4(address) and its variants before each access of a kernel.
    # watch.cpp defines them, so no library is linked. memcpy and similar calls are wrapped.
    set_source_files_properties(${MOTH_EMULATOR_SOURCES} cuda/emulator/watch.cpp
      PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
    target_sources(moth_cuda_emulated PRIVATE cuda/emulator/watch.cpp)
    target_compile_definitions(moth_cuda_emulated PRIVATE MOTH_WATCHED)
    target_compile_options(moth_cuda_emulated PRIVATE -g1 -fsanitize=thread
      --param=tsan-instrument-func-entry-exit=0 --param=tsan-distinguish-volatile=1
      -fno-builtin-memset -fno-builtin-memmove)
    target_link_options(moth_cuda_emulated PRIVATE -Wl,--wrap=memcpy,--wrap=memset,--wrap=memmove)
  endif()
endif()
