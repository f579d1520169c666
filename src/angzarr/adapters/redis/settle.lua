-- End one claim in one step (angzarr.resilience.idempotency_rules.ended, line by line).
-- KEYS[1] record, and its log of finished steps where the completion takes one along
-- ARGV    token, new status, life in ms, how many facts are kept with it, if any: their stream, the
--         most that wait there and their lines (see keep_facts.lua; on one server only),
--         1 if a body is released with it, then: the register, URI and holder (see
--         payload_release.lua; on one server only), 0 if not,
--         then: result (completed, failed; may be missing),
--         or replay and hop (waiting), or the starts that do not count and last words (released)
-- Returns 1, also when this token ended its claim in this way before; 0, having changed nothing,
-- if the token no longer holds the record.
local key, status, facts = KEYS[1], ARGV[2], tonumber(ARGV[4])
local rest = facts > 0 and 7 + facts or 5
local releases = ARGV[rest] == '1'
local left = rest + (releases and 4 or 1)
local first, second = ARGV[left], ARGV[left + 1]
local record = redis.call('HMGET', key, 'status', 'token', 'last')
if record[2] ~= ARGV[1] then
  return 0
end
if record[1] ~= 'pending' then
  return record[1] == status and 1 or 0
end
if facts > 0 then
  local kept = {}
  for i = 6, 6 + facts do
    kept[#kept + 1] = ARGV[i]
  end
  keep_facts({ARGV[5]}, kept)
end
if releases then
  -- What cannot be released (the keys are another program's) is kept; the claim ends all the same.
  pcall(release_payloads, {ARGV[rest + 1]}, {ARGV[rest + 2], ARGV[rest + 3]})
end
if record[3] and status ~= 'released' then
  redis.call('HDEL', key, 'last') -- no run before it matters any more
end

if status == 'waiting' then
  local position = redis.call('HMGET', key, 'replay', 'hop')
  local ahead = tonumber(first) - tonumber(position[1])
  if ahead < 0 or (ahead == 0 and tonumber(second) < tonumber(position[2])) then
    first, second = position[1], position[2]
  end
  redis.call('HSET', key, 'status', status, 'replay', first, 'hop', second, 'starts', 0)
elseif status == 'released' then
  local starts = tonumber(redis.call('HGET', key, 'starts'))
  redis.call('HSET', key, 'status', status, 'starts', starts - tonumber(first))
  if second then
    redis.call('HSET', key, 'last', second)
  end
elseif first then
  redis.call('HSET', key, 'status', status, 'result', first)
else
  redis.call('HSET', key, 'status', status)
end
if KEYS[2] then
  redis.call('DEL', KEYS[2])
  redis.call('HDEL', key, 'steps')
end
redis.call('PEXPIRE', key, ARGV[3])
return 1
