-- luacheck's settings: ./moth test runs it over all Lua files.
std = "luajit"
max_line_length = 100
self = false
ignore = { "581" } -- `not (x < y)` is not `x >= y` where NaN may come
exclude_files = { "build*" }
files["spec/**/*.lua"] = { std = "luajit+busted" }
files["examples/hosts/love/*.lua"] = { std = "luajit+love" }
files["spec/hosts/love_driver.lua"] = { std = "luajit+love" }
files["examples/hosts/neovim/**/*.lua"] = { std = "luajit", read_globals = { "vim" } }
files["examples/hosts/nginx/*.lua"] = { std = "luajit+ngx_lua" }
