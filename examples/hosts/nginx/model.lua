--- model.lua -- the network: rows of 64 numbers -> the probabilities of 10 classes. Rows and
-- weights are strings of float32.

local ffi = require "ffi"
local moth = require "moth"
local nn, F = moth.nn, moth.nn.functional

moth.set_num_threads(1) -- the processes run in parallel; threads must not exist before the fork

local net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                          nn.Linear(256, 10))
local optimizer = moth.optim.SGD(net:parameters(), {lr = 0.05, momentum = 0.9})
local model = {}

function model.rows(bytes, n) return moth.frombuffer(bytes, {dtype = moth.float32}):view(-1, n) end

function model.bytes(x)
  return ffi.string(ffi.cast("char *", x:contiguous():data_ptr()), x.nbytes)
end

--- Loads the weights; without a file, saves the initial weights.
function model.load(path)
  local file = io.open(path)
  if not file then return moth.save(net:state_dict(), path) end
  file:close()
  net:load_state_dict(moth.load(path))
end

function model.predict(bytes) return model.bytes(net(model.rows(bytes, 64)):softmax(2)) end

--- The loss of examples; a row contains the inputs and the class.
function model.loss(bytes)
  local rows = model.rows(bytes, 65)
  return F.cross_entropy(net(rows:narrow(2, 1, 64)), rows:select(2, 65):long())
end

function model.learn(bytes)
  optimizer:zero_grad()
  model.loss(bytes):backward()
  nn.utils.clip_grad_norm_(net:parameters(), 1)
  optimizer:step()
end

function model.weights() return model.bytes(nn.utils.parameters_to_vector(net:parameters())) end

function model.set_weights(bytes)
  nn.utils.vector_to_parameters(model.rows(bytes, 1):flatten(), net:parameters())
end

return model
