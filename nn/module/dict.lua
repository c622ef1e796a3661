--- dict.lua -- what ModuleDict and ParameterDict have in common: members of one kind under names.

local errors = require "moth.error"
local Module = require "moth.nn.module"

local STORE = Module.store_key

return function(Dict, kind)
  --- The names in order, as a list.
  function Dict:keys()
    local store, names = self[STORE], {}
    for _, name in ipairs(store.order) do
      if store.kind[name] == kind then names[#names + 1] = name end
    end
    return names
  end

  --- What stands under the names, in order, as a list.
  function Dict:values()
    local values = self:keys()
    for i, name in ipairs(values) do values[i] = self[name] end
    return values
  end

  --- Iterates over the names and what stands under them, in order.
  function Dict:items()
    local names, i = self:keys(), 0
    return function()
      i = i + 1
      if names[i] then return names[i], self[names[i]] end
    end
  end

  --- Is there one of that name?
  function Dict:contains(name)
    return self[STORE].kind[name] == kind
  end

  --- Takes the one of that name out. @return what stood there
  function Dict:pop(name)
    if not self:contains(name) then
      errors.argument("pop", "name", ("there is no %s '%s'%s"):format(kind, tostring(name),
        errors.nearest(tostring(name), self:keys())), "E_INDEX")
    end
    local value = self[name]
    self[name] = nil
    return value
  end

  --- Takes all out.
  function Dict:clear()
    for _, name in ipairs(self:keys()) do self[name] = nil end
  end

  --- How many there are.
  function Dict:len()
    return #self:keys()
  end
end
