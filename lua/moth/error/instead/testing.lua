--- testing.lua -- hints for names of torch.testing.

return {["moth.testing"] = {
  ["assert_allclose"] = "moth.testing.assert_close is the same function",
  ["FileCheck"] = "string.find searches a text",
}}
