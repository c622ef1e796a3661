-- `moth jupyter`: the folder of the kernel's description on each system, the description, and wrong
-- words.

local files = require "spec.support.files"
local json = require "moth.json"
local jupyter = require "moth.jupyter"
local fails = require("spec.support.refusals").fails

local getenv, os_name, print_line = os.getenv, jit.os, print
local kernel = package.loaded["moth.jupyter.kernel"]
local environment

before_each(function()
  files.setup()
  environment = {}
  rawset(os, "getenv", function(name) return environment[name] end)
end)
after_each(function()
  rawset(os, "getenv", getenv)
  rawset(jit, "os", os_name)
  package.loaded["moth.jupyter.kernel"] = kernel
  _G.print = print_line
  files.teardown()
end)

describe("moth jupyter install", function()
  it("writes a description of the kernel into the user's folder of Jupyter", function()
    local home = files.path "home"
    for _, row in ipairs {
      {"Linux", {JUPYTER_DATA_DIR = files.path "own", XDG_DATA_HOME = "/no", HOME = "/no"},
       "own/kernels"},
      {"Linux", {JUPYTER_DATA_DIR = "", XDG_DATA_HOME = files.path "data", HOME = "/no"},
       "data/jupyter/kernels"},
      {"Linux", {XDG_DATA_HOME = "", HOME = home}, "home/.local/share/jupyter/kernels"},
      {"Linux", {HOME = home}, "home/.local/share/jupyter/kernels"},
      {"OSX", {HOME = home, XDG_DATA_HOME = "/no"}, "home/Library/Jupyter/kernels"},
      {"OSX", {JUPYTER_DATA_DIR = files.path "mine", HOME = "/no"}, "mine/kernels"},
      {"Windows", {APPDATA = files.path "roaming", HOME = "/no"}, "roaming/jupyter/kernels"},
    } do
      rawset(jit, "os", row[1])
      environment = row[2]
      local path = jupyter.install "/bin/moth"
      rawset(jit, "os", os_name)
      assert.equal(files.path(row[3] .. "/moth/kernel.json"), path)
      local text = files.read(path)
      assert.same({argv = {"/bin/moth", "jupyter", "run", "{connection_file}"},
        display_name = "Moth (LuaJIT)", language = "lua", interrupt_mode = "signal"},
        json.decode(text))
      assert.equal("\n", text:sub(-1))
    end
  end)

  it("says what is missing", function()
    for name, variables in pairs {Linux = {HOME = ""}, OSX = {}, Windows = {}} do
      rawset(jit, "os", name)
      environment = variables
      fails("the home directory is not known: set JUPYTER_DATA_DIR to the folder of Jupyter",
        jupyter.install, "moth")
      rawset(jit, "os", os_name)
    end
    files.write("file", "")
    environment = {JUPYTER_DATA_DIR = files.path "file"}
    fails(("the file cannot be written: %s: Not a directory"):format(
      files.path "file/kernels/moth/kernel.json"), jupyter.install, "moth")
  end)
end)

describe("moth jupyter", function()
  it("installs, or serves a connection file; other words raise", function()
    local said, served
    _G.print = function(text) said = text end
    environment = {JUPYTER_DATA_DIR = files.path "own"}
    jupyter.main({"install"}, "/bin/moth")
    assert.equal("wrote " .. files.path "own/kernels/moth/kernel.json", said)
    package.loaded["moth.jupyter.kernel"] = {run = function(path) served = path end}
    jupyter.main({"run", "connection.json"}, "/bin/moth")
    assert.equal("connection.json", served)
    for _, words in ipairs {{}, {"run"}, {"serve", "x"}, {"connection.json"}} do
      fails("moth jupyter install, or moth jupyter run CONNECTION_FILE", jupyter.main, words, "m")
    end
  end)
end)
