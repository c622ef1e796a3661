--- shown.lua -- makes texts from files and users safe to print on a terminal: errors.bare,
-- errors.one, errors.shown, errors.path, and the escape that errors.raise applies to all messages.

local bad_utf8 = require("moth.json").bad_utf8

local shown = {}

local function escape(c) return ("\\x%02x"):format(c:byte()) end
local function escaped(bytes) return (bytes:gsub(".", escape)) end

--- A text with its control characters, except tabs and line ends, as \x1b.
function shown.escaped(text) return (text:gsub("[%z\1-\8\11-\31\127]", escape)) end

local NOUNS = {}
for name in ([[activations anchors archives arguments bits bytes cells channels colors columns
    components datasets dimensions dims elements epochs events features folders frequencies groups
    heads images inputs integers keys labels layers lengths levels lines measurements members
    modules names nodes numbers objects outputs pairs parameters paths pictures pieces pixels
    positions predictions ranks regressors rows samples sequences sizes steps targets tensors texts
    tokens values vectors weights windows workers]])
  :gmatch "%S+" do NOUNS[name] = name:gsub("s$", "") end
NOUNS.batches, NOUNS.classes, NOUNS.entries, NOUNS.indices = "batch", "class", "entry", "index"
NOUNS.boxes, NOUNS.axes, NOUNS.frequencies, NOUNS.processes = "box", "axis", "frequency", "process"

--- "at least 1 dimensions are needed" as "at least 1 dimension is needed".
function shown.singular(text)
  text = text:gsub("(%f[%w.-]1 )(%l+)( ?a?r?e?%f[^%l])", function(one, noun, verb)
    if not NOUNS[noun] then return nil end
    return one .. NOUNS[noun] .. (verb == " are" and " is" or verb)
  end)
  return (text:gsub("there are 1 %f[%l]", "there is 1 "))
end

--- A class's name with its article: "an Adam", "a Linear", "an LSTM".
function shown.one(name)
  local vowel = name:find "^[AEIOaeio]" or name:find "^U[np]%l" and not name:find "^Uni"
  local spelled = name:find "^[FHLMNRSX]%u"
  return ((vowel or spelled) and "an " or "a ") .. name
end

--- At most `most` bytes of a text (default 60). Control characters and invalid UTF-8 are written as
-- \x1b.
function shown.bare(text, most)
  most = most or 60
  local cut = #text > most
  if cut then text = text:sub(1, most):gsub("[\192-\255][\128-\191]*$", "") end
  text = text:gsub("%c", escaped):gsub("\194[\128-\159]", escaped) -- C0 and C1 of ISO 6429
  local at = bad_utf8(text)
  while at do
    text = text:sub(1, at - 1) .. escaped(text:sub(at, at)) .. text:sub(at + 1)
    at = bad_utf8(text)
  end
  return cut and text .. "..." or text
end

--- The same text in quotes.
function shown.shown(text, most) return "'" .. shown.bare(text, most) .. "'" end

--- A path in quotes; of a long path only the end.
function shown.path(path)
  if #path <= 200 then return shown.shown(path, 200) end
  path = path:sub(-200):gsub("^[\128-\191]+", "")
  return "'..." .. shown.bare(path, 200) .. "'"
end

return shown
