--- font.lua -- a font of strokes for plots as PNG: ASCII in Simplex Roman.
--
-- The Hershey Fonts were originally created by Dr. A. V. Hershey while working at the U. S.
-- National Bureau of Standards. They may be used by everyone for any purpose, with this note.

local font = {}

-- A line for each character from the space on: the left and the right edge, then strokes separated
-- by spaces. Each number is a character: 'R' is 0, 'S' is 1, 'Q' is -1. Points are x, y pairs; y
-- grows downwards, the baseline is at 9 and capital letters begin at -12.
local GLYPHS = [=[
JZ
MWRFRT RYQZR[SZRY
JZNFNM VFVM
H]SBLb YBRb LOZO KUYU
H\PBP_ TBT_ YIWGTFPFMGKIKKLMMNOOUQWRXSYUYXWZT[P[MZKX
F^[FI[ NFPHPJOLMMKMIKIIJGLFNFPGSHVHYG[F WTUUTWTYV[X[ZZ[X[VYTWT
E_\O\N[MZMYNXPVUTXRZP[L[JZIYHWHUISJRQNRMSKSIRGPFNGMIMKNNPQUXWZY[[[\Z\Y
MWRHQGRFSGSIRKQL
KYVBTDRGPKOPOTPYR]T`Vb
KYNBPDRGTKUPUTTYR]P`Nb
JZRLRX MOWU WOMU
E_RIR[ IR[R
NVSWRXQWRVSWSYQ[
E_IR[R
NVRVQWRXSWRV
G][BIb
H\QFNGLJKOKRLWNZQ[S[VZXWYRYOXJVGSFQF
H\NJPISFS[
H\LKLJMHNGPFTFVGWHXJXLWNUQK[Y[
H\MFXFRNUNWOXPYSYUXXVZS[P[MZLYKW
H\UFKTZT UFU[
H\WFMFLOMNPMSMVNXPYSYUXXVZS[P[MZLYKW
H\XIWGTFRFOGMJLOLTMXOZR[S[VZXXYUYTXQVOSNRNOOMQLT
H\YFO[ KFYF
H\PFMGLILKMMONSOVPXRYTYWXYWZT[P[MZLYKWKTLRNPQOUNWMXKXIWGTFPF
H\XMWPURRSQSNRLPKMKLLINGQFRFUGWIXMXRWWUZR[P[MZLX
NVROQPRQSPRO RVQWRXSWRV
NVROQPRQSPRO SWRXQWRVSWSYQ[
F^ZIJRZ[
E_IO[O IU[U
F^JIZRJ[
I[LKLJMHNGPFTFVGWHXJXLWNVORQRT RYQZR[SZRY
E`WNVLTKQKOLNMMPMSNUPVSVUUVS WKVSVUXVZV\T]Q]O\L[JYHWGTFQFNGLHJJILHOHRIUJWLYNZQ[T[WZYYZX
I[RFJ[ RFZ[ MTWT
H]KFK[ KFTFWGXHYJYLXNWOTP KPTPWQXRYTYWXYWZT[K[
H]ZKYIWGUFQFOGMILKKNKSLVMXOZQ[U[WZYXZV
H]KFK[ KFRFUGWIXKYNYSXVWXUZR[K[
I\LFL[ LFYF LPTP L[Y[
I[LFL[ LFYF LPTP
H]ZKYIWGUFQFOGMILKKNKSLVMXOZQ[U[WZYXZVZS USZS
G]KFK[ YFY[ KPYP
NVRFR[
JZVFVVUYTZR[P[NZMYLVLT
H]KFK[ YFKT POY[
J[LFL[ L[X[
F^JFJ[ JFR[ ZFR[ ZFZ[
G]KFK[ KFY[ YFY[
G]PFNGLIKKJNJSKVLXNZP[T[VZXXYVZSZNYKXIVGTFPF
H]KFK[ KFTFWGXHYJYMXOWPTQKQ
G]PFNGLIKKJNJSKVLXNZP[T[VZXXYVZSZNYKXIVGTFPF SWY]
H]KFK[ KFTFWGXHYJYLXNWOTPKP RPY[
H\YIWGTFPFMGKIKKLMMNOOUQWRXSYUYXWZT[P[MZKX
JZRFR[ KFYF
G]KFKULXNZQ[S[VZXXYUYF
I[JFR[ ZFR[
F^HFM[ RFM[ RFW[ \FW[
H\KFY[ YFK[
I[JFRPR[ ZFRP
H\YFK[ KFYF K[Y[
KYOBOb PBPb OBVB ObVb
KYKFY^
KYTBTb UBUb NBUB NbUb
JZRDJR RDZR
I[Ib[b
NVSKQMQORPSORNQO
I\XMX[ XPVNTMQMONMPLSLUMXOZQ[T[VZXX
I\LFL[ LPNNPMSMUNWPXSXUWXUZS[P[NZLX
I[XPVNTMQMONMPLSLUMXOZQ[T[VZXX
I\XFX[ XPVNTMQMONMPLSLUMXOZQ[T[VZXX
I[LSXSXQWOVNTMQMONMPLSLUMXOZQ[T[VZXX
LXWFUFSGRJR[ OMVM
I\XMX]W`VaTbQbOa XPVNTMQMONMPLSLUMXOZQ[T[VZXX
I\MFM[ MQPNRMUMWNXQX[
NVQFRGSFREQF RMR[
MWRFSGTFSERF SMS^RaPbNb
J[MFM[ WMMW QSX[
NVRFR[
CaGMG[ GQJNLMOMQNRQR[ RQUNWMZM\N]Q][
I\MMM[ MQPNRMUMWNXQX[
I\QMONMPLSLUMXOZQ[T[VZXXYUYSXPVNTMQM
I\LMLb LPNNPMSMUNWPXSXUWXUZS[P[NZLX
I\XMXb XPVNTMQMONMPLSLUMXOZQ[T[VZXX
LYOMO[ OSPPRNTMWM
J[XPWNTMQMNNMPNRPSUTWUXWXXWZT[Q[NZMX
LXRFRWSZU[W[ OMVM
I\MMMWNZP[S[UZXW XMX[
JZLMR[ XMR[
G]JMN[ RMN[ RMV[ ZMV[
J[MMX[ XMM[
JZLMR[ XMR[P_NaLbKb
J[XMM[ MMXM M[X[
KYTBRCQDPFPHQJRKSMSOQQ RCQEQGRISJTLTNSPORSTTVTXSZR[Q]Q_Ra QSSUSWRYQZP\P^Q`RaTb
NVRBRb
KYPBRCSDTFTHSJRKQMQOSQ RCSESGRIQJPLPNQPURQTPVPXQZR[S]S_Ra SSQUQWRYSZT\T^S`RaPb
F^IUISJPLONOPPTSVTXTZS[Q ISJQLPNPPQTTVUXUZT[Q[O
]=]

local ZERO, BASELINE, CAPITAL = ("R"):byte(), 9, 21
local CAPITAL_SHARE = 0.7 -- height of capital letters, as a share of the font's size

local lines = {}
for line in GLYPHS:gmatch "([^\n]*)\n" do lines[#lines + 1] = line end

local glyphs = {} -- byte -> {left, right, strokes}

-- The strokes of a character; '?' for one that the font lacks.
local function glyph_of(byte)
  local line = lines[byte - 31]
  if not line then return glyph_of(("?"):byte()) end
  if not glyphs[byte] then
    local glyph = {left = line:byte(1) - ZERO, right = line:byte(2) - ZERO, strokes = {}}
    for stroke in line:sub(3):gmatch "%S+" do
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
