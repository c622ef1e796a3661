--- profiler.lua -- helpers of profiler specs.

local assert = require "luassert"

local profiler = {}

--- The rows of key_averages by their keys.
function profiler.rows_of(prof, options)
  local rows = {}
  for _, row in ipairs(prof:key_averages(options or {group_by = "op"})) do rows[row.key] = row end
  return rows
end

--- How often an op ran.
function profiler.count(prof, name)
  local row = profiler.rows_of(prof)[name]
  return row and row.count or 0
end

--- Checks a profile: the parts of a time sum to no more than the whole.
function profiler.is_sound(prof)
  local events = prof:events()
  local all, inside = 0, {}
  for i, e in ipairs(events) do
    assert.is_true(e.self_cpu_time_total >= 0)
    assert.is_true(e.self_cpu_time_total <= e.cpu_time_total + 1e-3, e.name)
    all = all + e.self_cpu_time_total
    if e.parent then
      assert.is_true(e.parent < i)
      local around = events[e.parent]
      assert.is_true(e.start >= around.start)
      inside[e.parent] = (inside[e.parent] or 0) + e.cpu_time_total
    end
  end
  for i, time in pairs(inside) do
    assert.is_true(time <= events[i].cpu_time_total + 1e-3, events[i].name)
  end
  assert.is_true(all <= prof.time + 1e-3)
  for _, row in ipairs(prof:key_averages()) do
    assert.is_true(row.self_cpu_time_total <= row.cpu_time_total + 1e-3, row.key)
  end
end

return profiler
