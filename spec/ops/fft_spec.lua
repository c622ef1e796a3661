-- moth.fft, stft and istft: every length, at every instruction level, in any layout, on any number
-- of threads; istft restores the signals of stft. PyTorch's values are in spec/golden/.

local ffi = require "ffi"
local cuda = require "spec.support.cuda"
local moth = require "moth"
local process = require "spec.support.process"

local fft = moth.fft

pcall(ffi.cdef, "int setenv(const char *name, const char *value, int overwrite);")
pcall(ffi.cdef, "int unsetenv(const char *name);")

local function refuses(text, f) assert.has_error_like(f, (text:gsub("%p", "%%%0"))) end

local function furthest(a, b) return (a:double() - b:double()):abs():max():item() end

-- Prints the results that differ from the definition's sums by more than rounding.
local AGAINST_SUMS = [[
local moth = require "moth"
local fft = moth.fft
local LENGTHS = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 16, 17, 24, 25, 31, 32, 33, 37, 48, 49,
                 64, 74, 100, 121, 128, 129, 191, 200, 251, 256, 257, 400, 509,
                 512, 1018, 1031, 1536, 2048}
local function sums(n, x) -- of pairs, (signals, n, 2), in f64
  local k = moth.arange(n):double()
  local angle = (k:unsqueeze(2) * k) % n * (-2 * math.pi / n)
  local c, s = angle:cos(), angle:sin()
  local re, im = x:select(3, 1), x:select(3, 2)
  return moth.stack({re:matmul(c) - im:matmul(s), re:matmul(s) + im:matmul(c)}, -1)
end
local function check(what, n, got, want)
  local limit = got.dtype == moth.float64 and 5e-15 or 1e-6
  local off = ((got:double() - want):abs():max() / (want:abs():max() + 1e-300)):item()
  if not (off <= limit) then print(what, n, tostring(got.dtype), tostring(got.shape), off) end
end
moth.manual_seed(3)
for _, dtype in ipairs {moth.float32, moth.float64} do
  for _, n in ipairs(LENGTHS) do
    for _, signals in ipairs(n < 300 and {1, 19, 33} or {2}) do
      local x = moth.randn(signals, n, 2):to(dtype)
      local want, half = sums(n, x:double()), math.floor(n / 2) + 1
      check("fft", n, fft.fft(x), want)
      check("ifft", n, fft.ifft(x * moth.tensor{1, -1}), want * moth.tensor{1, -1} / n)
      check("columns", n, fft.fft(x:transpose(1, 2):contiguous(), {dim = 1}),
        want:transpose(1, 2))
      local r = x:select(3, 1)
      local mine = moth.stack({r, moth.zeros_like(r)}, -1):double()
      want = sums(n, mine)
      check("rfft", n, fft.rfft(r), want:narrow(2, 1, half))
      check("rfft of columns", n, fft.rfft(r:t():contiguous(), {dim = 1}),
        want:narrow(2, 1, half):transpose(1, 2))
      check("irfft", n, fft.irfft(want:narrow(2, 1, half):to(dtype), n), r:double())
      check("irfft of columns", n, fft.irfft(want:narrow(2, 1, half):to(dtype):transpose(1, 2)
        :contiguous(), {n = n, dim = 1}), r:double():t())
    end
  end
end
]]

describe("Fourier transforms", function()
  before_each(function() moth.manual_seed(5) end)

  for _, level in ipairs {"plain", "avx2", "avx512"} do
    it("equal the sums of their definition, for any length, at " .. level, function()
      ffi.C.setenv("MOTH_ISA", level, 1)
      local ok, text = pcall(process.lua, AGAINST_SUMS)
      ffi.C.unsetenv("MOTH_ISA")
      assert(ok, text)
      assert.equal("rc=0\n", text)
    end)
  end

  it("accept any layout, and do not change their input", function()
    local x = moth.randn(6, 5, 8)
    local turned = x:transpose(1, 3)
    local before = x:clone()
    assert.is_true(fft.rfft(turned, {dim = 1}):equal(fft.rfft(turned:contiguous(), {dim = 1})))
    assert.is_true(fft.rfft(x[{{}, {}, {2, 8, 2}}]):equal(fft.rfft(
      x[{{}, {}, {2, 8, 2}}]:contiguous())))
    fft.fft(x:narrow(3, 1, 2))
    assert.is_true(x:equal(before))
  end)

  it("have the same bits for any number of threads", function()
    local before, x = moth.get_num_threads(), moth.randn(300, 400)
    local z, wide = moth.randn(64, 1000, 2), moth.randn(60, 1031)
    moth.set_num_threads(1)
    local one = {fft.rfft(x), fft.fft(z), fft.rfft(wide), fft.rfft(x, {dim = 1})}
    moth.set_num_threads(4)
    local four = {fft.rfft(x), fft.fft(z), fft.rfft(wide), fft.rfft(x, {dim = 1})}
    moth.set_num_threads(before)
    for k = 1, 4 do assert.is_true(one[k]:equal(four[k])) end
  end)

  it("have inverses in one, two and more dimensions", function()
    local x = moth.randn(3, 10, 7):double()
    assert.is_true(furthest(x, fft.irfft(fft.rfft(x), 7)) < 1e-14)
    assert.is_true(furthest(x, fft.irfft2(fft.rfft2(x), {10, 7})) < 1e-14)
    assert.is_true(furthest(x, fft.irfftn(fft.rfftn(x, {norm = "ortho"}),
      {s = {3, 10, 7}, norm = "ortho"})) < 1e-14)
    assert.is_true(furthest(x, fft.hfft(fft.ihfft(x), 7)) < 1e-14)
    local z = moth.randn(4, 6, 2):double()
    assert.is_true(furthest(z, fft.ifft2(fft.fft2(z))) < 1e-14)
    assert.is_true(furthest(z, fft.ifftshift(fft.fftshift(z))) == 0)
  end)

  it("make convolutions of products", function()
    local a, b = moth.randn(50):double(), moth.randn(9):double()
    local y = fft.irfft(fft.mul(fft.rfft(a, 58), fft.rfft(b, 58)), 58)
    local want = moth.nn.functional.conv1d(a:reshape(1, 1, 50), b:flip(1):reshape(1, 1, 9),
      {padding = 8})
    assert.is_true(furthest(y, want:reshape(58)) < 1e-13)
    local z = fft.rfft(a)
    assert.is_true(furthest(fft.polar(fft.abs(z), fft.angle(z)), z) < 1e-13)
  end)

  it("have second derivatives", function()
    local x = moth.randn(2, 9):double():requires_grad_()
    local function power(v) return fft.rfft(v, 12, -1, "ortho"):square():sum(-1) end
    assert.is_true(moth.autograd.gradcheck(power, {x}))
    assert.is_true(moth.autograd.gradgradcheck(power, {x}))
    moth.no_grad(function() assert.is_false(power(x).requires_grad) end)
  end)

  it("are recorded by moth.capture", function()
    local step = moth.capture(function(x)
      return moth.istft(moth.stft(x, 16), 16), fft.fftn(fft.rfft(x))
    end)
    for _ = 1, 4 do
      local x = moth.randn(2, 64)
      local y, z = step(x)
      assert.is_true(furthest(x, y) < 1e-5)
      assert.is_true(z:equal(fft.fftn(fft.rfft(x))))
    end
  end)

  it("accept integers, and compute in float32 under autocast", function()
    assert.equal(moth.float32, fft.rfft(moth.arange(6)).dtype)
    moth.autocast("cpu", moth.bfloat16, function()
      assert.equal(moth.float32, fft.rfft(moth.randn(8):bfloat16()).dtype)
    end)
  end)

  it("name the wrong argument", function()
    local x = moth.randn(4, 8)
    refuses("bad argument 'input' to 'fft' (complex numbers are needed, pairs in a last "
      .. "dimension of 2, got f32 (4, 8); real signals: moth.fft.rfft)", function() fft.fft(x) end)
    refuses("bad argument 'dim' to 'rfft' (3 is no dimension",
      function() fft.rfft(x, {dim = 3}) end)
    refuses("bad argument 'n' to 'rfft' (a length from 1 on is needed, got 0)",
      function() fft.rfft(x, 0) end)
    refuses("bad argument 'n' to 'irfft'", function() fft.irfft(moth.randn(1, 2)) end)
    refuses("bad argument 'input' to 'rfft' (signals of a length from 1 on are needed",
      function() fft.rfft(moth.randn(3, 0)) end)
    refuses("bad argument 's' to 'fft2' (1 length for 2 dimensions)",
      function() fft.fft2(moth.randn(3, 4, 2), {4}) end)
    refuses("did you mean 'ortho'", function() fft.rfft(x, {norm = "orto"}) end)
    refuses("moth.fft has no 'rffft'; did you mean 'rfft'", function() fft.rffft(x) end)
  end)

  if cuda.here then
    it("equal the CPU's on a GPU, also if they do not fit into shared memory", function()
      for _, n in ipairs {16, 37, 400, 1021, 8192, 20000} do
        local x, z = moth.randn(2, n), moth.randn(2, n, 2)
        assert.is_true(furthest(fft.rfft(x:cuda()):cpu(), fft.rfft(x)) < 2e-6 * n ^ 0.5 * 4)
        assert.is_true(furthest(fft.ifft(z:cuda()):cpu(), fft.ifft(z)) < 1e-5)
        assert.is_true(furthest(fft.irfft(fft.rfft(x:cuda()), n):cpu(), x) < 1e-5)
        z = z:double()
        assert.is_true(furthest(fft.ifft(z:cuda()):cpu(), fft.ifft(z)) < 1e-13)
      end
      local y = moth.randn(2, 100)
      assert.is_true(furthest(moth.istft(moth.stft(y:cuda(), 16), 16):cpu(), y) < 1e-5)
    end)
  end
end)

describe("spectrograms", function()
  before_each(function() moth.manual_seed(6) end)

  it("show a tone at its frequency", function()
    local t = moth.arange(16000) / 16000
    local s = moth.stft((t * (2 * math.pi * 1000)):sin(), 400,
      {hop_length = 160, window = moth.hann_window(400)})
    assert.equal("(201, 101, 2)", tostring(s.shape))
    local loudest = fft.abs(s):argmax(1)[{{3, 98}}] -- edges are reflected
    assert.is_true(loudest:eq(1000 / 16000 * 400 + 1):all():item())
  end)

  it("are converted back to the signals", function()
    for _, o in ipairs {
      {n_fft = 400, hop_length = 160, window = moth.hann_window(400)},
      {n_fft = 512, hop_length = 128, win_length = 400, window = moth.hamming_window(400)},
      {n_fft = 63, hop_length = 16, normalized = true, onesided = false},
      {n_fft = 64, hop_length = 8, center = false, window = moth.kaiser_window(64, true, 5)},
    } do
      local x = moth.randn(2, 3, 2048)
      o[1] = x
      local s = moth.stft(o)
      o[1], o.length = s, o.center ~= false and 2048 or nil
      local y = moth.istft(o)
      assert.is_true(furthest(x:narrow(3, 1, y:size(3)), y) < 1e-4)
      assert.is_true(y:size(3) > 2000)
    end
  end)

  it("are methods, and have gradients", function()
    local x = moth.randn(200):double():requires_grad_()
    local y = x:stft(32, {window = moth.hann_window(32):double()}):istft(32,
      {window = moth.hann_window(32):double()})
    y:sum():backward()
    assert.is_true(furthest(x.grad[{{1, 192}}], moth.ones(192)) < 1e-9)
  end)

  it("name the wrong argument", function()
    local x, ones = moth.randn(100), moth.ones(16)
    refuses("bad argument 'return_complex' to 'stft' (there are no complex dtypes",
      function() moth.stft(x, 16, {return_complex = true}) end)
    refuses("bad argument 'window' to 'stft' (a vector of win_length = 16 numbers is needed",
      function() moth.stft(x, 16, {window = moth.ones(8)}) end)
    refuses("bad argument 'win_length' to 'stft'",
      function() moth.stft(x, 16, {win_length = 17}) end)
    refuses("bad argument 'hop_length' to 'stft'", function() moth.stft(x, 16, 0) end)
    refuses("pad_mode 'reflect'", function() moth.stft(moth.randn(8), 16) end)
    refuses("bad argument 'n_fft' to 'stft' (101 is longer",
      function() moth.stft(x, 101, {center = false}) end)
    refuses("bad argument 'input' to 'istft' (9 frequencies are needed for n_fft = 16",
      function() moth.istft(moth.randn(8, 4, 2), 16, {onesided = true}) end)
    ones[1] = 0
    refuses("bad argument 'window' to 'istft' (windows that overlap everywhere are needed",
      function() moth.istft(moth.randn(9, 4, 2), 16, {hop_length = 16, window = ones}) end)
    local broken = moth.ones(8)
    broken[1] = 0 / 0
    refuses("bad argument 'window' to 'istft' (windows that overlap everywhere are needed",
      function() moth.istft(moth.randn(5, 9, 2), 8, {window = broken}) end)
  end)
end)
