--- moth_complete.lua -- the command :MothComplete, which starts the completion in this buffer.

vim.api.nvim_create_user_command("MothComplete", function()
  require("moth_complete").start(vim.api.nvim_get_current_buf())
end, {})
