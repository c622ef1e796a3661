-- JSON and UTF-8: texts must be well-formed, in Lua (moth.json) and in the headers of safetensors
-- files, which C reads.

local json = require "moth.json"
local moth = require "moth"
local files = require "spec.support.files"

setup(files.setup)
teardown(files.teardown)

-- True if the bytes are one character: the shortest form of a code point that is no surrogate.
local function is_character(a, ...)
  local n, code = select("#", ...) + 1, a
  local wanted = a < 0x80 and 1 or a >= 0xc0 and a < 0xe0 and 2 or a >= 0xe0 and a < 0xf0 and 3
    or a >= 0xf0 and a < 0xf8 and 4
  if n ~= wanted then return false end
  if n > 1 then code = a % 2 ^ (7 - n) end
  for i = 1, n - 1 do
    local byte = (select(i, ...))
    if byte < 0x80 or byte > 0xbf then return false end
    code = code * 64 + byte % 64
  end
  local least = ({0, 0x80, 0x800, 0x10000})[n]
  return code >= least and code <= 0x10ffff and (code < 0xd800 or code > 0xdfff)
end

-- Sequences of 1 to 4 bytes around each bound, as lists.
local function sequences()
  local all, EDGES = {}, {0x20, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0}
  for lead = 0x7f, 0xff do
    all[#all + 1] = {lead}
    for _, second in ipairs(EDGES) do
      all[#all + 1] = {lead, second}
      for _, third in ipairs {0x7f, 0x80, 0xbf, 0xc0} do
        all[#all + 1] = {lead, second, third}
        for _, fourth in ipairs {0x7f, 0x80, 0xbf, 0xc0} do
          all[#all + 1] = {lead, second, third, fourth}
        end
      end
    end
  end
  return all
end

-- True if a list of bytes consists of complete characters.
local function is_text(bytes)
  local i = 1
  while i <= #bytes do
    local n
    for size = 1, math.min(4, #bytes - i + 1) do
      if is_character(unpack(bytes, i, i + size - 1)) then n = size end
    end
    if not n then return false, i end
    i = i + n
  end
  return true
end

describe("UTF-8", function()
  it("is read by the standard, and the first wrong byte is named", function()
    local right = 0
    for _, bytes in ipairs(sequences()) do
      local text = string.char(unpack(bytes))
      local good, at = is_text(bytes)
      if (json.decode('"' .. text .. '"') == text) ~= good or json.bad_utf8(text) ~= at then
        error(("%q of bytes %s"):format(text, table.concat(bytes, " ")))
      end
      if good then right = right + 1 end
    end
    assert.is_true(right > 500, right)
  end)

  it("is read by the same rules in names of tensors", function()
    for i, bytes in ipairs(sequences()) do
      local text = string.char(unpack(bytes))
      if i % 41 == 0 or #bytes == 2 and i % 3 == 0 then
        local path = files.write("name.safetensors", files.safetensors(('{"%s":{"dtype":"U8",'
          .. '"shape":[1],"data_offsets":[0,1]}}'):format(text), "\7"))
        local ok, file = pcall(moth.open, path)
        assert.equal((is_text(bytes)), ok, table.concat(bytes, " "))
        if ok then assert.equal(7, file[text]:item()) end
      end
    end
    moth.collect()
  end)

  it("that is malformed is kept unchanged in a checkpoint", function()
    local state, path = {}, files.path "bytes.safetensors"
    for i, bytes in ipairs(sequences()) do
      if i % 11 == 0 then state[string.char(unpack(bytes))] = string.char(unpack(bytes)) .. "\0" end
    end
    moth.save(state, path)
    assert.same(state, moth.load(path))
  end)
end)
