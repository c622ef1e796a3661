--- amp.lua -- hints for names of torch.amp.

local FUNCTION = "moth.autograd.Function runs under the dtypes of moth.autocast as they are; "
  .. "x:float() "
  .. "in its forward casts"

return {
  ["moth.amp"] = {
    ["custom_bwd custom_fwd"] = FUNCTION,
    is_autocast_available = "moth.autocast works on every device",
  },
}
