-- A version is put (angzarr.configuration.version.ConfigurationStore.put); it becomes the current one.
-- KEYS[1] set of all ids; [2] hash: version -> number, a space, and what is said of it; [3] hash:
--         version -> its body; [4] list of the versions that became current, oldest first: version,
--         a space, 'put' or 'chosen', a space, and what is said of that
-- ARGV    id, version ('' for the next number), body, what is said of it
-- Returns {1 if it is new, else 0; version; number and what is said; body}, or {-1} if the version
-- of that name has another body: then nothing was written. Bodies never change. Sent twice it does
-- the same.
local ids, infos, bodies, choices = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, version, body, said = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local number = redis.call('HLEN', infos)

local function kept(name)
  return {0, name, redis.call('HGET', infos, name), redis.call('HGET', bodies, name)}
end

if version ~= '' then
  local before = redis.call('HGET', bodies, version)
  if before == body then return kept(version) end
  if before then return {-1} end
else
  local last = redis.call('HGET', infos, ':last')
  if last and redis.call('HGET', bodies, last) == body then return kept(last) end
  local free = math.max(number, 1)
  while redis.call('HEXISTS', infos, tostring(free)) == 1 do free = free + 1 end
  version = tostring(free)
end

-- ':last' is no version, and counts as a field from the first put on.
local info = math.max(number, 1) .. ' ' .. said
redis.call('HSET', bodies, version, body)
redis.call('HSET', infos, version, info, ':last', version)
redis.call('RPUSH', choices, version .. ' put ' .. said)
redis.call('SADD', ids, id)
return {1, version, info, body}
