-- Grids of launches on a GPU for tensors of 2^31 elements and more, which are too large for specs:
-- a program calls the functions that compute grids (spec/host/geometry.cpp).

local process = require "spec.support.process"

describe("a launch for 2^33 elements", function()
  it("has a valid grid or an empty one, and covers each element", function()
    local root, program = require("moth.error").root, os.tmpname()
    local text = process.shell("command -v g++")
    if not text:find "rc=0" then return pending "there is no g++" end
    text = process.shell(("cd '%s' && g++ -std=c++17 -x c++ -O1 -Wall -Werror -Wno-unused-function "
      .. "-Wno-unknown-pragmas -Icore -Icuda -Icuda/emulator -o %s spec/host/geometry.cpp -x none "
      .. "-Wl,--unresolved-symbols=ignore-all"):format(root, program))
    assert.equal("rc=0\n", text)
    text = process.shell(program)
    os.remove(program)
    assert.equal("0 failures\nrc=0\n", text)
  end)
end)
