--- dict.lua -- the common base of ModuleDict and ParameterDict: named members of one kind.

local errors = require "moth.error"
local Module = require "moth.nn.module"

local STORE = Module.store_key

return function(Dict, kind)
  --- The names, in order, as a list.
  function Dict:keys()
    local store, names = self[STORE], {}
    for _, name in ipairs(store.order) do
      if store.kind[name] == kind then names[#names + 1] = name end
    end
    return names
  end

  --- The members, in the order of the names, as a list.
  function Dict:values()
    local values = self:keys()
    for i, name in ipairs(values) do values[i] = self[name] end
    return values
  end

  --- Iterates over the names and members, in order.
  function Dict:items()
    local names, i = self:keys(), 0
    return function()
      i = i + 1
      if names[i] then return names[i], self[names[i]] end
    end
  end

  --- Returns true if there is a member of that name.
  function Dict:contains(name)
    return self[STORE].kind[name] == kind
  end

  --- Removes the member of that name. @return the member
  function Dict:pop(name)
    if not self:contains(name) then
      errors.argument("pop", "name", ("there is no %s '%s'%s"):format(kind, tostring(name),
        errors.nearest(tostring(name), self:keys())), "E_INDEX")
    end
    local value = self[name]
    self[name] = nil
    return value
  end

  --- Removes all members.
  function Dict:clear()
    for _, name in ipairs(self:keys()) do self[name] = nil end
  end

  --- The number of members.
  function Dict:len()
    return #self:keys()
  end
end
