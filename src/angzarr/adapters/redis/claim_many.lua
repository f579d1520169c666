-- Claim many records of one server in one step; see claim.lua, which is called for each.
-- KEYS    the records
-- ARGV    what claim.lua takes, for one record after the other
-- Returns their answers in order.
local width, answers = #ARGV / #KEYS, {}
for i = 1, #KEYS do
  local args = {}
  for j = 1, width do
    args[j] = ARGV[(i - 1) * width + j]
  end
  answers[i] = claim({KEYS[i]}, args)
end
return answers
