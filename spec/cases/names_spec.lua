-- Every public name of PyTorch's documented namespaces exists here, or its error says what to write
-- instead. The names are in spec/names/names.txt, which spec/names/list.py writes.

local count = require "spec.names.count"
local fails = require("spec.support.refusals").fails
local instead = require "moth.error.instead"
local moth = require "moth"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local function message(space, name)
  local ok, problem = pcall(function() return space[name] end)
  assert.is_false(ok, name)
  return problem
end

local sparse = moth.sparse_coo_tensor({ { 1 } }, moth.ones(1), { 2 }):coalesce()

-- True if a dotted name exists; `root` is a namespace, a module or a tensor.
local function resolves(root, path)
  local value = root
  if moth.is_tensor(root) then
    local name = path:match "^[^.]+"
    return pcall(function() return root[name] end) or pcall(function() return sparse[name] end)
  end
  for part in path:gmatch "[^.]+" do
    local ok, found = pcall(function() return value[part] end)
    if not ok or found == nil then return false end
    value = found
  end
  return true
end

describe("a public name of PyTorch", function()
  for _, space in ipairs(count.namespaces()) do
    it("of " .. space.path .. " exists or its error says what to write", function()
      local silent = {}
      for _, name in ipairs(space.names) do
        local outcome, problem = count.outcome(space.path, name)
        if outcome == "silent" then silent[#silent + 1] = name .. ": " .. tostring(problem) end
      end
      assert.same({}, silent)
    end)
  end
end)

describe("a hint", function()
  local rows = instead.all()

  it("names only existing functions", function()
    local x, wrong = moth.eye(2), {}
    local roots = { moth = moth, nn = nn, F = F, optim = optim, x = x, module = nn.Linear(1, 1) }
    for _, row in ipairs(rows) do
      for before, root, sign, path in (" "
        .. "" .. row[3]):gmatch "([^%w_.])([%a]+)([.:])([%a_][%w_.]*)" do
        local known = roots[root] and not (root == "moth" and path == "h")
        path = path:gsub("%.+$", "")
        if known and before ~= ":" and path ~= "" and (sign == "." or not path:find "%.") then
          if not resolves(roots[root], path) then
            wrong[#wrong + 1] = ("%s %s: %s%s%s"):format(row[1], row[2], root, sign, path)
          end
        end
      end
    end
    assert.same({}, wrong)
  end)

  it("is one line that ends without a full stop", function()
    for _, row in ipairs(rows) do
      assert.is_nil(row[3]:find "\n", row[3])
      assert.is_nil(row[3]:find "[.;]$", row[3])
      assert.is_true(#row[3] < 200, row[3])
    end
  end)

  it("is the message of the error", function()
    assert.matches("moth.distributed has no 'fsdp'; each process has the whole net",
      message(moth.distributed, "fsdp"))
    assert.matches("no 'get_local_rank'; it is moth.distributed.get_node_local_rank",
      message(moth.distributed, "get_local_rank"))
    assert.matches("moth.distributed has no 'launch'; the launcher knows the processes: ./moth run",
      message(moth.distributed, "launch"))
    assert.matches("no 'DistributedDataParallel'; it is moth.nn.parallel.DistributedDataParallel",
      message(nn, "DistributedDataParallel"))
    assert.matches("moth has no 'hub'; nothing is downloaded; moth.load", message(moth, "hub"))
    assert.matches("moth.models has no 'alexnet'; moth.models.list_models%(%) lists",
      message(moth.models, "alexnet"))
    assert.matches("moth.nn has no 'DataParallel'; nn.parallel.Distributed", message(nn,
      "DataParallel"))
    assert.matches("moth.backends has no 'mkl'; the CPU's kernels are Moth's own",
      message(moth.backends, "mkl"))
  end)

  it("is part of the message for an argument of PyTorch's function, or for its value", function()
    local dist, DDP = moth.distributed, nn.parallel.DistributedDataParallel
    fails("'DistributedDataParallel' has no argument 'device_ids'; the net stays on its device: "
      .. "DistributedDataParallel(net:to(\"cuda\"))", DDP, nn.Linear(1, 1), {device_ids = {0}})
    fails("'DistributedDataParallel' has no argument 'find_unused_parameter'; did you mean "
      .. "'find_unused_parameters'?", DDP, nn.Linear(1, 1), {find_unused_parameter = true})
    for _, name in ipairs {"rank", "world_size", "init_method", "store"} do
      fails(("'init_process_group' has no argument '%s'; the launcher knows the processes: "
        .. "./moth run -n 2 train.lua, mpirun or srun"):format(name), dist.init_process_group,
        {[name] = 1})
    end
    fails("one of 'mpi', 'nccl' is needed, got 'gloo'; \"mpi\" moves tensors of the CPU",
      dist.init_process_group, "gloo")
    fails("got 'mpl'; did you mean 'mpi'?", dist.init_process_group, "mpl")
    for _, seconds in ipairs {-1, 0} do
      fails("bad argument 'timeout' to 'init_process_group' (a number above 0 is needed, got",
        dist.init_process_group, {timeout = seconds, library = "/nonexistent.so"})
    end
    fails("got 'cpu:gloo,cuda:nccl'; with \"nccl\", tensors of the CPU", dist.init_process_group,
      "cpu:gloo,cuda:nccl")
    fails("'bxor' is needed, got 'avg'; 'mean' is the average", dist.all_reduce, moth.ones(1),
      "avg")
    fails("got 'summ'; did you mean 'sum'?", dist.all_reduce, moth.ones(1), "summ")
    fails("'new_group' has no argument 'backend'; a group has the timeout and the backend of",
      dist.new_group, {backend = "gloo"})
  end)

  it("follows from the name for in-place forms, copies and functions of other "
    .. "namespaces", function()
    assert.matches("'rms_norm_'; rms_norm has no form in place; write x = moth.rms_norm%(x%)",
      message(moth, "rms_norm_"))
    assert.matches("'permute_copy'; x:permute%(%):clone%(%) is a copy of that view",
      message(moth, "permute_copy"))
    assert.matches("'cosine_similarity'; it is moth.nn.functional.cosine_similarity",
      message(moth, "cosine_similarity"))
    assert.matches("'hann_window'; it is a function: moth.hann_window%(x%)",
      message(moth.ones(1), "hann_window"))
  end)
end)

describe("a suggestion for a misspelt name", function()
  it("is made if one letter in four differs, and not if more differ", function()
    assert.matches("did you mean 'mode'", message(moth, "modez"))
    assert.matches("did you mean 'Linear'", message(nn, "Lineer"))
    assert.matches("did you mean 'max_pool2d'", message(F, "max_pol2d"))
    for _, name in ipairs { "modesty", "medals", "salted", "lists", "sumac" } do
      assert.is_nil(message(moth, name):find("did you mean", 1, true), name)
    end
  end)
end)
