-- End holds of bodies; a body that nothing holds any more is free from now on.
-- KEYS[1] what the names of all keys of the register begin with
-- ARGV    URI and holder in turn
for i = 1, #ARGV, 2 do
  local holders = KEYS[1] .. ':by:' .. ARGV[i]
  if redis.call('SREM', holders, ARGV[i + 1]) == 1 and redis.call('EXISTS', holders) == 0 then
    move({KEYS[1]}, {ARGV[i], 'free'})
  end
end
return 1
