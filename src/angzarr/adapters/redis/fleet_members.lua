-- What all workers said (angzarr.fleet.Fleet.members).
-- KEYS[1] hash: owner -> what it says
-- Returns owners, each before what it says. Odd bytes are left out: they would keep a client from
-- reading all the rest.
local found, told = redis.call('HGETALL', KEYS[1]), {}
for at = 1, #found, 2 do
  local owner, said = found[at], found[at + 1]
  if string.find(said, '^[ -~]+$') and not string.find(owner, '[\128-\255]') then
    told[#told + 1] = owner
    told[#told + 1] = said
  end
end
return told
