-- Cases: refusals at rarely used places, by tables: what was called, the text of its message. They
-- compare whole texts, so that swapped or wrong values in a message fail.

local moth = require "moth"
local refusals = require "spec.support.refusals"

local nn, F, autograd = moth.nn, moth.nn.functional, moth.autograd
local D, data, init = moth.distributions, moth.utils.data, moth.nn.init

-- Makes a claim for each row: a name, the text of the message (not a pattern), a function.
local function refused(rows) refusals.each(it, rows) end

local function parameter(...) return nn.Parameter(moth.rand(...)) end

describe("a gradient scaler raises for", function()
  local p = nn.Parameter(moth.ones(2))
  local optimizer = moth.optim.SGD({p}, {lr = 0.1})
  local function scaler() return moth.amp.GradScaler() end
  local function with_grad() p.grad = moth.ones(2) return scaler() end
  refused {
    {"an output that is no tensor", "bad argument 'outputs' to 'scale' (a tensor or a list of "
      .. "tensors is needed, got 5", function() scaler():scale(5) end},
    {"a step of no optimizer", "bad argument 'optimizer' to 'step' (an optimizer is needed, got 3",
      function() scaler():step(3) end},
    {"unscale_ of no optimizer", "bad argument 'optimizer' to 'unscale_' (an optimizer is needed",
      function() scaler():unscale_({}) end},
    {"a step without gradients", "no parameter of the optimizer has a gradient",
      function() p.grad = nil scaler():step(optimizer) end},
    {"a closure", "a closure cannot be used", function()
      with_grad():step(optimizer, function() end)
    end},
    {"two steps without an update", "step was called for this optimizer already", function()
      local s = with_grad()
      s:step(optimizer)
      s:step(optimizer)
    end},
    {"unscale_ twice", "unscale_ was called for this optimizer already", function()
      local s = with_grad()
      s:unscale_(optimizer)
      s:unscale_(optimizer)
    end},
    {"unscale_ after step", "unscale_ comes before step, and update after both", function()
      local s = with_grad()
      s:step(optimizer)
      s:unscale_(optimizer)
    end},
    {"an update without a step", "call step before update", function() scaler():update() end},
    {"a scale of 0", "bad argument 'new_scale' to 'update' (a finite float32 number above 0 is "
      .. "needed, got 0", function() scaler():update(0) end},
    {"a scale beyond float32", "bad argument 'new_scale' to 'update'",
      function() scaler():update(1e39) end},
    {"a scale of NaN", "bad argument 'new_scale' to 'update'",
      function() scaler():update(0 / 0) end},
    {"a state that is none",
      "bad argument 'state_dict' to 'load_state_dict' (a table with the number",
      function() scaler():load_state_dict {} end},
    {"a factor of 1", "bad argument 'growth_factor' to 'GradScaler'",
      function() moth.amp.GradScaler {growth_factor = 1} end},
    {"a backoff of 1", "bad argument 'backoff_factor' to 'GradScaler'",
      function() moth.amp.GradScaler {backoff_factor = 1} end},
    {"a backoff of 0", "bad argument 'backoff_factor' to 'GradScaler'",
      function() moth.amp.GradScaler {backoff_factor = 0} end},
    {"an interval of 0", "bad argument 'growth_interval' to 'GradScaler'",
      function() moth.amp.GradScaler {growth_interval = 0} end},
    {"a first scale of 0", "bad argument 'init_scale' to 'GradScaler'",
      function() moth.amp.GradScaler {init_scale = 0} end},
  }
end)

describe("autocast raises for", function()
  refused {
    {"a device that is none",
      [[bad argument 'device_type' to 'autocast' ("cpu" or "cuda" is needed]],
      function() moth.autocast(5) end},
    {"a dtype that is no half", "bad argument 'dtype' to 'autocast'",
      function() moth.autocast("cpu", moth.float32, print) end},
    {"an unknown name", "'autocast' has no argument 'enable'",
      function() moth.autocast({device_type = "cpu", enable = true}, print) end},
    {"a device given twice", "bad argument 'device_type' to 'autocast' (given twice",
      function() moth.autocast("cpu", {device_type = "cpu"}, print) end},
    {"enabled as a number", "bad argument 'enabled' to 'autocast' (a boolean is needed, got 1",
      function() moth.autocast({device_type = "cpu", enabled = 1}, print) end},
    {"no function", "bad argument 'f' to 'autocast' (a function is needed, got 7",
      function() moth.autocast("cpu", moth.bfloat16, 7) end},
    {"two entries", "this autocast region is already active", function()
      local region = moth.autocast "cpu"
      region:enter()
      local ok, problem = pcall(region.enter, region)
      region:exit()
      error(ok or problem, 0)
    end},
    {"an exit without an entry", "this autocast region is not active",
      function() moth.autocast("cpu"):exit() end},
  }
end)

describe("a Function raises for", function()
  local function apply(forward, backward, ...)
    local Custom = moth.class("Custom", autograd.Function)
    Custom.forward, Custom.backward = forward, backward
    local y = Custom.apply(...)
    if moth.is_tensor(y) and y.requires_grad then y:sum():backward() end
    return y
  end
  local function x() return moth.ones(2, {requires_grad = true}) end
  local function double(_, a) return a * 2 end
  refused {
    {"a saved value that is no tensor",
      "bad argument 'tensors' to 'save_for_backward' (tensors are needed, got 5 at position 2",
      function() apply(function(ctx, a) ctx:save_for_backward(a, 5) return a * 1 end, nil,
        x()) end},
    {"a dirty value that is no tensor",
      "bad argument 'tensors' to 'mark_dirty' (tensors are needed, got true at position 1",
      function() apply(function(ctx, a) ctx:mark_dirty(true) return a * 1 end, nil, x()) end},
    {"a constant that is no tensor",
      "bad argument 'tensors' to 'mark_non_differentiable' (tensors are",
      function() apply(function(ctx, a) ctx:mark_non_differentiable(1) return a * 1 end, nil,
        x()) end},
    {"set_materialize_grads of a number",
      "bad argument 'on' to 'set_materialize_grads' (a boolean is "
      .. "needed, got 1",
      function() apply(function(ctx, a) ctx:set_materialize_grads(1) return a * 1 end, nil,
        x()) end},
    {"save_for_backward in backward", "save_for_backward belongs into forward", function()
      apply(double, function(ctx, g) ctx:save_for_backward(g) return g end, x())
    end},
    {"mark_dirty in backward", "mark_dirty belongs into forward", function()
      apply(double, function(ctx, g) ctx:mark_dirty(g) return g end, x())
    end},
    {"a ctx by hand", "each call of apply creates a ctx", function() autograd.FunctionCtx() end},
    {"a dirty input that is no result",
      "Custom.forward marks argument 1 of mark_dirty as written in "
      .. "place, so it must return it",
      function() apply(function(ctx, a) ctx:mark_dirty(a) return a * 2 end, nil, x()) end},
    {"no tensor as result", "Custom.forward must return a tensor, got 3",
      function() apply(function() return 3 end, nil, x()) end},
    {"no forward", "class 'Empty' has no function 'forward(ctx, ...)'",
      function() moth.class("Empty", autograd.Function).apply(x()) end},
    {"too few gradients", "Custom.backward returned 1 gradient, but Custom.forward has 2 arguments",
      function() apply(function(_, a, b) return a * b end, function(_, g) return g end, x(),
        x()) end},
    {"too many gradients",
      "Custom.backward returned 2 gradients, but Custom.forward has 1 argument",
      function() apply(double, function(_, g) return g, g end, x()) end},
    {"a gradient that is no tensor",
      "Custom.backward returned a string ('a') as gradient 1; a tensor or nil is needed",
      function() apply(double, function() return "a" end, x()) end},
    {"forward with a colon", "write function Custom.forward(ctx, ...), with a '.'", function()
      local Custom = moth.class("Custom", autograd.Function)
      function Custom:forward(ctx, a) return self and ctx and a end
      Custom.apply(x())
    end},
  }
end)

describe("a check of gradients raises for", function()
  local check = autograd.gradcheck
  local function x(...) return moth.rand(..., {dtype = moth.float64, requires_grad = true}) end
  local wrong = moth.class("Wrong", autograd.Function)
  function wrong.forward(ctx, a) ctx:save_for_backward(a) return a:square() end
  function wrong.backward(ctx, g)
    local factor = moth.tensor({{2, 2, 2}, {2, 3, 2}}, {dtype = moth.float64})
    return g * ctx.saved_tensors[1] * factor
  end
  local ones = function() return moth.ones(2, 3, {dtype = moth.float64, requires_grad = true}) end
  local calls = 0
  refused {
    {"an unknown option", "'gradcheck' has no argument 'epsilon'",
      function() check(moth.sin, {x(2)}, {epsilon = 1}) end},
    {"a negative tolerance",
      "bad argument 'atol' to 'gradcheck' (a number from 0 on is needed, got -1",
      function() check(moth.sin, {x(2)}, {atol = -1}) end},
    {"a step of 0", "bad argument 'eps' to 'gradcheck' (a number above 0 is needed, got 0",
      function() check(moth.sin, {x(2)}, {eps = 0}) end},
    {"inputs that are none",
      "bad argument 'inputs' to 'gradcheck' (a tensor or a list is needed, got 4",
      function() check(moth.sin, 4) end},
    {"a float32 input", "bad argument 'inputs' to 'gradcheck' (input 1 is", function()
      check(moth.sin, {moth.rand(2, {requires_grad = true})})
    end},
    {"an expanded input", "input 1 is expanded, its elements overlap", function()
      check(moth.sin, {moth.rand(1, {dtype = moth.float64}):expand(3):requires_grad_()})
    end},
    {"inputs without gradients", "none of them requires grad",
      function() check(moth.sin, {moth.rand(2, {dtype = moth.float64})}) end},
    {"no results", "bad argument 'f' to 'gradcheck' (it returned no floating tensor",
      function() check(function() return 1 end, {x(2)}) end},
    {"a function of its own mind", "the function returns other values in a second call", function()
      check(function(a) calls = calls + 1 return a * calls end, {x(2)})
    end},
    {"a wrong gradient, at its place",
      "gradcheck: the gradient of result 1 at {2, 2} by input 1 at "
      .. "{2, 2} is 3, but finite differences give 2", function() check(wrong.apply, {ones()}) end},
    {"a wrong gradient of the second result",
      "the gradient of result 2 at {2, 2} by input 2 at {2, 2} "
      .. "is 3, but", function()
      check(function(a, b) return a * 2, wrong.apply(b) end, {ones(), ones()})
    end},
    {"second derivatives of nothing",
      "bad argument 'f' to 'gradgradcheck' (no result of it requires "
      .. "grad", function() autograd.gradgradcheck(function(a) return a:detach() end, {x(2)}) end},
  }

  it("nothing, by request", function()
    assert.is_false(check(wrong.apply, {ones()}, {raise_exception = false}))
    assert.is_true(check(moth.square, {ones()}, {raise_exception = false}))
    assert.is_false(check(function(a) return a * (0 / 0) end, {ones()}, {raise_exception = false}))
  end)

  it("an error of the function, and restores the input", function()
    local a, n = x(2), 0
    local before = a:tolist()
    assert.has_error(function()
      check(function(b)
        n = n + 1
        if n == 4 then error "stop" end
        return b * 2
      end, {a})
    end)
    assert.same(before, a:tolist())
  end)
end)

describe("a Jacobian raises for", function()
  local f, x = autograd.functional, moth.ones(2)
  local function first(a) return a[1] * 2 end
  refused {
    {"inputs that are none",
      "bad argument 'inputs' to 'vjp' (a tensor or a list of tensors is needed, "
      .. "got 3", function() f.vjp(first, 3) end},
    {"an input that is no tensor", "bad argument 'inputs' to 'jvp' (element 2 is 5, not a tensor",
      function() f.jvp(first, {x, 5}) end},
    {"an integer input", "bad argument 'inputs' to 'jacobian' (element 1 is",
      function() f.jacobian(first, moth.tensor {1LL}) end},
    {"a function without results",
      "bad argument 'func' to 'vjp' (a function that returns tensors is "
      .. "needed; it returned nothing", function() f.vjp(function() end, x) end},
    {"a result that is no tensor", "needed; result 2 is 5",
      function() f.vjp(function(a) return a, 5 end, x) end},
    {"no vector", "bad argument 'v' to 'vjp' (is needed unless", function() f.vjp(moth.sin, x) end},
    {"too few vectors", "bad argument 'v' to 'vjp' (2 tensors are needed, one for each of",
      function() f.vjp(function(a) return a, a end, x, {x}) end},
    {"a vector of another shape", "bad argument 'v' to 'vjp' (element 1 is",
      function() f.vjp(moth.sin, x, moth.ones(3)) end},
    {"an independent input, if strict", "no output depends on input 2, which strict = true refuses",
      function() f.vjp(function(a) return a:sum() end, {x, x + 1}, nil, {strict = true}) end},
    {"an independent input of a Jacobian",
      "no output depends on input 2, which strict = true refuses",
      function() f.jacobian(function(a) return a:sum() end, {x, x + 1}, {strict = true}) end},
  }
end)

describe("a tensor's field raises for", function()
  local x = moth.ones(2, 3)
  refused {
    {"data that is no tensor", "x.data takes a tensor, got 5", function() x.data = 5 end},
    {"requires_grad that is no boolean", "x.requires_grad takes a boolean, got 1",
      function() x.requires_grad = 1 end},
    {"requires_grad_ of a number", "bad argument 'requires_grad' to 'requires_grad_'",
      function() x:requires_grad_(1) end},
    {"to of a dtype's name", "bad argument 'dtype' to 'to' (write moth.float64",
      function() x:to "float64" end},
    {"to of a number",
      "bad argument 'dtype' to 'to' (a dtype, a device or a tensor is needed, got 5",
      function() x:to(5) end},
    {"to of dtype = a number", "bad argument 'dtype' to 'to' (a dtype is needed, got 5",
      function() x:to {dtype = 5} end},
    {"copy = a number", "bad argument 'copy' to 'to' (a boolean is needed, got 1",
      function() x:to {copy = 1} end},
    {"non_blocking = a number", "bad argument 'non_blocking' to 'to' (a boolean is needed, got 1",
      function() x:to {non_blocking = 1} end},
    {"three booleans", "bad argument 'copy' to 'to' (given twice",
      function() x:to(moth.float64, true, true, true) end},
    {"an unknown name", "'to' has no argument 'dtyp'; did you mean 'dtype'",
      function() x:to {dtyp = moth.float64} end},
    {"channels_last of 2 dimensions", "bad argument 'memory_format' to 'to'",
      function() x:to {memory_format = "channels_last"} end},
    {"type_as of a dtype", "bad argument 'other' to 'type_as' (a tensor is needed",
      function() x:type_as(moth.float64) end},
    {"the length of a number", "a 0-d tensor has no length", function() return #moth.tensor(1) end},
    {"a tensor without its method", "retain_grad", function() x.retain_grad() end},
    {"a gradient of another shape", "cannot be the gradient of", function()
      local p = moth.ones(2, {requires_grad = true})
      p.grad = moth.ones(3)
    end},
    {"a gradient of another dtype", "cannot be the gradient of", function()
      local p = moth.ones(2, {requires_grad = true})
      p.grad = moth.ones(2, {dtype = moth.float64})
    end},
    {"detach_ of a view", "a view cannot be detached in place; use detach", function()
      moth.ones(2, {requires_grad = true}):mul(2)[1]:detach_()
    end},
    {"retain_grad without gradients", "does not require grad", function() x:retain_grad() end},
    {"data of another dtype",
      "x.data cannot be assigned: f64 (2) cannot replace the data of f32 (2)",
      function()
        local y = moth.ones(2, {requires_grad = true}) * 2
        y.data = moth.ones(2, {dtype = moth.float64})
      end},
  }

  it("nothing for arguments in any order", function()
    local y = moth.ones(2, {dtype = moth.float64})
    assert.equal(moth.float64, x:to(y).dtype)
    assert.equal(moth.float64, x:to({other = y}).dtype)
    assert.equal(moth.float64, x:to("cpu", moth.float64).dtype)
    assert.equal(moth.float64, x:to({moth.float64}).dtype)
    assert.is_true(x:to(moth.float32) == x)
    assert.is_true(x:to("cpu") == x)
    assert.is_true(x:to(moth.float32, false) == x)
    assert.is_false(x:to(moth.float32, false, true) == x)
    assert.is_false(x:to({copy = true}) == x)
    assert.is_true(x:to({copy = moth.none}) == x)
    assert.is_true(x:cpu() == x)
    assert.is_false(x:is_pinned())
    for name, dtype in pairs {bool = "bool", byte = "uint8", char = "int8", short = "int16",
      int = "int32",
      long = "int64", half = "float16", bfloat16 = "bfloat16", float = "float32",
        double = "float64"} do
      assert.equal("moth." .. dtype, tostring(x[name](x).dtype))
    end
  end)
end)

describe("attention raises for", function()
  local net = nn.MultiheadAttention(4, 2, {kdim = 3, vdim = 5})
  local q, k, v = moth.rand(2, 3, 4), moth.rand(6, 3, 3), moth.rand(6, 3, 5)
  local function bad(name,
    text) return ("bad argument '%s' to 'MultiheadAttention' (%s"):format(name, text) end
  refused {
    {"no features", bad("embed_dim", "a number from 1 on is needed, got 0"),
      function() nn.MultiheadAttention(0, 1) end},
    {"heads that do not divide", bad("num_heads", "4 features cannot be divided into 3 heads"),
      function() nn.MultiheadAttention(4, 3) end},
    {"no heads", bad("num_heads", "4 features cannot be divided into 0 heads"),
      function() nn.MultiheadAttention(4, 0) end},
    {"dropout above 1", bad("dropout", "a probability from 0 to 1 is needed, got 1.5"),
      function() nn.MultiheadAttention(4, 2, 1.5) end},
    {"dropout of NaN", bad("dropout", "a probability from 0 to 1"),
      function() nn.MultiheadAttention(4, 2, 0 / 0) end},
    {"a query of 1 dimension", bad("query", "2 or 3 dimensions are needed, got"),
      function() net(moth.rand(4), k, v) end},
    {"a key of 2 dimensions",
      bad("key", "3 dimensions are needed, as the query has, got f32 (6, 3)"),
      function() net(q, moth.rand(6, 3), v) end},
    {"a value of 2 dimensions",
      bad("value", "3 dimensions are needed, as the query has, got f32 (6, 5)"),
      function() net(q, k, moth.rand(6, 5)) end},
    {"a query of other features", bad("query", "4 is needed as the last size, got f32 (2, 3, 5)"),
      function() net(moth.rand(2, 3, 5), k, v) end},
    {"a key of other features", bad("key", "3 is needed as the last size, got f32 (6, 3, 4)"),
      function() net(q, moth.rand(6, 3, 4), v) end},
    {"a value of other features", bad("value", "5 is needed as the last size, got f32 (6, 3, 4)"),
      function() net(q, k, moth.rand(6, 3, 4)) end},
    {"a value of another length", bad("value", "f32 (5, 3, 5) and the key, f32 (6, 3, 3), have "
      .. "different lengths"), function() net(q, k, moth.rand(5, 3, 5)) end},
    {"a value of another batch", "have different lengths",
      function() net(q, k, moth.rand(6, 2, 5)) end},
    {"a key of another batch",
      bad("key", "f32 (6, 2, 3) and the query, f32 (2, 3, 4), have different "
      .. "batch sizes"), function() net(q, moth.rand(6, 2, 3), moth.rand(6, 2, 5)) end},
    {"an integer mask", bad("attn_mask", "a bool or floating tensor is needed, got i64 (2, 6)"),
      function() net(q, k, v, {attn_mask = moth.zeros(2, 6, {dtype = moth.int64})}) end},
    {"a mask of another shape", bad("attn_mask", "(2, 6) or (6, 2, 6) is needed, got bool (6, 2)"),
      function() net(q, k, v, {attn_mask = moth.zeros(6, 2, {dtype = moth.bool})}) end},
    {"a padding of another shape", bad("key_padding_mask", "(3, 6) is needed, got bool (6, 3)"),
      function() net(q, k, v, {key_padding_mask = moth.zeros(6, 3, {dtype = moth.bool})}) end},
    {"is_causal without a mask", bad("attn_mask", "is needed with is_causal, which is only a hint"),
      function() net(q, k, v, {is_causal = true}) end},
  }
end)

describe("a layer raises for", function()
  local function bad(fname, name, text) return ("bad argument '%s' to '%s' (%s"):format(name, fname,
    text) end
  refused {
    {"LSTM: no layers", bad("LSTM", "num_layers", "a number from 1 to 1048576 is needed, got 0"),
      function() nn.LSTM(2, 3, {num_layers = 0}) end},
    {"GRU: dropout above 1", bad("GRU", "dropout", "a probability from 0 to 1 is needed, got 2"),
      function() nn.GRU(2, 3, {num_layers = 2, dropout = 2}) end},
    {"LSTM: an input of 1 dimension", bad("LSTM", "input", "(L, N, I) or (L, I) is needed, got"),
      function() nn.LSTM(2, 3)(moth.rand(2)) end},
    {"RNN: an input of other features", bad("RNN", "input", "2 features are needed in the last "
      .. "dimension, got f32 (4, 1, 3)"), function() nn.RNN(2, 3)(moth.rand(4, 1, 3)) end},
    {"RNN: batch_first in the message", "(N, L, I) or (L, I) is needed",
      function() nn.RNN(2, 3, {batch_first = true})(moth.rand(2)) end},
    {"LSTM: one state",
      bad("LSTM", "hx", "a table of two tensors, {h, c}, is needed, got f32 (1, 1, 3)"),
      function() nn.LSTM(2, 3)(moth.rand(4, 1, 2), moth.zeros(1, 1, 3)) end},
    {"LSTM: four states", "got a table of 4, {1, 2, 3, ...}",
      function() nn.LSTM(2, 3)(moth.rand(4, 1, 2), {1, 2, 3, 4}) end},
    {"GRU: a table of states", bad("GRU", "hx", "a tensor is needed, got"),
      function() nn.GRU(2, 3)(moth.rand(4, 1, 2), {1}) end},
    {"GRU: a batch of states for one sequence",
      bad("GRU", "hx", "(layers * directions, H) is needed for "
      .. "an input without a batch"), function() nn.GRU(2, 3)(moth.rand(4, 2),
        moth.zeros(1, 1, 3)) end},
    {"GRUCell: an input of 3 dimensions", bad("GRUCell", "input", "(N, I) or (I,) is needed"),
      function() nn.GRUCell(2, 3)(moth.rand(1, 1, 2)) end},
    {"Conv2d: no groups", bad("Conv2d", "groups", "a number from 1 on is needed, got 0"),
      function() nn.Conv2d(2, 2, 1, {groups = 0}) end},
    {"Conv2d: no channels", bad("Conv2d", "in_channels", "a number from 1 on is needed, got 0"),
      function() nn.Conv2d(0, 2, 1) end},
    {"Conv2d: no output channels",
      bad("Conv2d", "out_channels", "a number from 1 on is needed, got 0"),
      function() nn.Conv2d(2, 0, 1) end},
    {"Conv1d: channels of no multiple",
      bad("Conv1d", "out_channels", "3 is no multiple of groups, 2"),
      function() nn.Conv1d(2, 3, 1, {groups = 2}) end},
    {"Conv1d: input channels of no multiple",
      bad("Conv1d", "in_channels", "3 is no multiple of groups, 2"),
      function() nn.Conv1d(3, 2, 1, {groups = 2}) end},
    {"Conv3d: a dilation of 0", bad("Conv3d", "dilation", "numbers from 1 on are needed, got"),
      function() nn.Conv3d(1, 1, 1, {dilation = 0}) end},
    {"Conv2d: a negative padding", bad("Conv2d", "padding", "numbers from 0 on are needed, got"),
      function() nn.Conv2d(1, 1, 1, {padding = -1}) end},
    {"Conv2d: same with a stride", bad("Conv2d", "padding", "'same' needs stride 1"),
      function() nn.Conv2d(1, 1, 3, {padding = "same", stride = 2}) end},
    {"RReLU: bounds in the wrong order",
      bad("RReLU", "lower", "a number up to upper, 0.1, is needed, got 0.5"),
      function() nn.RReLU(0.5, 0.1) end},
    {"GroupNorm: groups that do not divide",
      bad("GroupNorm", "num_groups", "5 channels cannot be divided "
      .. "into 2 groups"), function() nn.GroupNorm(2, 5) end},
    {"GroupNorm: no groups",
      bad("GroupNorm", "num_groups", "4 channels cannot be divided into 0 groups"),
      function() nn.GroupNorm(0, 4) end},
    {"AdaptiveLogSoftmax: no tensor", bad("AdaptiveLogSoftmaxWithLoss", "input",
      "a tensor is needed, got 3"),
      function() nn.AdaptiveLogSoftmaxWithLoss(4, 6, {2})(3, moth.tensor {1LL}) end},
    {"AdaptiveLogSoftmax: other features", bad("AdaptiveLogSoftmaxWithLoss", "input",
      "(N, 4) or (4) is "
      .. "needed, got f32 (1, 3)"), function()
      nn.AdaptiveLogSoftmaxWithLoss(4, 6, {2})(moth.rand(1, 3), moth.tensor {1LL})
    end},
    {"AdaptiveLogSoftmax: no target", bad("AdaptiveLogSoftmaxWithLoss", "target", "is needed;"),
      function() nn.AdaptiveLogSoftmaxWithLoss(4, 6, {2})(moth.rand(1, 4)) end},
    {"AdaptiveLogSoftmax: too many targets", bad("AdaptiveLogSoftmaxWithLoss", "target",
      "(1) is needed"),
      function() nn.AdaptiveLogSoftmaxWithLoss(4, 6, {2})(moth.rand(1, 4),
        moth.tensor {1LL, 2LL}) end},
    {"AdaptiveLogSoftmax: a class beyond", bad("AdaptiveLogSoftmaxWithLoss", "target",
      "classes from 1 to 6 "
      .. "are needed"), function()
      nn.AdaptiveLogSoftmaxWithLoss(4, 6, {2})(moth.rand(1, 4), moth.tensor {7LL})
    end},
    {"AdaptiveLogSoftmax: class 0", "classes from 1 to 6 are needed", function()
      nn.AdaptiveLogSoftmaxWithLoss(4, 6, {2})(moth.rand(1, 4), moth.tensor {0LL})
    end},
    {"AdaptiveLogSoftmax: a cluster without features",
      bad("AdaptiveLogSoftmaxWithLoss", "div_value",
      "leaves cluster 2 no feature of 4"), function()
      nn.AdaptiveLogSoftmaxWithLoss(4, 9, {2, 4}, {div_value = 4})
    end},
    {"Lazy: no tensor", bad("LazyLinear", "input", "a tensor is needed, got 3"),
      function() nn.LazyLinear(2)(3) end},
    {"Lazy: no dimension",
      bad("LazyLinear", "input", "a tensor of one dimension or more is needed"),
      function() nn.LazyLinear(2)(moth.tensor(1)) end},
    {"Transformer: no layers", bad("TransformerEncoder", "num_layers",
      "a number from 1 to 1048576 is needed, got 0"),
      function() nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2), 0) end},
    {"Transformer: no module", bad("TransformerEncoder", "encoder_layer", "a module is needed"),
      function() nn.TransformerEncoder(nn.TransformerEncoderLayer, 2) end},
    {"Transformer: an unknown activation", [[("relu", "gelu" or a function is needed, got 'elu']],
      function() nn.TransformerEncoderLayer(4, 2, {activation = "elu"}) end},
    {"ModuleList: a gap", "ModuleList[4]: positions are 1 to 3", function()
      local list = nn.ModuleList {nn.Identity(), nn.Identity()}
      list[4] = nn.Identity()
    end},
    {"ModuleList: position 0", "ModuleList[0]: positions are 1 to 3", function()
      local list = nn.ModuleList {nn.Identity(), nn.Identity()}
      list[0] = nn.Identity()
    end},
    {"ModuleList: a fraction", "ModuleList[1.5]: positions are 1 to 2", function()
      local list = nn.ModuleList {nn.Identity()}
      list[1.5] = nn.Identity()
    end},
    {"ModuleDict: a number", bad("update", "modules", "a table of modules is needed, got 5"),
      function() nn.ModuleDict():update(5) end},
    {"ParameterList: a number", bad("extend", "parameters", "a list of tensors is needed, got 5"),
      function() nn.ParameterList():extend(5) end},
    {"ParameterList: a gap", "ParameterList[3]: positions are 1 to 2", function()
      local list = nn.ParameterList {moth.ones(1)}
      list[3] = moth.ones(1)
    end},
    {"ParameterList: an element that is no tensor", "at position 2",
      function() nn.ParameterList():extend {moth.ones(1), 5} end},
    {"ParameterDict: a number", "a table of tensors is needed, got 5",
      function() nn.ParameterDict():update(5) end},
    {"ParameterDict: an element that is no tensor", "under 'a'",
      function() nn.ParameterDict {a = 5} end},
    {"Parameter: a list of numbers", "a tensor is needed, got a table; write moth.tensor{1, 2}",
      function() nn.Parameter {1, 2} end},
    {"Parameter: a list of lists", "write moth.tensor{...}", function() nn.Parameter {{1, 2}} end},
    {"register_buffer: options for a tensor",
      bad("register_buffer", "tensor", "a tensor is needed"),
      function() nn.Identity():register_buffer("a", {}) end},
    {"register_buffer: a parameter",
      bad("register_buffer", "tensor", "is an nn.Parameter; pass its detach()"),
      function() nn.Identity():register_buffer("a", parameter(1)) end},
    {"extra state", "Identity has no extra state", function() nn.Identity():get_extra_state() end},
    {"extra state to load", "Identity has no extra state",
      function() nn.Identity():set_extra_state(1) end},
    {"MaxUnpool: sizes for another number of dimensions",
      bad("max_unpool2d", "output_size", "2 numbers "
      .. "are needed for f32 (1, 1, 1, 1), got 3"), function()
      F.max_unpool2d(moth.rand(1, 1, 1, 1), moth.ones(1, 1, 1, 1, {dtype = moth.int64}), 2,
        {output_size = {2, 2, 2}})
    end},
    {"MaxUnpool: sizes too far", "5 is too far from 2", function()
      F.max_unpool2d(moth.rand(1, 1, 1, 1), moth.ones(1, 1, 1, 1, {dtype = moth.int64}), 2,
        {output_size = 5})
    end},
    {"EmbeddingBag: only the end of no bag", "the end of the last bag is needed, got no elements",
      function()
      nn.EmbeddingBag(3, 2, {include_last_offset = true})(moth.tensor {1LL},
        moth.zeros(0, {dtype = moth.int64}))
    end},
    {"alpha_dropout: p above 1",
      bad("alpha_dropout", "p", "a probability from 0 to 1 is needed, got 1.5"),
      function() F.alpha_dropout(moth.ones(2), 1.5, true) end},
    {"trunc_normal_: no spread", "trunc_normal_", function() init.trunc_normal_(moth.ones(2), 0,
      0) end},
    {"dirac_: groups that do not divide",
      bad("dirac_", "groups", "2 does not divide the first size of "
      .. "f32 (3, 2, 2)"), function() init.dirac_(moth.ones(3, 2, 2), 2) end},
    {"dirac_: no groups", bad("dirac_", "groups", "0 does not divide"),
      function() init.dirac_(moth.ones(3, 2, 2), 0) end},
    {"sparse_: a share above 1",
      bad("sparse_", "sparsity", "a share from 0 to 1 is needed, got 1.5"),
      function() init.sparse_(moth.ones(3, 2), 1.5) end},
    {"sparse_: a share of NaN", "a share from 0 to 1 is needed",
      function() init.sparse_(moth.ones(3, 2), 0 / 0) end},
    {"spectral_norm: no steps", bad("spectral_norm", "n_power_iterations",
      "a number from 1 on is needed, got 0"),
      function() nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2), "weight", 0) end},
    {"clip_grad_norm_: a norm of NaN", bad("clip_grad_norm_", "norm_type", "is NaN"), function()
      local p = parameter(2)
      p.grad = moth.ones(2)
      nn.utils.clip_grad_norm_({p}, 1, 0 / 0)
    end},
    {"clip_grad_value_: a negative bound", bad("clip_grad_value_", "clip_value",
      "a number from 0 on is "
      .. "needed, got -1"), function() nn.utils.clip_grad_value_({parameter(2)}, -1) end},
  }
end)

describe("a batch raises for", function()
  local collate = data.default_collate
  refused {
    {"samples that are no list",
      "bad argument 'samples' to 'default_collate' (a list of samples is "
      .. "needed, got 3", function() collate(3) end},
    {"another number of components", "sample 1 of a batch has 2 components, sample 2 has 1",
      function() collate {{1, 2, n = 2}, {1, n = 1}} end},
    {"a missing component", "component 2 of sample 1 of a batch is nil",
      function() collate {{1, nil, n = 2}, {1, 2, n = 2}} end},
    {"tensors of two shapes", "samples 1 and 2 of a batch cannot be combined: f32 (2) and f32 (3)",
      function() collate {moth.ones(2), moth.ones(3)} end},
    {"tensors of two dtypes", "samples 1 and 2 of a batch cannot be combined: f32 (2) and i64 (2)",
      function() collate {moth.ones(2), moth.ones(2, {dtype = moth.int64})} end},
    {"a number after a tensor", "samples 1 and 3 of a batch cannot be combined: f32 (2) and 5",
      function() collate {moth.ones(2), moth.ones(2), 5} end},
    {"a tensor after numbers", "samples 1 and 2 of a batch cannot be combined: 1 and f32 (1)",
      function() collate {1, moth.ones(1)} end},
    {"a boolean after numbers", "samples 1 and 3 of a batch cannot be combined: 1 and true",
      function() collate {1, 2, true} end},
    {"a text after tables", "samples 1 and 2 of a batch cannot be combined: a table and a string",
      function() collate {{a = 1}, "b"} end},
    {"another name", "samples 1 and 2 of a batch cannot be combined: a table and a table",
      function() collate {{a = 1}, {a = 1, b = 2}} end},
    {"a missing name", "samples 1 and 3 of a batch cannot be combined: a table and a table",
      function() collate {{a = 1, b = 1}, {a = 1, b = 2},
      {a = 1}} end},
    {"a sampler without iter", "iter", function() data.Sampler():iter() end},
    {"a sampler without len", "len", function() data.Sampler():len() end},
  }
end)

describe("a distribution raises for", function()
  refused {
    {"a transform that is none",
      "bad argument 'parts[2]' to 'ComposeTransform' (a transform is needed, got 5",
      function() D.ComposeTransform {D.ExpTransform(), 5} end},
    {"a base that is no transform",
      "bad argument 'base_transform' to 'IndependentTransform' (a transform is",
      function() D.IndependentTransform(5, 1) end},
    {"a value that is no tensor", "bad argument 'x' to 'ExpTransform' (a tensor is needed, got 5",
      function() D.ExpTransform()(5) end},
    {"a cache of 2", "bad argument 'cache_size' to 'ExpTransform' (0 or 1 is needed, got 2",
      function() D.ExpTransform(2) end},
    {"a cumulative function of no distribution", "bad argument 'distribution' to "
      .. "'CumulativeDistributionTransform' (a distribution is needed, got 5",
      function() D.CumulativeDistributionTransform(5) end},
    {"a transform without a Jacobian", "log_abs_det_jacobian",
      function() D.AbsTransform():log_abs_det_jacobian(moth.ones(1), moth.ones(1)) end},
    {"a divergence without a formula", "Normal", function()
      D.kl_divergence(D.Normal(0, 1), D.Poisson(moth.tensor(2.0)))
    end},
  }
end)

describe("an index raises for", function()
  local x = moth.rand(3, 4)
  local T, F64 = moth.tensor, {dtype = moth.float64}
  refused {
    {"a mask of other sizes", "the mask (2) does not have the sizes of f32 (3, 4) from dim 1 on",
      function() return x[T {true, false}] end},
    {"a mask of other sizes at the second dimension",
      "the mask (3) does not have the sizes of f32 (3, 4) from dim 2 on",
      function() return x[{{}, T {true, false, true}}] end},
    {"a mask of more dimensions", "too many indices for the 2 dimensions of f32 (3, 4)",
      function() return x[moth.ones(3, 4, 1):bool()] end},
    {"floating positions", "convert with :long()", function() return x[T {1.5, 2}] end},
    {"float64 positions of index_select",
      "integers are needed as positions, got f64 (2); convert with "
      .. ":long()", function() return x:index_select(1, T({1, 2}, F64)) end},
    {"position 0", "bad argument", function() return x:index_select(1, T {0LL}) end},
    {"a position beyond", "bad argument", function() return x:index_select(1, T {4LL}) end},
    {"a mask that is none", "a mask is a bool tensor, got f32 (3, 4)",
      function() return x:masked_fill(x, 0) end},
    {"a fraction for an integer tensor", "does not fit", function()
      local i = moth.zeros(2):long()
      i[T {1LL}] = 1.5
    end},
    {"a number beyond the dtype", "300 does not fit", function()
      local i = moth.zeros(2):byte()
      i[T {1LL}] = 300
    end},
  }
end)

describe("a write in place raises for", function()
  local function leaf() return moth.ones(2, 3, {requires_grad = true}) end
  refused {
    {"a leaf", "a leaf that requires grad cannot be written in place",
      function() leaf():add_(1) end},
    {"a view of a leaf", "a view of a leaf that requires grad cannot be written in place",
      function() leaf()[1]:add_(1) end},
    {"an expanded tensor", "f32 (3, 2) cannot be written in place: its elements overlap",
      function() moth.ones(1, 2):expand(3, 2):add_(1) end},
    {"one of several views", "one of several views (of unbind, split or chunk) cannot be written",
      function() (leaf() * 2):unbind(1)[2]:add_(1) end},
    {"a view made under no_grad", "a view made under no_grad cannot be written in place", function()
      local y = leaf() * 2
      local view = moth.no_grad(function() return y[1] end)
      view:add_(1)
    end},
    {"a result of a Function", "an output of a Function cannot be written in place", function()
      local Twice = moth.class("Twice", autograd.Function)
      function Twice.forward(_, a, b) return a * 2, b * 2 end
      function Twice.backward(_, g, h) return g * 2, h * 2 end
      Twice.apply(leaf(), leaf()):add_(1)
    end},
    {"the gradients of out", "gradients cannot flow through `out`",
      function() moth.mul(leaf(), leaf(), {out = moth.empty(2, 3)}) end},
  }
end)
