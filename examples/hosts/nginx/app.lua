--- app.lua -- the requests: /predict in micro-batches, /learn by the first worker.

local cjson = require("cjson.safe").new()
local moth = require "moth"
local model = require "model"
local semaphore = require "ngx.semaphore"

cjson.encode_invalid_numbers "null" -- NaN becomes null
local app, shared = {}, ngx.shared.moth
local options, key -- set at each start and HUP; workers with the same key have the same weights
local version = 0  -- the number of training steps in this worker's weights

-- Runs f without gradients, then frees its tensors.
local function compute(f, ...) return moth.scope(moth.no_grad, f, ...) end

--- Runs in the master, at the start and after a HUP. If it fails after a HUP, the old workers
-- continue.
function app.open(given)
  options, key = given, "weights" .. shared:incr("generation", 1, 0)
  model.load(ngx.config.prefix() .. options.weights)
  moth.set_memory_limit(options.memory)
  compute(model.predict, ("\0"):rep(4 * 64)) -- the first use of an op is slower
  return app
end

-- Loads the newest learned weights, between two forwards.
local function refresh()
  local newest = shared:get(key .. "version") or 0
  if newest ~= version then compute(model.set_weights, shared:get(key)) end
  version = newest
end

local function learn(stopping)
  local examples = {}
  for i = 1, stopping and 0 or 32 do examples[i] = shared:lpop "examples" end
  if #examples == 0 then return end
  moth.scope(model.learn, table.concat(examples))
  assert(shared:set(key, compute(model.weights)))
  version = shared:incr(key .. "version", 1, 0)
end

function app.start()
  refresh() -- this worker may replace a crashed worker
  if ngx.worker.id() == 0 then ngx.timer.every(0.01, learn) end
end

local batch -- collects the rows of several requests; the first request waits, then runs all rows

local function run(b)
  if b == batch then batch = nil end
  refresh()
  b.ok, b.output = pcall(compute, model.predict, table.concat(b.inputs))
  if b.done then b.done:post(#b.inputs) end
end

local function predict(bytes)
  local b = batch or {inputs = {}, size = 0}
  local first, from, size = b ~= batch, b.size / 64 * 10, #bytes / 64 * 10
  batch, b.size = b, b.size + #bytes
  table.insert(b.inputs, bytes)
  if b.size >= options.batch * 4 * 64 then
    run(b)
  elseif first then
    ngx.sleep(options.wait)
    if not b.output then run(b) end
  else
    b.done = b.done or semaphore.new()
    b.done:wait(10)
  end
  return b.ok and b.output:sub(from + 1, from + size) or error(b.output, 0)
end

local function refuse(status, message) error({status = status, message = message}, 0) end

-- The rows of the body: float32, or JSON with the lists `input` and, for examples, `target`.
local function read(width)
  ngx.req.read_body()
  local body = ngx.req.get_body_data() or ""
  local raw, ok = ngx.var.content_type == "application/octet-stream", true
  if not raw then
    ok, body = pcall(compute, function()
      local json = assert(cjson.decode(body))
      local x = moth.tensor(json.input, {dtype = moth.float32}):view(-1, 64)
      if width == 65 then x = moth.cat({x, moth.tensor(json.target):view(-1, 1)}, 2) end
      return model.bytes(x)
    end)
  end
  local rows = #body / (4 * width)
  if not ok or rows == 0 or rows % 1 ~= 0 then refuse(400, ok and "rows are incomplete" or body) end
  if rows > options.rows then refuse(413, "more than " .. options.rows .. " rows") end
  return body, rows, raw
end

function app.predict()
  local bytes, _, raw = read(64)
  local output = predict(bytes)
  if raw then ngx.header.content_type = "application/octet-stream" return output end
  return cjson.encode {output = compute(function() return model.rows(output, 10):tolist() end)}
end

function app.learn()
  local bytes, rows = read(65)
  local ok, loss = pcall(compute, function() return model.loss(bytes):item() end)
  if not ok or not (loss < 1e30) then refuse(400, ok and "the loss is not finite" or loss) end
  if shared:llen "examples" + rows > options.queue then refuse(503, "too many examples wait") end
  for at = 1, #bytes, 4 * 65 do shared:rpush("examples", bytes:sub(at, at + 4 * 65 - 1)) end
  ngx.status = 202
  return cjson.encode {loss = loss}
end

function app.answer(handler)
  local ok, body = pcall(handler)
  if not ok then
    local message = type(body) == "table" and body.message or tostring(body)
    ngx.status = message:find("memory limit", 1, true) and 503 or body.status or 500
    if ngx.status >= 500 then ngx.log(ngx.ERR, message) end
    body = cjson.encode {error = (message:gsub("^[^ ]*:%d+: ", ""))}
  end
  ngx.header.content_length = #body
  ngx.print(body)
end

return app
