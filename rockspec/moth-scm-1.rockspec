-- The LuaRocks package: `luarocks make rockspec/moth-scm-1.rockspec` from the root of a checkout.
rockspec_format = "3.0"
package = "moth"
version = "scm-1"
source = {
  url = "git+file://.", -- built from a checkout
}
description = {
  summary = "Tensors, gradients and neural networks in C11 and LuaJIT",
  detailed = [[
    A deep-learning framework of a few megabytes: a tensor and autograd engine in C11 behind a
    small C ABI, LuaJIT in front of it, and PyTorch's names. Needs LuaJIT 2.1.]],
  license = "MIT",
}
dependencies = {
  "lua == 5.1",
}
test = {
  type = "busted",
}
build = {
  type = "cmake",
  variables = {
    CMAKE_BUILD_TYPE = "Release",
    CMAKE_INSTALL_PREFIX = "$(PREFIX)",
    MOTH_LIBDIR = "$(LIBDIR)",
    MOTH_LUADIR = "$(LUADIR)",
    MOTH_ROCK = "ON",
    MOTH_WERROR = "OFF",
  },
}
