-- Claims about Lua values between processes: see spec/support/ranks.lua.

local moth = require "moth"
local dist = moth.distributed

return {
  {"broadcast_object_list copies numbers, strings, tables and tensors", function(rank)
    local list = rank == 0 and {1.5, "a\0b", {x = moth.arange(3), y = {true}}, false} or {}
    dist.broadcast_object_list(list)
    assert(list[1] == 1.5 and list[2] == "a\0b" and list[3].y[1] == true and list[4] == false)
    assert(moth.equal(list[3].x, moth.arange(3)))
  end},
  {"all_gather_object collects values of different sizes", function(rank, n)
    local list = {}
    dist.all_gather_object(list, {rank = rank, text = ("x"):rep(rank * 100), t = moth.ones(rank)})
    for i = 1, n do
      local v = list[i]
      assert(v.rank == i - 1 and #v.text == (i - 1) * 100 and v.t:numel() == i - 1)
    end
  end},
  {"gather_object fills the list of dst only", function(rank, n)
    local list = {}
    dist.gather_object("v" .. rank, rank == 1 and list or nil, 1)
    assert(#list == (rank == 1 and n or 0))
    for i, v in ipairs(list) do assert(v == "v" .. i - 1) end
  end},
  {"scatter_object_list gives each process one value", function(rank, n)
    local values = {}
    for i = 1, n do values[i] = {i} end
    local out = {}
    dist.scatter_object_list(out, rank == 0 and values or nil)
    assert(out[1][1] == rank + 1)
  end},
  {"the launcher tells the rank on the machine", function(rank)
    assert(dist.get_node_local_rank() == rank)
  end},
  {"functions are refused", function()
    local ok, problem = pcall(dist.all_gather_object, {}, print)
    assert(not ok and tostring(problem):find "cannot be sent")
  end},
}
