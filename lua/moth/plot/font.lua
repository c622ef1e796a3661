--- font.lua -- a font of straight strokes for plots as PNG: ASCII.

local font = {}

-- The characters from the space on, separated by spaces: the width, then strokes. Two digits are a
-- point, x and y. y grows downwards: capital letters begin at 1, small ones at 3, the baseline is
-- 7.
local GLYPHS = [=[
3 1,0104,0607 2,0103,2123 4,1117,3137,0343,0545 4,423111020314344546371706,2028
6,6107,1122130211,5566574655 5,5713122131420506172755 1,0103 2,20121628 2,00121608
4,2226,0345,4305 4,2226,0444 1,1608 4,0444 1,0607 4,4107 4,113142463717060211 4,022127,0747
4,02113142430747 4,0211314243344546371706,1434 4,310545,3137 4,410103334446371706
4,423111020617374645341405 4,014117 4,113142433414030211,1405061737464534
4,061737464231110203143443 1,0304,0607 1,1314,1608 4,420446 4,0343,0545 4,024406
4,02113142432425,2627 6,433324253645,4346566462512102061757 4,072147,1535
4,0107,013142433404,3445463707 4,4231110206173746 4,0107,013142463707 4,41010747,0434
4,410107,0434 4,42311102061737464424 4,0107,4147,0444 2,0121,1117,0727 4,4146371706
4,0107,4105,1447 4,010747 6,0701346167 4,07014741 5,114152564717060211 4,07013142433404
5,114152564717060211,3557 4,07013142433404,2447 4,423111020314344546371706 4,0141,2127
4,010617374641 4,012741 6,0117345761 4,0147,4107 4,012441,2427 4,01410747 2,20000828 4,0147
2,00202808 4,032143 4,0848 2,0112 4,4433130406173746,4347 4,0107,0413334446371706
4,4433130406173746 4,4433130406173746,4147 4,05454433130406173746 3,31211217,0323
4,4433130406173746,4348391908 4,0107,0413334447 1,0307,0102 2,131809,1112 4,0107,4306,1547
1,0107 6,0307,0413233437,3443536467 4,0307,0413334447 4,133344463717060413
4,0309,0413334446371706 4,4433130406173746,4349 3,0307,041333 4,44331304153546371706
3,11162737,0333 4,0306173746,4347 4,032743 6,0317345763 4,0347,4307 4,0327,4319 4,03430747
3,30212314252738 1,0009 3,00111324151708 5,051424354554
]=]
local CAPITAL, BASELINE = 6, 7 -- height of capital letters; y of the baseline
local GAP = 0.8                -- on both sides of a character
local ZERO = ("0"):byte()
local CAPITAL_SHARE = 0.7 -- height of capital letters, as a share of the font's size

local list = {}
for text in GLYPHS:gmatch "%S+" do list[#list + 1] = text end

local glyphs = {} -- byte -> {left, right, strokes}

-- The strokes of a character; '?' for one that the font lacks.
local function glyph_of(byte)
  local text = list[byte - 31]
  if not text then return glyph_of(("?"):byte()) end
  if not glyphs[byte] then
    local glyph = {left = -GAP, right = text:byte() - ZERO + GAP, strokes = {}}
    for stroke in text:gmatch ",(%d+)" do
      local points = {}
      for i = 1, #stroke do points[i] = stroke:byte(i) - ZERO end
      glyph.strokes[#glyph.strokes + 1] = points
    end
    glyphs[byte] = glyph
  end
  return glyphs[byte]
end

local INSTEAD = {["\226\136\146"] = "-", ["\195\151"] = "x", ["\194\181"] = "u", ["\206\188"] = "u",
                 ["\194\183"] = ".", ["\226\128\166"] = "..."}

local function plain(text)
  return (text:gsub("[\194-\244][\128-\191]+", function(c) return INSTEAD[c] or "?" end))
end

--- The width of a text in pixels.
-- @param size  the font's size in pixels
function font.width(text, size)
  local sum = 0
  for _, byte in ipairs {plain(text):byte(1, -1)} do
    local glyph = glyph_of(byte)
    sum = sum + glyph.right - glyph.left
  end
  return sum * size * CAPITAL_SHARE / CAPITAL
end

--- Calls stroke(points) for each stroke of a text, a list of x, y pairs.
-- @param x, y    the left end of the baseline
-- @param turned  true: the text runs upwards
function font.draw(text, x, y, size, turned, stroke)
  local scale, at = size * CAPITAL_SHARE / CAPITAL, 0
  for _, byte in ipairs {plain(text):byte(1, -1)} do
    local glyph = glyph_of(byte)
    for _, points in ipairs(glyph.strokes) do
      local out = {}
      for i = 1, #points, 2 do
        local u = (at + points[i] - glyph.left) * scale
        local v = (points[i + 1] - BASELINE) * scale
        out[i], out[i + 1] = turned and x + v or x + u, turned and y - u or y + v
      end
      stroke(out)
    end
    at = at + glyph.right - glyph.left
  end
end

return font
