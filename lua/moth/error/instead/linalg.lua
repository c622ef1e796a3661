--- linalg.lua -- hints for names of torch.linalg.

return {
  ["moth.linalg"] = {
    ["ldl_factor ldl_factor_ex ldl_solve"] = "moth.linalg.cholesky, moth.linalg.eigh and "
      .. "moth.linalg.solve are there for symmetric matrices",
    LinAlgError = "errors are caught by pcall; moth.errcode() is then \"E_SINGULAR\" or another "
      .. "code",
    common_notes = "moth.help(moth.linalg.solve) shows a function's text",
  },
}
