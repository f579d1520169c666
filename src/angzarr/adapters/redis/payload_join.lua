-- Register who else needs bodies that are registered, and not condemned.
-- KEYS[1] what the names of all keys of the register begin with
-- ARGV    URI and holder in turn
-- Returns 1 or 0 for each.
local base, answers = KEYS[1], {}
for i = 1, #ARGV, 2 do
  local uri = ARGV[i]
  local there = redis.call('ZSCORE', base .. ':held', uri) or redis.call('ZSCORE', base .. ':free', uri)
  if there then
    redis.call('SADD', base .. ':by:' .. uri, ARGV[i + 1])
    move({base}, {uri, 'held'})
  end
  answers[#answers + 1] = there and 1 or 0
end
return answers
