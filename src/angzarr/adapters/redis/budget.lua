-- Takes in what a process reports of retry budgets and, where a token is given, takes one from each
-- of them or from none; says the same as resilience/budget_rules.py.
-- KEYS: for each budget a hash (slice → first attempts, and `line`: when the next of those who wait
--       has its place, ms) and a sorted set (token → when its retry was let through, ms)
-- ARGV: token or '', then for each budget {share, least, window (ms), first attempts since the last
--       report, places in the line that were given since then, tokens given back} as JSON
-- Returns now (ms), then for each budget that is spent {its number, line (ms), pace (ms)}.
local SLICES, SHORTEST = 30, 1000

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function count(key, window)
  local slice = math.floor(now / (window / SLICES))
  local firsts, line = 0, now
  local fields = redis.call('HGETALL', key)
  for at = 1, #fields, 2 do
    local number = tonumber(fields[at])
    if not number then line = tonumber(fields[at + 1])
    elseif number > slice - SLICES then firsts = firsts + tonumber(fields[at + 1])
    else redis.call('HDEL', key, fields[at]) end
  end
  return firsts, line, slice
end

local function take_in(budget, counts, retries)
  local window = budget.window
  local firsts, line, slice = count(counts, window)
  if budget.firsts > 0 then
    redis.call('HINCRBY', counts, slice, budget.firsts)
    firsts = firsts + budget.firsts
  end
  redis.call('ZREMRANGEBYSCORE', retries, '-inf', now - window)
  local returned = 0
  for _, token in ipairs(budget.returned) do
    returned = returned + redis.call('ZREM', retries, token)
  end
  local allowed = budget.share * firsts + budget.least
  local pace = window / allowed
  local place = line - returned * pace
  if budget.waited > 0 then place = math.max(place, now + SHORTEST) + budget.waited * pace end
  return {allowed = allowed, pace = pace, place = place, was = line}
end

-- The next who waits has this place, and leaves the one behind it; at the end of the line are all
-- for whom it is too long.
local function refuse(found, window)
  local place = math.max(found.place, now + SHORTEST)
  if place - now <= window / 2 then found.place = place + found.pace end
  return place
end

local token, budgets, states, spent = ARGV[1], {}, {}, {}
for n = 1, #ARGV - 1 do
  local budget, counts, retries = cjson.decode(ARGV[n + 1]), KEYS[2 * n - 1], KEYS[2 * n]
  local found = take_in(budget, counts, retries)
  budgets[n], states[n] = budget, found
  if token ~= '' and not redis.call('ZSCORE', retries, token)
    and found.allowed - redis.call('ZCARD', retries) < 1 then
    local place = refuse(found, budget.window)
    spent[#spent + 1] = {n, string.format('%.3f', place), string.format('%.3f', found.pace)}
  end
end
for n, budget in ipairs(budgets) do
  local counts, retries, found = KEYS[2 * n - 1], KEYS[2 * n], states[n]
  if token ~= '' and #spent == 0 then redis.call('ZADD', retries, 'NX', now, token) end
  if found.place ~= found.was then redis.call('HSET', counts, 'line', string.format('%.3f', found.place)) end
  redis.call('PEXPIRE', counts, budget.window * 2)
  redis.call('PEXPIRE', retries, budget.window * 2)
end
return {now, spent}
