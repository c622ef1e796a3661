--- modules_spec.lua -- modules, losses, packed sequences and nn.init have the same results on a GPU
-- as on the CPU: tensors that they create are on the device of their inputs.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local nn, randn = moth.nn, moth.randn

-- A value with copies of its tensors on another device.
local function moved(x, device)
  if moth.is_tensor(x) then return x:to(device):clone() end
  if type(x) ~= "table" or getmetatable(x) ~= nil then return x end
  local out = {}
  for key, value in pairs(x) do out[key] = moved(value, device) end
  return out
end

local function tensors_of(values, list)
  for _, x in ipairs(values) do
    if moth.is_tensor(x) then list[#list + 1] = x
    elseif type(x) == "table" then tensors_of(x, list) end
  end
  return list
end

local function agree(here, there)
  assert.equal(#here, #there)
  for i, x in ipairs(here) do
    assert.equal("cuda", there[i].device.type)
    local y = there[i]:detach():cpu():double()
    assert.is_true(moth.allclose(x:detach():double(), y, {rtol = 1e-4, atol = 1e-5}),
      "value " .. i)
  end
end

-- The results of a copy of the module on that device, and the gradients of the sum of their
-- squares for the first argument and the parameters.
local function run(module, args, device)
  local net, list, total = moth.deepcopy(module):to(device), moved(args, device), nil
  if list[1]:is_floating_point() then list[1]:requires_grad_() end
  local results = tensors_of({net(unpack(list))}, {})
  for _, y in ipairs(results) do
    if y.requires_grad then total = (total or 0) + (y * y):sum() end
  end
  total:backward()
  local all = {unpack(results)}
  for _, x in ipairs {list[1], unpack(net:parameters())} do all[#all + 1] = x.grad end
  return all
end

local late = moth.tensor {{false, false, true}, {false, false, false}}
local causal = moth.ones(3, 3):triu(1):bool()
local classes = moth.tensor {1LL, 4LL, 2LL}
local first = {batch_first = true}

-- A module, its constructor's arguments, and the inputs of a call.
local CASES = {
  {"MultiheadAttention", {8, 2, first}, randn(2, 3, 8), randn(2, 3, 8), randn(2, 3, 8),
    {key_padding_mask = late, attn_mask = causal}},
  {"MultiheadAttention", {8, 2, {add_bias_kv = true, add_zero_attn = true}}, randn(3, 2, 8),
    randn(3, 2, 8), randn(3, 2, 8), {key_padding_mask = late}},
  {"Transformer", {{d_model = 8, nhead = 2, num_encoder_layers = 1, num_decoder_layers = 1,
    dim_feedforward = 16, dropout = 0, batch_first = true}}, randn(2, 3, 8), randn(2, 3, 8),
    {tgt_mask = causal, src_key_padding_mask = late, memory_key_padding_mask = late}},
  {"AdaptiveLogSoftmaxWithLoss", {8, 10, {3, 6}, {div_value = 2}}, randn(3, 8), classes},
  {"Bilinear", {3, 4, 2}, randn(5, 3), randn(5, 4)},
  {"EmbeddingBag", {10, 3, {mode = "max"}}, moth.tensor {{1LL, 4LL}, {7LL, 2LL}}},
  {"Embedding", {10, 3, {max_norm = 1, padding_idx = 1}}, classes},
  {"LPPool2d", {2, 2}, randn(2, 3, 6, 6)},
  {"Fold", {{4, 4}, 2}, randn(2, 12, 9)},
  {"LocalResponseNorm", {2}, randn(2, 3, 4, 4)},
  {"InstanceNorm2d", {3, {track_running_stats = true}}, randn(2, 3, 4, 4)},
  {"Upsample", {{scale_factor = 2, mode = "bicubic"}}, randn(2, 3, 4, 4)},
  {"Conv2d", {3, 2, 3, {padding = 1, padding_mode = "circular"}}, randn(2, 3, 4, 4)},
  {"Conv1d", {3, 2, 4, {padding = "same"}}, randn(2, 3, 5)},
  {"ConvTranspose1d", {3, 2, 3, {stride = 2}}, randn(2, 3, 4), {output_size = {10}}},
  {"LSTM", {3, 4, {proj_size = 2, bidirectional = true}}, randn(5, 2, 3)},
  {"TripletMarginLoss", {{swap = true}}, randn(3, 4), randn(3, 4), randn(3, 4)},
  {"MultiLabelMarginLoss", {}, randn(2, 4),
    moth.tensor {{1LL, 3LL, -1LL, 1LL}, {2LL, -1LL, 1LL, 1LL}}},
  {"MultiMarginLoss", {{weight = moth.rand(4)}}, randn(3, 4), classes},
  {"CrossEntropyLoss", {{weight = moth.rand(4), label_smoothing = 0.1}}, randn(3, 4), classes},
  {"LinearCrossEntropyLoss", {4, 6}, randn(3, 4), classes},
  {"GaussianNLLLoss", {}, randn(2, 4), randn(2, 4), moth.rand(2, 4)},
  {"PoissonNLLLoss", {{full = true}}, randn(2, 4), moth.rand(2, 4)},
}

describe("on a GPU", function()
  if not cuda.here then
    pending("is the CPU's: " .. cuda.why)
    return
  end

  for _, case in ipairs(CASES) do
    it("nn." .. case[1] .. " gives what it gives on the CPU", function()
      local module, args = nn[case[1]](unpack(case[2])), {unpack(case, 3)}
      agree(run(module, args, "cpu"), run(module, args, "cuda"))
    end)
  end

  it("sequences are padded, packed and unpacked", function()
    local rnn, a, b, gru = nn.utils.rnn, randn(3, 2), randn(1, 2), nn.GRU(2, 3)
    local function all(device)
      local x = moved({a, b}, device)
      local packed = rnn.pack_sequence(x)
      local results = {rnn.pad_sequence(x), rnn.unpack_sequence(packed),
        (rnn.pad_packed_sequence(packed, {total_length = 5})),
        (rnn.pad_packed_sequence(rnn.pack_sequence({x[2], x[1]}, false))),
        (rnn.pad_packed_sequence((moth.deepcopy(gru):to(device)(packed))))}
      return tensors_of(results, {})
    end
    agree(all "cpu", all "cuda")
  end)

  for name, args in pairs {uniform_ = {}, normal_ = {}, constant_ = {3}, eye_ = {},
      xavier_uniform_ = {}, kaiming_normal_ = {}, trunc_normal_ = {}, orthogonal_ = {},
      sparse_ = {0.5}} do
    it("nn.init." .. name .. " draws what it draws on the CPU", function()
      local function drawn(device)
        moth.manual_seed(1)
        return {nn.init[name](moth.empty({4, 4}, {device = device}), unpack(args))}
      end
      agree(drawn "cpu", drawn "cuda")
    end)
  end
end)
