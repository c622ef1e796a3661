--- base64.lua -- bytes as base64 (RFC 4648).

local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local pairs_of = {} -- the two digits of 12 bits
for i = 0, 4095 do
  local a, b = math.floor(i / 64) + 1, i % 64 + 1
  pairs_of[i] = DIGITS:sub(a, a) .. DIGITS:sub(b, b)
end

return function(text)
  local out, n = {}, 0
  for i = 1, #text - 2, 3 do
    local a, b, c = text:byte(i, i + 2)
    out[n + 1] = pairs_of[a * 16 + math.floor(b / 16)]
    out[n + 2] = pairs_of[b % 16 * 256 + c]
    n = n + 2
  end
  local rest = #text % 3
  if rest == 1 then
    out[n + 1] = pairs_of[text:byte(-1) * 16] .. "=="
  elseif rest == 2 then
    local a, b = text:byte(-2, -1)
    out[n + 1] = pairs_of[a * 16 + math.floor(b / 16)] .. pairs_of[b % 16 * 256]:sub(1, 1) .. "="
  end
  return table.concat(out)
end
