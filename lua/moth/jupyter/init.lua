--- init.lua -- `moth jupyter`: Moth as a kernel of Jupyter.
--
--     moth jupyter install            makes Moth known to Jupyter
--     moth jupyter run FILE           serves a connection file; Jupyter calls this

local json = require "moth.json"
local machine = require "moth.base.machine"

local jupyter = {}

-- The folder for kernels of this user; nil without a home directory.
local function kernels()
  local own = os.getenv "JUPYTER_DATA_DIR"
  if own and own ~= "" then return own .. "/kernels" end
  if jit.os == "Windows" then
    local roaming = os.getenv "APPDATA"
    return roaming and roaming .. "/jupyter/kernels"
  end
  if jit.os == "OSX" then return machine.user_folder "Library/Jupyter/kernels" end
  local data = os.getenv "XDG_DATA_HOME"
  if data and data ~= "" then return data .. "/jupyter/kernels" end
  return machine.user_folder ".local/share/jupyter/kernels"
end

--- Writes the kernel's description to the user's folder. @return its path
-- @param program  the path of `moth`
function jupyter.install(program)
  local folder = kernels()
  if not folder then
    error("the home directory is not known: set JUPYTER_DATA_DIR to the folder of Jupyter", 0)
  end
  folder = folder .. "/moth"
  for at in (folder .. "/"):gmatch "()/" do
    if at > 1 then machine.make_folder(folder:sub(1, at - 1)) end
  end
  local path = folder .. "/kernel.json"
  local file, problem = io.open(path, "w")
  if not file then error("the file cannot be written: " .. problem, 0) end
  file:write(json.encode {
    argv = {program, "jupyter", "run", "{connection_file}"},
    display_name = "Moth (LuaJIT)", language = "lua", interrupt_mode = "signal",
  }, "\n")
  file:close()
  return path
end

--- The command.
-- @param words    its arguments
-- @param program  the path of `moth`
function jupyter.main(words, program)
  if words[1] == "install" then
    print("wrote " .. jupyter.install(program))
  elseif words[1] == "run" and words[2] then
    require("moth.jupyter.kernel").run(words[2])
  else
    error("moth jupyter install, or moth jupyter run CONNECTION_FILE", 0)
  end
end

return jupyter
