--- sink.lua -- a file that keeps what is written, as `text`.

return function()
  local out = {text = ""}
  function out.write(_, ...) out.text = out.text .. table.concat {...} end
  function out.flush() end
  return out
end
