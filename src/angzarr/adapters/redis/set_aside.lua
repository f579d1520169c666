-- Move a damaged message to a list of its own, as it is.
-- KEYS[1] the session's unacked hash, KEYS[2] the list
-- ARGV    tag, raw message
-- Returns 1, or 0 if the message is no longer the session's. Sent twice it moves it once.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('LPUSH', KEYS[2], ARGV[2])
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
