-- Forget condemned bodies.
-- KEYS[1] what the names of all keys of the register begin with
-- ARGV    URIs
for _, uri in ipairs(ARGV) do
  if redis.call('ZSCORE', KEYS[1] .. ':condemned', uri) then
    move({KEYS[1]}, {uri, ''})
  end
end
return 1
