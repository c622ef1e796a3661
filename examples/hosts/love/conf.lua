--- conf.lua -- settings that LÖVE reads first.

function love.conf(t)
  t.identity, t.version = "moth-and-lamp", "11.4" -- identity: the name of the save directory
  t.window.title, t.window.msaa, t.modules.audio = "Moth and lamp", 4, false
end
