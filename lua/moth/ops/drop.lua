--- drop.lua -- moth.ops.stochastic_depth, drop_block2d and drop_block3d: regularization that drops
-- whole branches or blocks in training. (Huang et al. 2016, Ghiasi et al. 2018.)

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"

local ops = bind.ops
local drop = {}

local INPUT = {"tensor", "input", "(N, ...)"}
local TRAINING = {"bool", "training", "is anything dropped?", default = true}

local function check_share(fname, p)
  if p >= 0 and p <= 1 then return end
  errors.argument(fname, "p", ("a share from 0 to 1 is needed, got %g"):format(p), "E_DOMAIN")
end

--- moth.ops.stochastic_depth(input, p, mode): the input, scaled, or 0.
drop.stochastic_depth = define {
  name = "stochastic_depth",
  doc = "Drops the whole input (mode \"batch\") or single samples of it (\"row\") with "
    .. "probability p; "
    .. "the rest is divided by 1 - p.",
  examples = "moth.rand(4, 2), 0.5, 'row'\nmoth.rand(4, 2), 0.5, 'batch', {training = false}",
  args = {INPUT, {"float", "p", "probability of a drop"},
          {"enum", "mode", "the dropped unit", choices = {"batch", "row"}, required = true},
          TRAINING},
  run = function(input, p, mode, training)
    check_share("stochastic_depth", p)
    if not training or p == 0 then return input end
    local size = {}
    for i = 1, input:dim() do size[i] = i == 1 and mode == "row" and input:size(1) or 1 end
    local noise = ops.empty(size, input.dtype, input.device):bernoulli_(1 - p)
    if p < 1 then noise:div_(1 - p) end
    return input * noise
  end,
}

-- drop_block2d and drop_block3d.
local function blocks(n)
  local fname = "drop_block" .. n .. "d"
  local pool = bind.ops["max_pool" .. n .. "d"]
  local shape = n == 2 and "(N, C, H, W)" or "(N, C, D, H, W)"
  local example = n == 2 and "moth.rand(2, 3, 8, 8), 0.1, 3" or "moth.rand(2, 3, 8, 8, 8), 0.1, 3"
  drop[fname] = define {
    name = fname,
    doc = "Sets blocks of neighbouring elements to 0, a share p of all; the rest is scaled.",
    examples = example .. "\n" .. example .. ", {inplace = true, eps = 1e-5, training = false}",
    args = {
      {"tensor", "input", shape},
      {"float", "p", "share of elements that are dropped"},
      {"int", "block_size", "length of a block's sides, odd"},
      {"bool", "inplace", "write into the input?", default = false},
      {"float", "eps", "keeps the scale finite", default = 1e-6},
      TRAINING,
    },
    scoped = true,
    run = function(input, p, block, inplace, eps, training)
      check_share(fname, p)
      if input:dim() ~= n + 2 then
        errors.refuse(fname, "input", shape .. " is needed", input, "E_SHAPE")
      end
      if not training or p == 0 then return input end
      local size, whole, inner = {input:size(1), input:size(2)}, 1, 1
      for i = 3, n + 2 do block = math.min(block, input:size(i)) end
      if block < 1 or block % 2 == 0 then
        errors.argument(fname, "block_size", "an odd number from 1 is needed, got " .. block,
          "E_DOMAIN")
      end
      for i = 3, n + 2 do
        size[i] = input:size(i) - block + 1
        whole, inner = whole * input:size(i), inner * size[i]
      end
      local pads, half = {}, (block - 1) / 2
      for i = 1, 2 * n do pads[i] = half end
      local noise = ops.empty(size, input.dtype, input.device)
        :bernoulli_(math.min(p * whole / (block ^ n * inner), 1))
      noise = 1 - pool(ops.pad(noise, pads), block, 1, half)
      local scale = noise:numel() / (eps + noise:sum())
      if inplace then return input:mul_(noise):mul_(scale) end
      return input * noise * scale
    end,
  }
end

blocks(2)
blocks(3)

return drop
