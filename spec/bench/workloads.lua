--- Reads workloads.txt, the table of workloads (its header explains the format).

local here = (arg[0] or ""):match "^(.*)/" or "."

local workloads = {}

-- Lines without comments, each with its indented continuations.
local function lines_of(path)
  local lines = {}
  for line in io.lines(path) do
    if line:find "^%s+%S" then
      lines[#lines] = lines[#lines] .. line:gsub("^%s+", " ")
    elseif line:find "%S" and not line:find "^#" then
      lines[#lines + 1] = line
    end
  end
  return lines
end

local function split(text, pattern)
  local list = {}
  for word in text:gmatch(pattern) do list[#list + 1] = word end
  return list
end

-- "[op] also=+scope" is the group's name and the additional variants of all of its rows.
local function heading_of(line)
  local group, variants = line:match "^%[(%w+)%]%s*(.*)$"
  return group, group and split(variants:gsub("also=", ""), "[^,]+")
end

-- "op op/add/1e4 *[10000] dim=1 -- text" as a table.
local function parse(line, group, variants)
  local head, text = line:match "^(.-)%s+%-%-%s+(.*)$"
  local words = split(head or line, "%S+")
  local row = {
    kind = words[1], name = words[2], group = group, text = text or "", inputs = {}, options = {},
    variants = {"", unpack(variants)},
  }
  for i = 3, #words do
    local key, value = words[i]:match "^(%w+_?%w*)=(.*)$"
    if key == "also" then
      for variant in value:gmatch "[^,]+" do table.insert(row.variants, variant) end
    elseif key then
      row.options[key] = tonumber(value) or value
    else
      table.insert(row.inputs, words[i])
    end
  end
  row.fn = row.options.fn or row.name:match "^[^/]+/([^/]+)"
  return row
end

local function derived(row, suffix, backward)
  local copy = {}
  for key, value in pairs(row) do copy[key] = value end
  copy.name, copy.backward = row.name .. suffix, backward
  return copy
end

--- All workloads in the table's order: lists of {name, group, kind, fn, inputs, options, variants,
-- text, backward}. An `op` line defines two.
function workloads.read(path)
  local rows, group, variants = {}, nil, nil
  for _, line in ipairs(lines_of(path or here .. "/workloads.txt")) do
    local heading, all = heading_of(line)
    if heading then
      group, variants = heading, all
    else
      local row = parse(line, group, variants)
      if row.kind ~= "op" then
        rows[#rows + 1] = row
      else
        rows[#rows + 1] = derived(row, "/fwd", false)
        if line:find("*[", 1, true) then rows[#rows + 1] = derived(row, "/fwdbwd", true) end
      end
    end
  end
  return rows
end

local DTYPES = {f32 = "float32", tf32 = "float32", bf16 = "bfloat16", f16 = "float16"}

--- The inputs that a row describes, as tensors.
-- @param gradients  true if inputs with a star require gradients
function workloads.inputs(row, gradients)
  local moth = require "moth"
  local list, dtype = {}, moth[DTYPES[row.options.dtype or "f32"]]
  moth.set_float32_matmul_precision(row.options.dtype == "tf32" and "high" or "highest")
  for i, spec in ipairs(row.inputs) do
    local kind, sizes, bound = spec:match "^([*%l]*)%[([%d,]*)%]<?(%d*)$"
    local shape = {}
    for size in sizes:gmatch "%d+" do shape[#shape + 1] = tonumber(size) end
    if kind == "ids" then
      list[i] = moth.randint(1, tonumber(bound) + 1, shape)
    elseif kind == "mask" or kind == "bits" then
      list[i] = moth.rand(shape):lt(0.5)
      if kind == "bits" then list[i] = list[i]:float() end
    else
      list[i] = moth.randn(shape, {dtype = dtype,
        requires_grad = gradients == true and kind == "*"})
    end
  end
  return list
end

--- Returns true if the name contains one of the patterns, which | separates; "" matches every
-- name.
function workloads.matches(name, patterns)
  for pattern in patterns:gmatch "[^|]+" do
    if name:find(pattern) then return true end
  end
  return patterns == ""
end

return workloads
