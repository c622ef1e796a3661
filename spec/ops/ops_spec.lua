-- Every op of the registry, checked by its record: there is no list of ops, so a new op is tested
-- without a new spec.

local moth = require "moth"
local integral = require "moth.functions.integral"
local registry = require "spec.support.registry"

local DTYPES = {[0] = moth.bool, moth.uint8, moth.int8, moth.int16, moth.int32, moth.int64,
  moth.float16, moth.bfloat16, moth.float32, moth.float64}

local function call(op, arguments) return op.fn(unpack(arguments, 1, arguments.n)) end

local function isplain(v) return type(v) == "table" and getmetatable(v) == nil end

-- Seeds generators among the arguments again, also one level deep.
local function reseed(arguments)
  moth.manual_seed(7)
  for i = 1, arguments.n do
    local v = arguments[i]
    if isplain(v) then v = v.generator end
    if type(v) == "table" and getmetatable(v) ~= nil and v.manual_seed then v:manual_seed(7) end
  end
end

-- The arguments of an example by name; nil if the sizes of a shape are separate arguments.
local function named(op, arguments)
  local names = {}
  for k = 1, arguments.n do
    local v = arguments[k]
    if isplain(v) and next(v) ~= nil and #v == 0 then
      for name, x in pairs(v) do names[name] = x end
    elseif op.args[k].kind == "shape" and type(v) == "number" then
      return nil
    else
      names[op.args[k].name] = v
    end
  end
  return names
end

-- Results as one list, for any form of results; for an op without results, the written tensors.
local function results(op, arguments)
  reseed(arguments)
  local got = {call(op, arguments)}
  if op.outputs == "" then
    local names = isplain(arguments[1]) and arguments[1].params and arguments[1]
    return registry.tensors{n = 1, names or named(op, arguments)}
  end
  if op.list then got = got[1] end
  return got
end

local function each_example(op, fn)
  for i, example in ipairs(op.examples) do
    local ok, message = pcall(fn, example, i)
    if not ok then
      error(("%s(%s): %s"):format(op.name, example.code, tostring(message)), 0)
    end
  end
end

local function same(a, b, tolerance)
  if a.dtype ~= b.dtype or tostring(a.shape) ~= tostring(b.shape) then return false end
  local x, y = a:flatten():tolist(), b:flatten():tolist()
  if type(x) ~= "table" then x, y = {x}, {y} end
  for i = 1, #x do
    local p, q = x[i], y[i]
    if not (p == q or (p ~= p and q ~= q)) then
      if type(p) ~= "number" then return false end
      if not (math.abs(p - q) <= tolerance * math.max(1, math.abs(p))) then return false end
    end
  end
  return true
end

-- An example as a function of its float tensors, and leaves to call it with.
local function of_leaves(op, example)
  local arguments = example.arguments()
  local inputs, order = {}, registry.tensors(arguments)
  for i, x in ipairs(order) do
    if registry.isfloat(x) then
      order[i] = registry.redraw(x, example.domain, i):requires_grad_()
      inputs[#inputs + 1] = order[i]
    end
  end
  return function(...)
    local given, k, list = {...}, 0, {}
    for i, x in ipairs(order) do
      list[i] = x
      if registry.isfloat(x) then
        k = k + 1
        list[i] = registry.inside(given[k], example.domain)
      end
    end
    if op.mutates then list[1] = list[1] * 1 end
    local kept = {}
    for _, y in ipairs(results(op, registry.replace(arguments, list))) do
      if registry.isfloat(y) then kept[#kept + 1] = y end
    end
    return unpack(kept)
  end, inputs
end

-- The contribution of each leaf to the gradient of the sum of f's results; nil for those without.
local function leaf_gradients(f, given, leaves)
  local total
  for _, y in ipairs{f(unpack(given))} do
    if y.requires_grad then total = total and total + y:sum() or y:sum() end
  end
  local got = {}
  if not total then return got end
  for i, x in ipairs(leaves) do
    got[i] = moth.autograd.grad(total, x, {allow_unused = true, retain_graph = true})
  end
  return got
end

-- The same values in other layouts.
local layouts = {
  transposed = function(x)
    if x:dim() < 2 then return nil end
    return x:transpose(1, 2):contiguous():transpose(1, 2)
  end,
  offset = function(x)
    if x:dim() == 0 then return nil end
    local pad = moth.cat({x, x, x}, 1)
    return pad:narrow(1, x:size(1) + 1, x:size(1))
  end,
  channels_last = function(x)
    if x:dim() ~= 4 then return nil end
    return x:contiguous { memory_format = moth.channels_last }
  end,
  strided = function(x)
    if x:dim() == 0 then return nil end
    return moth.stack({x, x}, x:dim() + 1):select(x:dim() + 1, 2)
  end,
}

-- A value of the wrong type for each kind of argument.
local WRONG = {
  tensor = "text", ["tensor?"] = "text", tensors = 3, mask = "text", index = "text",
  ["index?"] = "text", indices = 3, scalar = "text", int = 1.5, ["int?"] = "text", int1 = "text",
  int2 = "text", int3 = "text", ints = "text", ["int2?"] = "text", ["int3?"] = "text",
  ["int1-or-enum"] = "text", ["int2-or-enum"] = "text", ["int3-or-enum"] = "text",
  floats = "text", shape = "text", dim = 1.5, ["dim?"] = 1.5,
  dims = "text", position = 1.5, ["position?"] = 1.5, float = "text", ["float?"] = "text",
  bool = 1, enum = "nonsense", element = "text", ignored = 1.5, ["out?"] = "text",
  dtype = "nonsense", device = 3, generator = "text",
}

local only = os.getenv "MOTH_SPEC_OP" -- a pattern that selects ops

if only then
  it("finds ops by MOTH_SPEC_OP", function()
    local found = 0
    for _, op in ipairs(registry.ops()) do found = found + (op.name:match(only) and 1 or 0) end
    assert.is_true(found > 0, "no op matches the Lua pattern '" .. only .. "'")
  end)
end

for _, op in ipairs(registry.ops()) do
  if not only or op.name:match(only) then describe("op " .. op.name, function()
    it("has documentation, a source and examples that run", function()
      assert.is_true(#op.doc > 0, "no doc")
      assert.is_true(#op.examples > 0, "no examples")
      assert.matches("^core/op/.+%.c$", op.file)
      for _, arg in ipairs(op.args) do assert.is_true(#arg.doc > 0, arg.name .. " has no doc") end
      each_example(op, function(example) results(op, example.arguments()) end)
    end)

    it("has an example with another value for each argument with a default", function()
      local missing = {}
      for i, arg in ipairs(op.args) do
        local set = arg.name == "out" or arg.name == "inplace" or arg.kind == "device"
        for _, example in ipairs(op.examples) do
          local given = example.arguments()
          for k = 1, given.n do
            local v = given[k]
            if isplain(v) and v[arg.name] ~= nil then set = true end
          end
          if given.n >= i and given[i] ~= nil then set = true end
          if arg.kind == "shape" and given.n >= 1 then set = true end
        end
        if not set then missing[#missing + 1] = arg.name end
      end
      assert.same({}, missing)
    end)

    if op.grad and not op.derived then
      it("has the right first and second derivatives", function()
        each_example(op, function(example)
          local f, inputs = of_leaves(op, example)
          if #inputs == 0 or f(unpack(inputs)) == nil then return end
          moth.autograd.gradcheck(f, inputs)
          moth.autograd.gradgradcheck(f, inputs)
        end)
      end)

      it("has them if only one input needs a gradient", function()
        each_example(op, function(example)
          local f, inputs = of_leaves(op, example)
          local wanted = #inputs > 1 and leaf_gradients(f, inputs, inputs) or {}
          for k, slope in pairs(wanted) do
            local given = {}
            for i, x in ipairs(inputs) do given[i] = i == k and x or x:detach() end
            local got = leaf_gradients(f, given, {inputs[k]})[1]
            assert(got and same(slope, got, 1e-9), "input " .. k)
          end
        end)
      end)
    end

    it("accepts the dtypes in its record and raises for others by name", function()
      local example = op.examples[1]
      local values = false
      for _, arg in ipairs(op.args) do
        local kind = arg.name ~= "out" and arg.kind
        values = values or kind == "tensor" or kind == "tensors"
      end
      if not values then return end
      for d = 0, 9 do
        local declared = bit.band(op.dtypes, bit.lshift(1, d)) ~= 0
        local arguments = registry.map(example.arguments(), function(x)
          if not registry.isfloat(x) then return x end
          if example.domain == "prob" then return x:to(DTYPES[d]) end
          return (x:abs() * 3 + 1):to(DTYPES[d]) -- no zeros among the integers
        end)
        local any = false
        for _, x in ipairs(registry.tensors(arguments)) do any = any or x.dtype == DTYPES[d] end
        local ok, message = pcall(results, op, arguments)
        -- 0.5 does not fit an integer, and a float result does not fit an integer target
        local excused = not ok and (message:match "does not fit" or message:match "floating dtype"
          or message:match "set {dtype" or op.derived and message:match "cannot be written")
        if not ok and any and declared and not excused then
          error(tostring(DTYPES[d]) .. ": " .. message, 0)
        end
        if ok and any and not declared and not op.numbers and not integral.takes(op.name) then
          error(tostring(DTYPES[d]) .. " was not refused", 0)
        end
        if not ok then assert.matches("E_DTYPE", moth.errcode()) end
      end
    end)

    it("has the same results for all memory layouts of its inputs", function()
      each_example(op, function(example)
        local arguments = example.arguments()
        local order = registry.tensors(arguments)
        if #order == 0 or op.name:match("^as_strided") or op.name:match("^empty") then return end
        local function copies()
          local list = {}
          for i, x in ipairs(order) do list[i] = x:clone() end
          return registry.replace(arguments, list)
        end
        local expected = results(op, copies())
        for name, lay in pairs(layouts) do
          local list, changed = {}, false
          for i, x in ipairs(order) do
            local y = lay(x)
            if y then changed = true end
            list[i] = y or x:clone()
          end
          if changed then
            local ok, got = pcall(results, op, registry.replace(arguments, list))
            if not ok then -- a view may refuse a layout
              if not got:match "without a copy" then error(name .. ": " .. tostring(got), 0) end
              got = expected
            end
            assert.equal(#expected, #got)
            for i = 1, #expected do
              if not same(expected[i], got[i], 1e-5) then
                error(("%s: result %d is %s, wanted %s"):format(name, i, tostring(got[i]),
                  tostring(expected[i])), 0)
              end
            end
          end
        end
      end)
    end)

    it("has the same results with one input of a wider type, or raises", function()
      if op.mutates or op.outputs == "" or op.random or op.name:match "^empty"
        or op.name:match "^nan_to_num" then return end -- its constants depend on the dtype
      each_example(op, function(example)
        local arguments = example.arguments()
        local order = registry.tensors(arguments)
        local expected = results(op, arguments)
        for i, x in ipairs(order) do
          local list = {unpack(order)}
          if x.dtype == moth.float32 then list[i] = x:to(moth.float64) end
          local ok, got = pcall(results, op, registry.replace(arguments, list))
          for k = 1, ok and list[i] ~= x and #expected or 0 do
            local y = got[k]:to(expected[k].dtype)
            if not same(expected[k], y, 1e-3) then
              error(("input %d in f64: result %d is %s, wanted %s"):format(i, k, tostring(y),
                tostring(expected[k])), 0)
            end
          end
        end
      end)
    end)

    it("names an argument of a wrong type, a nil, an unknown name", function()
      local first = op.examples[1].arguments()
      for i, arg in ipairs(op.args) do
        local wrong = WRONG[arg.kind]
        assert.is_not_nil(wrong, "no wrong value for kind " .. arg.kind)
        local names = named(op, first) or {}
        names[arg.name] = wrong
        local ok, message = pcall(op.fn, names)
        assert.is_false(ok, ("%s{%s = %s} was taken"):format(op.name, arg.name, tostring(wrong)))
        assert.matches("'" .. arg.name .. "'", message, 1, true)
        assert.matches(op.name:gsub("%p", "%%%0"), message)
        if arg.fallback == "" and arg.kind ~= "shape" and i <= first.n then
          names[arg.name] = nil
          if next(names) == nil then names = nil end -- {} would be valid for many kinds
          ok, message = pcall(op.fn, names)
          assert.is_false(ok, arg.name .. " was not missed")
          assert.matches("'" .. arg.name .. "'", message, 1, true)
        end
      end
      local arguments = {n = first.n, unpack(first, 1, first.n)}
      local last = arguments[arguments.n]
      if isplain(last) and #last == 0 then
        arguments[arguments.n] = {nonsense_name = 1}
      else
        arguments.n = arguments.n + 1
        arguments[arguments.n] = {nonsense_name = 1}
      end
      local ok, message = pcall(call, op, arguments)
      assert.is_false(ok)
      assert.matches("nonsense_name", message, 1, true)
    end)

    it("has the same results by name and by position", function()
      each_example(op, function(example)
        local arguments = example.arguments()
        local names = named(op, arguments)
        if not names then return end
        local function own(list)
          local writes = op.mutates or op.outputs == ""
          return writes and registry.map(list, function(x) return x:clone() end) or list
        end
        local expected = results(op, own(arguments))
        local got = results(op, own{n = 1, names})
        if op.name:match("^empty") then return end
        for i = 1, #expected do assert.is_true(same(expected[i], got[i], 0)) end
      end)
    end)
  end) end
end
