--- `moth test` with several files: if a process ends in the middle of a file, or a GPU fails for
-- good, one claim fails and the later claims still run. Runs under ./moth test.

local cuda = require "spec.support.cuda"
local files = require "spec.support.files"
local process = require "spec.support.process"

local launcher = debug.getregistry()["moth.launcher"]

local function count(said, words) return select(2, said:gsub(words, "")) end

describe("moth test with several files", function()
  if not launcher then return pending("are run: these specs run under ./moth test") end

  before_each(files.setup)
  after_each(files.teardown)

  -- Runs a text as a spec, together with another spec.
  local function run(text, environment)
    local odd = files.write("odd_spec.lua", text)
    local plain = files.write("plain_spec.lua", "it('is plain', function() end)")
    return process.shell(("%s '%s' test --jobs=2 '%s' '%s'"):format(environment or "",
      launcher.program, odd, plain))
  end

  it("continues after a claim that ended its process, and names it", function()
    local said = run([[
      it("comes first", function() end)
      it("ends it all", function() os.exit(7) end)
      it("is wrong", function() assert.are.equal(1, 2) end)
      it("waits", function() pending "for what does not come" end)
      describe("a loop", function() it("hangs", function() while true do end end) end)
      it("comes last", function() end)]], "MOTH_SPEC_LIMIT=3")
    assert.is_truthy(said:find("odd_spec.lua:2: ends it all: its process ended with status 7\n", 1,
      true), said)
    assert.is_truthy(said:find("a loop hangs: its process ended with status 124", 1, true), said)
    assert.are.equal(1, count(said, "\n  waits: [^\n]*for what does not come\n"), said)
    assert.is_truthy(said:find("\n3 passed, 3 failed, 1 skipped\nrc=1\n", 1, true), said)
  end)

  it("does so for one file, too, with --jobs or --device=cuda", function()
    local odd = files.write("odd_spec.lua", [[
      it("ends it all", function() os.exit(7) end)
      it("comes last", function() end)]])
    local said = process.shell(("'%s' test --jobs=1 '%s'"):format(launcher.program, odd))
    assert.is_truthy(said:find("\n1 passed, 1 failed\nrc=1\n", 1, true), said)
  end)

  it("leaves out spec/hosts unless it is named", function()
    local jobs = dofile "spec/support/jobs.lua"
    local plain, hosts = jobs.files {"spec"}, jobs.files {"spec/hosts"}
    local both = jobs.files {"spec", "spec/hosts"}
    for _, path in ipairs(plain) do assert.is_nil(path:find "spec/hosts/", path) end
    assert.is_truthy(hosts[1]:find "^spec/hosts/%l+_spec%.lua$")
    assert.are.equal(#plain + #hosts, #both)
    assert.are.equal(hosts[#hosts], both[#both])
  end)

  it("reports a process that fails though its claims pass", function()
    local under = files.write("under", [["$@"; exit 9]])
    local said = run("it('is fine', function() end)", "MOTH_SPEC_UNDER='sh " .. under .. "'")
    assert.are.equal(2, count(said, "\n  [^\n]*_spec.lua: ended with status 9"), said)
  end)

  if not cuda.here then return pending("leave a GPU that failed: " .. cuda.why) end

  it("attributes a GPU's failure to the claim that caused it", function()
    local said = run([[
      local moth = require "moth"
      assert(moth.cuda.is_available())
      local function sum() return moth.ones(2, { device = "cuda" }):sum():item() end
      it("is well", function() assert.are.equal(2, sum()) end)
      it("breaks it", function()
        local ffi = require "ffi"
        ffi.cdef "int setenv(const char *, const char *, int);"
        ffi.C.setenv("MOTH_EMULATED_FAILS", "1", 1)
        moth.ones(2, { device = "cuda" })
      end)
      it("is well again", function() assert.are.equal(2, sum()) end)]])
    assert.are.equal(1, count(said, "\n  [^\n]*breaks it\n"), said)
    assert.is_truthy(said:find("told late", 1, true), said)
    assert.is_truthy(said:find("\n3 passed, 1 failed\nrc=1\n", 1, true), said)
  end)
end)
