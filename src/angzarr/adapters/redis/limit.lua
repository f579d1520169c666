-- One step of shared limits; says the same as resilience/limit_rules.py, whose names it uses.
-- KEYS: for each scope its gauge (hash, ms) and its slots (sorted set: token → when its lease ends)
-- ARGV: the step, then
--   take     token, lease (ms), and for each scope interval (ms, 0: no rate), tolerance (ms),
--            concurrency (0: none). Returns now, then nothing if it may go, else the number of the
--            scope to wait for, how long, and over how long to spread (ms).
--   release  for each scope a token, and how long it held its slot (ms, '': nobody knows)
--   renew    lease, and for each scope a token. Who lost its slot does not get it back.
local SHORTEST, LONGEST, LONGEST_FOR_A_SLOT, WEIGHT = 10, 300000, 60000, 0.2
local KEPT = 60000 -- how long it is remembered for how long slots are held

local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000

local function text(number) return string.format('%.17g', number) end

local function read(key)
  local told = redis.call('HMGET', key, 'due', 'line', 'queue', 'held')
  return {
    due = tonumber(told[1]) or 0, line = tonumber(told[2]) or 0,
    queue = tonumber(told[3]) or 0, held = tonumber(told[4]) or 100,
  }
end

local function write(key, gauge)
  redis.call('HSET', key, 'due', text(gauge.due), 'line', text(gauge.line),
    'queue', text(gauge.queue), 'held', text(gauge.held))
  local last = math.max(gauge.due, gauge.line, gauge.queue, now)
  redis.call('PEXPIRE', key, math.ceil(last - now) + KEPT)
end

local function early(scope)
  if scope.interval == 0 then return 0 end
  return math.max(0, scope.gauge.due - scope.tolerance - now)
end

local function is_full(scope, token)
  if scope.concurrency == 0 then return false end
  redis.call('ZREMRANGEBYSCORE', scope.slots, '-inf', now)
  return not redis.call('ZSCORE', scope.slots, token)
    and redis.call('ZCARD', scope.slots) >= scope.concurrency
end

local function wait_for_rate(scope)
  local gauge = scope.gauge
  local place = math.max(gauge.line, now + math.max(early(scope), SHORTEST))
  if place - now > LONGEST then return LONGEST / 2, LONGEST / 2 end
  gauge.line = place + scope.interval
  return place - now, 0
end

local function wait_for_slot(scope)
  local gauge = scope.gauge
  local pace = math.max(SHORTEST, gauge.held / scope.concurrency)
  local place = math.max(gauge.queue, now + pace)
  if place - now > LONGEST_FOR_A_SLOT then
    return LONGEST_FOR_A_SLOT / 2, LONGEST_FOR_A_SLOT / 2
  end
  gauge.queue = place + pace
  return place - now, 0
end

local function take(token, lease)
  local scopes, told = {}, nil
  local function wait(n, span, spread)
    if not told or span + spread > told[2] + told[3] then told = {n, span, spread} end
  end
  for n = 1, #KEYS / 2 do
    local scope = {
      key = KEYS[2 * n - 1], slots = KEYS[2 * n], gauge = read(KEYS[2 * n - 1]),
      interval = tonumber(ARGV[3 * n + 1]), tolerance = tonumber(ARGV[3 * n + 2]),
      concurrency = tonumber(ARGV[3 * n + 3]),
    }
    scopes[n] = scope
    local late, full = early(scope) > 0, is_full(scope, token)
    if late then wait(n, wait_for_rate(scope)) end
    if full then wait(n, wait_for_slot(scope)) end
    if late or full then write(scope.key, scope.gauge) end
  end
  if told then return {math.floor(now), told[1], text(told[2]), text(told[3])} end
  for _, scope in ipairs(scopes) do
    if scope.interval > 0 then
      scope.gauge.due = math.max(scope.gauge.due, now) + scope.interval
      write(scope.key, scope.gauge)
    end
    if scope.concurrency > 0 then
      redis.call('ZADD', scope.slots, now + lease, token)
      redis.call('PEXPIRE', scope.slots, lease * 2)
    end
  end
  return {math.floor(now)}
end

local function release()
  for n = 1, #KEYS / 2 do
    local took = tonumber(ARGV[2 * n + 1])
    if redis.call('ZREM', KEYS[2 * n], ARGV[2 * n]) == 1 and took then
      local gauge = read(KEYS[2 * n - 1])
      gauge.held = gauge.held + (took - gauge.held) * WEIGHT
      write(KEYS[2 * n - 1], gauge)
    end
  end
  return {math.floor(now)}
end

local function renew(lease)
  for n = 1, #KEYS / 2 do
    redis.call('ZADD', KEYS[2 * n], 'XX', now + lease, ARGV[n + 2])
    redis.call('PEXPIRE', KEYS[2 * n], lease * 2)
  end
  return {math.floor(now)}
end

local step = ARGV[1]
if step == 'take' then return take(ARGV[2], tonumber(ARGV[3])) end
if step == 'release' then return release() end
return renew(tonumber(ARGV[2]))
