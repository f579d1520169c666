-- Claim one record in one step (angzarr.resilience.idempotency_rules.answer_of, line by line).
-- KEYS[1] record
-- ARGV    token, owner, replay, hop, fingerprint, life in ms, token of a dead owner's claim or '',
--         1 if the claim counts as a start, 0 if not, 1 if it takes what was completed, 0 if not
-- Returns the number of starts if claimed, {'claimed', starts, steps, last words} if the record says
-- that finished steps may be in the log beside it (1, else 0) or a run before left words, else
-- {status, ...}. A pending record names its owner
-- and token: the owner's lease lives in another cluster slot, so the client looks and, if it has
-- run out, sends the claim again with that token as ARGV[7] (compare and set).
-- Sent twice with one token it gives the same answer.
local key, token, fingerprint, start = KEYS[1], ARGV[1], ARGV[5], tonumber(ARGV[8])

local function hold(starts)
  redis.call('HSET', key, 'status', 'pending', 'token', token, 'owner', ARGV[2],
    'replay', ARGV[3], 'hop', ARGV[4], 'starts', starts, 'fingerprint', fingerprint)
  redis.call('PEXPIRE', key, ARGV[6])
  return starts
end

local status = redis.call('HGET', key, 'status')
if not status then
  return hold(start)
end

local record = redis.call('HMGET', key,
  'token', 'owner', 'replay', 'hop', 'starts', 'fingerprint', 'result', 'steps', 'last')
local starts = tonumber(record[5])
local ahead = tonumber(ARGV[3]) - tonumber(record[3])
local same_replay = ahead == 0
local behind = ahead < 0 or (same_replay and tonumber(ARGV[4]) < tonumber(record[4]))
-- What stands before the colon is the key that made a fingerprint: two keys make two of one body.
local function maker(of)
  return string.match(of, '^(.*):') or ''
end
local another_body = same_replay and fingerprint ~= '' and record[6] ~= ''
  and fingerprint ~= record[6] and maker(fingerprint) == maker(record[6])

if another_body then
  return {'conflict'}
end
local passes = (status == 'completed' and ARGV[9] == '1') or (status == 'failed' and ahead > 0)
if passes then
  redis.call('HDEL', key, 'result', 'steps', 'last')
  return hold(start)
end
if status == 'completed' or status == 'failed' then
  return {status, record[7]}
end
if behind then
  return {'superseded'}
end
if same_replay and fingerprint == '' then
  fingerprint = record[6]
end
local function hold_on(starts)
  hold(starts)
  if record[8] or record[9] then
    return {'claimed', starts, record[8] and 1 or 0, record[9] or ''}
  end
  return starts
end
if status ~= 'pending' then
  return hold_on(starts + start)
end
if record[1] == token then
  return hold_on(starts)
end
if record[1] == ARGV[7] then
  return hold_on(starts + start)
end
redis.call('PEXPIRE', key, ARGV[6])
return {status, record[2], record[1]}
