-- End one claim in one step (angzarr.resilience.idempotency_rules.ended, line by line).
-- KEYS[1] record, and its log of finished steps where the completion takes one along
-- ARGV    token, new status, life in ms, then: result (completed, failed; may be missing),
--         or replay and hop (waiting), or the starts that do not count and last words (released)
-- Returns 1, also when this token ended its claim in this way before; 0, having changed nothing,
-- if the token no longer holds the record.
local key, status = KEYS[1], ARGV[2]
local record = redis.call('HMGET', key, 'status', 'token', 'last')
if record[2] ~= ARGV[1] then
  return 0
end
if record[1] ~= 'pending' then
  return record[1] == status and 1 or 0
end
if record[3] and status ~= 'released' then
  redis.call('HDEL', key, 'last') -- no run before it matters any more
end

if status == 'waiting' then
  local position = redis.call('HMGET', key, 'replay', 'hop')
  local ahead = tonumber(ARGV[4]) - tonumber(position[1])
  if ahead < 0 or (ahead == 0 and tonumber(ARGV[5]) < tonumber(position[2])) then
    ARGV[4], ARGV[5] = position[1], position[2]
  end
  redis.call('HSET', key, 'status', status, 'replay', ARGV[4], 'hop', ARGV[5], 'starts', 0)
elseif status == 'released' then
  local starts = tonumber(redis.call('HGET', key, 'starts'))
  redis.call('HSET', key, 'status', status, 'starts', starts - tonumber(ARGV[4]))
  if ARGV[5] then
    redis.call('HSET', key, 'last', ARGV[5])
  end
elseif ARGV[4] then
  redis.call('HSET', key, 'status', status, 'result', ARGV[4])
else
  redis.call('HSET', key, 'status', status)
end
if KEYS[2] then
  redis.call('DEL', KEYS[2])
  redis.call('HDEL', key, 'steps')
end
redis.call('PEXPIRE', key, ARGV[3])
return 1
