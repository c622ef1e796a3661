-- `moth docs`: the reference as Markdown, and the site.

local lfs = require "lfs"
local moth = require "moth"
local class = require "moth.base.class"
local docs = require "moth.help.docs"
local files = require "spec.support.files"
local places = require "moth.help.places"
local registry = require "spec.support.registry"

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

local pages = {}

setup(function()
  files.setup()
  docs.reference(files.folder)
  for name in lfs.dir(files.folder) do
    if name:find "%.md$" then pages[name] = read(files.path(name)) end
  end
end)
teardown(files.teardown)

-- The headings that are targets of links.
local function anchors()
  local known = {}
  for name, text in pairs(pages) do
    for heading in text:gmatch "\n## ([^\n]+)" do
      known[name .. "#" .. heading:lower():gsub("[^%w_]", "")] = true
    end
  end
  return known
end

describe("the reference", function()
  it("has a page for each namespace, with each of its names", function()
    for _, place in ipairs(places.list) do
      local page = assert(pages[place.path .. ".md"], place.path)
      for _, name in ipairs(places.names(place)) do
        assert.truthy(page:find("\n## " .. place.short .. "." .. name .. "\n", 1, true),
          place.short .. "." .. name .. " is missing")
      end
    end
  end)

  it("lists each op's arguments, says if it has gradients, and names its source file", function()
    local page = pages["moth.md"]
    for _, op in ipairs(registry.ops()) do
      local at = not op.hidden and rawequal(moth[op.name], op.fn)
        and page:find("\n## moth." .. op.name .. "\n", 1, true)
      if at then
        local part = page:sub(at + 4, (page:find("\n## ", at + 4, true) or 0) - 1)
        for _, arg in ipairs(op.args) do
          assert.truthy(part:find("| `" .. arg.name .. "` |", 1, true) or arg.name == "self",
            op.name .. ": " .. arg.name)
        end
        assert.truthy(part:find(op.grad and "differentiable" or "no gradient", 1, true), part)
        assert.truthy(part:find(op.file, 1, true), part)
      end
    end
  end)

  it("names the base and the source file of each class", function()
    local count = 0
    for _, place in ipairs(places.list) do
      local page = pages[place.path .. ".md"]
      for _, name in ipairs(places.names(place)) do
        local heading = "\n## " .. place.short .. "." .. name .. "\n"
        local value, at = places.space(place)[name], page:find(heading, 1, true)
        local part = page:sub(at, (page:find("\n## ", at + 4, true) or 0) - 1)
        if class.isclass(value) and not part:find "\n\nThe same as `[%w_.]+`%.\n*$" then
          local base = class.base(value)
          local written = part:match "\n```\n\nIt inherits from `([%w_.]+)`%.\n\n`"
          assert.equal(base and base ~= class.Object and class.typename(base) or nil,
            written and written:match "[%w_]+$", name)
          local file = part:match "\n```\n\n`([%w_/.]+)`\n"
            or part:match "`%.\n\n`([%w_/.]+)`\n"
          assert.equal("file", lfs.attributes(file or "", "mode"), name)
          count = count + 1
        end
      end
    end
    assert.is_true(count > 300, count)
  end)

  it("has an index of all names, and its links have targets", function()
    local known = anchors()
    local count = 0
    for link in pages["index.md"]:gmatch "%]%(([^)]+)%)" do
      assert.is_true(known[link], link)
      count = count + 1
    end
    assert.is_true(count > 1000)
  end)

  it("has tables whose rows have five cells", function()
    for name, text in pairs(pages) do
      for row in text:gmatch "\n(| `[^\n]+)" do
        local cells = select(2, row:gsub("\\|", ""):gsub("|", ""))
        assert.equal(name == "tensor.md" and 3 or 6, cells, name .. ": " .. row)
      end
    end
  end)

  it("describes each argument, the example's result and the kernels' files", function()
    local at = pages["moth.md"]:find("\n## moth.conv2d\n", 1, true)
    local part = pages["moth.md"]:sub(at, pages["moth.md"]:find("\n## ", at + 4, true))
    assert.truthy(part:find("| an integer or a list of 2 integers |", 1, true), part)
    assert.truthy(part:find("Result: `y` (2, 4, 6, 6) float32", 1, true), part)
    assert.truthy(part:find("CPU and GPU, `cuda/op/conv.cu`; `core/op/conv", 1, true), part)
  end)

  it("describes the methods of classes and of tensors", function()
    assert.truthy(pages["moth.nn.md"]:find("\n### nn.Module:parameters\n", 1, true))
    assert.truthy(pages["tensor.md"]:find("\n## x:to\n", 1, true))
    assert.truthy(pages["tensor.md"]:find("| `x.grad` |", 1, true))
  end)

  it("has an index by PyTorch's names, with links or what to write instead", function()
    local page = pages["pytorch.md"]
    for _, line in ipairs {
      "- `torch.nn.functional.nll_loss`: [F.nll\\_loss](moth.nn.functional.md#fnll_loss)",
      "- `torch.utils.data.DataLoader`: [data.DataLoader](moth.data.md#datadataloader)",
      "- `torch.Tensor.to`: [x:to](tensor.md#xto)",
      "- `torch.Tensor.numpy`: ",
    } do
      assert.truthy(page:find("\n" .. line, 1, true), line)
    end
    local known = anchors()
    for link in page:gmatch "%]%(([%w_.]+#[%w_]+)%)" do assert.is_true(known[link], link) end
    local hints = 0
    for hint in page:gmatch "\n%- `[^\n]-`: ([^\n]+)" do -- no marks of Markdown
      if not hint:find "^%[" then
        hints = hints + 1
        assert.is_nil(hint:gsub("\\.", ""):find "[`*_<>|%[%]]", hint)
      end
    end
    assert.is_true(hints > 100, hints)
  end)
end)

describe("the site", function()
  it("is built without network, and its search index has the guide and the reference", function()
    if os.execute "command -v mkdocs >/dev/null 2>&1" ~= 0 then
      pending "MkDocs is not installed"
      return
    end
    local folder = files.path "site"
    docs.site(lfs.currentdir(), folder)
    local index = read(folder .. "/search/search_index.json"):lower()
    for _, words in ipairs {"kernel_size", "freezing layers", "out of memory", "nll_loss"} do
      assert.truthy(index:find(words, 1, true), words)
    end
    -- F.nll_loss is two words: a search for nll_loss finds it.
    assert.truthy(index:match('"separator":"([^,]*),'):find(".", 1, true))
    assert.is_nil(read(folder .. "/index.html"):match 'src="http')
  end)
end)
