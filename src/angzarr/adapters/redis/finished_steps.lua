-- One change of a log of finished steps (angzarr.delivery.compensation.StepLog), made only by who
-- holds the claim beside it.
-- KEYS[1] record, KEYS[2] its log: a hash of 's:' and a step's name → its number, a colon, and what
--         it is; 'n', the last number; 'undoing', why its steps are being undone, if they are
-- ARGV    token, then
--   add     name, what it is, life of the log in ms, how many it may hold
--   mark    why the steps are being undone; left out: they are not
--   remove  name
-- Returns 0, having changed nothing, if the token no longer holds the record; -1 if the log is full;
-- else 1, or what the log holds (mark). Sent twice it does the same.
local record, log, verb = KEYS[1], KEYS[2], ARGV[2]
local held = redis.call('HMGET', record, 'status', 'token')
if held[1] ~= 'pending' or held[2] ~= ARGV[1] then
  return 0
end

if verb == 'add' then
  local field = 's:' .. ARGV[3]
  redis.call('HDEL', log, 'undoing')
  if redis.call('HEXISTS', log, field) == 0 and redis.call('HLEN', log) - 1 >= tonumber(ARGV[6]) then
    return -1
  end
  redis.call('HSET', log, field, redis.call('HINCRBY', log, 'n', 1) .. ':' .. ARGV[4])
  redis.call('PEXPIRE', log, ARGV[5])
  redis.call('HSET', record, 'steps', 1)
  return 1
end

if verb == 'mark' then
  if not ARGV[3] then
    redis.call('HDEL', log, 'undoing')
  elseif redis.call('EXISTS', log) == 1 then
    redis.call('HSET', log, 'undoing', ARGV[3])
  end
  return redis.call('HGETALL', log)
end

redis.call('HDEL', log, 's:' .. ARGV[3])
if redis.call('HLEN', log) <= 1 + redis.call('HEXISTS', log, 'undoing') then
  redis.call('DEL', log)
  redis.call('HDEL', record, 'steps')
end
return 1
