-- Write down what is done with a message that a session holds.
-- KEYS[1] the session's unacked hash
-- ARGV    tag, what is held
-- Returns 1, or 0 if the message is no longer the session's.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
