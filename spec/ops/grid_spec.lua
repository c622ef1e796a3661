-- grid_sample and affine_grid. PyTorch's values and derivatives are in spec/golden/.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local F = moth.nn.functional

local DEVICES = cuda.here and { "cpu", "cuda" } or { "cpu" }
local function refuses(text, f) assert.has_error_like(f, text) end

-- The gradients of both inputs of a sum of squares.
local function input_gradients(x, grid, options, create_graph)
  x, grid = x:detach():requires_grad_(), grid:detach():requires_grad_()
  local y = F.grid_sample(x, grid, options)
  local dx, dgrid = moth.autograd.grad((y * y):sum(), { x, grid }, { create_graph = create_graph })
  if type(dx) == "table" then dx, dgrid = unpack(dx) end
  return dx:detach(), dgrid:detach()
end

describe("affine_grid", function()
  it("with the identity makes grid_sample return the input", function()
    for _, align in ipairs { true, false } do
      local x = moth.randn(2, 3, 4, 5, { dtype = moth.float64 })
      local eye = moth.eye(2, 3, { dtype = moth.float64 }):expand(2, 2, 3)
      local grid = F.affine_grid(eye, x.shape, align)
      assert.equal("(2, 4, 5, 2)", tostring(grid.shape))
      for _, mode in ipairs { "bilinear", "nearest", "bicubic" } do
        local y = F.grid_sample(x, grid, { mode = mode, align_corners = align })
        assert.is_true(y:allclose(x), mode)
      end
    end
    local volume = moth.randn(1, 2, 3, 4, 5)
    local grid = F.affine_grid(moth.eye(3, 4):expand(1, 3, 4), volume.shape)
    assert.is_true(F.grid_sample(volume, grid):allclose(volume, 1e-4, 1e-5))
  end)

  it("rotates images by the matrix", function()
    local x = moth.range(1, 4):view(1, 1, 2, 2)
    local turn = moth.tensor { { { 0, -1, 0 }, { 1, 0, 0 } } }
    local y = F.grid_sample(x, F.affine_grid(turn, { 1, 1, 2, 2 }))
    assert.is_true(y:allclose(moth.tensor { { { { 2, 4 }, { 1, 3 } } } }))
  end)

  it("raises for wrong matrices and sizes", function()
    refuses("'theta' to 'affine_grid' %(%(2, 2, 3%) is needed, got f32 %(2, 3, 3%)",
      function() F.affine_grid(moth.ones(2, 3, 3), { 2, 1, 4, 4 }) end)
    refuses("'size' to 'affine_grid' %(%(N, C, H, W%)",
      function() F.affine_grid(moth.ones(2, 2, 3), { 2, 1, 4 }) end)
  end)
end)

describe("grid_sample", function()
  before_each(function() moth.manual_seed(2) end)

  it("has the same gradients in one op as written with ops", function()
    local x = moth.randn(2, 20, 5, 6, { dtype = moth.float64 })
    local grid = moth.randn(2, 7, 11, 2, { dtype = moth.float64 })
    for _, device in ipairs(DEVICES) do
      for _, mode in ipairs { "bilinear", "nearest", "bicubic" } do
        for _, padding in ipairs { "zeros", "border", "reflection" } do
          local options = { mode = mode, padding_mode = padding }
          local dx, dgrid = input_gradients(x, grid, options, false)
          local other, turned = input_gradients(x:to(device), grid:to(device), options, true)
          assert.is_true(dx:allclose(other:cpu(), 1e-9, 1e-11), mode .. padding)
          assert.is_true(dgrid:allclose(turned:cpu(), 1e-9, 1e-11), mode .. padding)
        end
      end
    end
  end)

  it("has second derivatives in any dtype", function()
    for _, dtype in ipairs { moth.float32, moth.bfloat16 } do
      local x, grid = moth.randn(1, 2, 3, 4):to(dtype), (moth.rand(1, 2, 3, 2)):to(dtype)
      local dx, dgrid = input_gradients(x, grid, {}, true)
      local other, turned = input_gradients(x, grid, {}, false)
      assert.is_true(dx:allclose(other, 0.05, 0.05) and dgrid:allclose(turned, 0.05, 0.05))
    end
  end)

  it("has the same bits for any number of threads", function()
    local x, grid = moth.randn(3, 40, 30, 30), moth.rand(3, 50, 50, 2) * 2 - 1
    local before, found = moth.get_num_threads(), {}
    for k = 1, 2 do
      moth.set_num_threads(k == 1 and 1 or 4)
      local dx, dgrid = input_gradients(x, grid, {})
      found[k] = { F.grid_sample(x, grid), dx, dgrid }
    end
    moth.set_num_threads(before)
    for i = 1, 3 do assert.is_true(found[1][i]:equal(found[2][i])) end
  end)

  it("has the same gradient of images twice on a GPU", function()
    if not cuda.here then return pending(cuda.why) end
    local x = moth.randn(1, 3, 8, 8):to "cuda"
    local grid = (moth.rand(1, 30, 30, 2) * 2 - 1):to "cuda"
    assert.is_true((input_gradients(x, grid, {})):equal((input_gradients(x, grid, {}))))
  end)

  describe("near elements outside of the image", function()
    local inf, nan = math.huge, 0 / 0
    local MODES = { "bilinear", "nearest", "bicubic" }

    -- Calls f(put, mode, create_graph); put(list) makes a tensor on a device with a gradient.
    local function everywhere(f)
      for _, device in ipairs(DEVICES) do
        for _, mode in ipairs(MODES) do
          for _, create_graph in ipairs { false, true } do
            f(function(list)
              return moth.tensor(list, { device = device }):requires_grad_()
            end, mode, create_graph)
          end
        end
      end
    end

    it("no gradient passes from outside to elements inside, also not an infinite one", function()
      local plane = {}
      for i = 1, 4 do plane[i] = { i, 2, 3, i } end
      everywhere(function(put, mode, create_graph)
        local x, grid = put { { plane } }, put { { { { 0.1, 0.2 }, { 3, 3 } } } }
        local y = F.grid_sample(x, grid, mode)
        local dx, dgrid = moth.autograd.grad(y, { x, grid }, {
          grad_outputs = put { { { { 1, inf } } } }:detach(), create_graph = create_graph })
        assert.is_true(dx:isfinite():all():item(), mode)
        assert.near(1, dx:sum():item(), 1e-6)
        assert.same({ 0, 0 }, dgrid[{ 1, 1, 2 }]:tolist())
      end)
    end)

    it("grid positions outside have no gradient, for any first element", function()
      everywhere(function(put, mode, create_graph)
        local x, grid = put { { { { nan, 1 }, { 1, 1 } } } }, put { { { { 5, 5 }, { -9, 0 } } } }
        local dgrid = moth.autograd.grad(F.grid_sample(x, grid, mode):sum(), grid,
          { create_graph = create_graph })
        assert.same({ 0, 0 }, dgrid[{ 1, 1, 1 }]:tolist(), mode)
        assert.same({ 0, 0 }, dgrid[{ 1, 1, 2 }]:tolist(), mode)
      end)
    end)

    it("elements inside with the weight 0 are still read", function()
      local eye = moth.eye(2, 3):unsqueeze(1)
      local grid = F.affine_grid(eye, { 1, 1, 2, 3 }, true)
      for _, device in ipairs(DEVICES) do
        local x = moth.tensor({ { { { 1, inf, 1 }, { 1, 1, 1 } } } }, { device = device })
        local y = F.grid_sample(x, grid:to(device), { align_corners = true }):cpu()[{ 1, 1 }]
        assert.is_true(y[{ 1, 1 }]:isnan():item(), device)
        assert.equal(inf, y[{ 1, 2 }]:item(), device)
        assert.same({ 1, 1, 1 }, y[2]:tolist(), device)
        x = x * 0 + 1
        x:requires_grad_()
        y = F.grid_sample(x, grid:to(device), { align_corners = true })
        local dy = moth.tensor({ { { { 1, inf, 1 }, { 1, 1, 1 } } } }, { device = device })
        local dx = moth.autograd.grad(y, x, { grad_outputs = dy }):cpu()[{ 1, 1 }]
        assert.is_true(dx[{ 1, 3 }]:isnan():item(), device)
        assert.equal(inf, dx[{ 1, 2 }]:item(), device)
        assert.same({ 1, 1 }, { dx[{ 1, 1 }]:item(), dx[{ 2, 1 }]:item() }, device)
      end
    end)
  end)

  it("gradients on a GPU equal the CPU's, also for many positions at one element", function()
    if not cuda.here then return pending(cuda.why) end
    for _, shape in ipairs { { 2, 11, 5, 6 }, { 2, 3, 3, 4, 5 } } do
      local x, n = moth.randn(shape, { dtype = moth.float64 }), #shape - 2
      local grid = moth.randn(n == 2 and { 2, 9, 20, 2 } or { 2, 3, 5, 8, 3 },
        { dtype = moth.float64 })
      for _, mode in ipairs { "bilinear", "nearest", "bicubic" } do
        for _, padding in ipairs { "zeros", "border", "reflection" } do
          local options = { mode = mode, padding_mode = padding }
          local dx, dgrid = input_gradients(x, grid, options)
          local other, turned = input_gradients(x:to "cuda", grid:to "cuda", options)
          assert.is_true(dx:allclose(other:cpu(), 1e-9, 1e-11), mode .. padding)
          assert.is_true(dgrid:allclose(turned:cpu(), 1e-9, 1e-11), mode .. padding)
        end
      end
    end
  end)

  it("gradients on a GPU need little memory, for any number of channels", function()
    if not cuda.here then return pending(cuda.why) end
    local x = moth.randn(1, 64, 16, 16, { device = "cuda" }):requires_grad_()
    local grid = (moth.rand(1, 64, 64, 2, { device = "cuda" }) * 2 - 1):requires_grad_()
    local y = F.grid_sample(x, grid)
    local dy = moth.ones_like(y)
    moth.collect()
    moth.cuda.empty_cache()
    moth.cuda.set_memory_limit(moth.cuda.memory_allocated() + 1024 * 1024)
    local ok, why = pcall(y.backward, y, dy)
    moth.cuda.set_memory_limit(0)
    assert.is_true(ok, why)
    assert.equal("(1, 64, 16, 16)", tostring(x.grad.shape))
  end)

  it("inputs may have any layout and half types", function()
    local x, grid = moth.randn(2, 3, 6, 5), moth.rand(2, 4, 3, 2) * 2 - 1
    local y = F.grid_sample(x, grid)
    local turned = x:transpose(3, 4):contiguous():transpose(3, 4)
    assert.is_true(y:equal(F.grid_sample(turned, grid:flip(2):flip(2))))
    assert.is_true(y:equal(F.grid_sample(x:contiguous { memory_format = moth.channels_last },
      grid)))
    local half = F.grid_sample(x:bfloat16(), grid:bfloat16())
    assert.equal(moth.bfloat16, half.dtype)
  end)

  it("can be recorded", function()
    local x = moth.randn(1, 2, 5, 5)
    local step = moth.capture(function(grid) return (F.grid_sample(x, grid)) end)
    for _ = 1, 3 do
      local grid = moth.rand(1, 2, 2, 2)
      assert.is_true(step(grid):equal(F.grid_sample(x, grid)))
    end
  end)

  it("a NaN position has a NaN result, an infinite position has none", function()
    local x = moth.ones(1, 1, 3, 3)
    for _, mode in ipairs { "bilinear", "nearest", "bicubic" } do
      local y = F.grid_sample(x, moth.tensor { { { { 0 / 0, 0 }, { math.huge, 0 } } } }, mode)
      assert.is_true(y[{ 1, 1, 1, 1 }]:isnan():item(), mode)
      assert.equal(0, y[{ 1, 1, 1, 2 }]:item(), mode)
    end
  end)

  it("wrong grids and images raise", function()
    refuses("'grid' to 'grid_sample' %(%(N, OH, OW, 2%) is needed, got f32 %(1, 2, 2, 3%)",
      function() F.grid_sample(moth.ones(1, 1, 3, 3), moth.ones(1, 2, 2, 3)) end)
    refuses("'input' to 'grid_sample' %(%(N, C, H, W%) or %(N, C, D, H, W%) is needed",
      function() F.grid_sample(moth.ones(3, 3), moth.ones(1, 2, 2, 2)) end)
    refuses("'grid' to 'grid_sample' %(1 sample as in",
      function() F.grid_sample(moth.ones(1, 1, 3, 3), moth.ones(2, 2, 2, 2)) end)
    refuses("'mode' to 'grid_sample'",
      function() F.grid_sample(moth.ones(1, 1, 3, 3), moth.ones(1, 2, 2, 2), "cubic") end)
    for _, side in ipairs { 0, 2 ^ 53 } do -- the ops of its gradient
      refuses("'size' to 'grid_positions'", function()
        require("moth.binding.bind").ops.grid_positions(moth.ones(1, 2, 2, 2), { 2 ^ 31 - 1, side })
      end)
    end
  end)
end)
