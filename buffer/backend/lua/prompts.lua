-- Draw prompts from the pool and lease them to generators.
-- Sets by data source: `ready` (may be drawn), `drawn` (in this pass), `resting` (until an epoch), `retired`.
-- Numbers by data source: `left` (draws left in this epoch), `quota` (draws in the whole epoch), `weight` (draws per
-- prompt).

local function eligible(run, source)
    return redis.call('SCARD', key(run, 'ready', source)) + redis.call('SCARD', key(run, 'drawn', source))
end

local function move_back(run, source, prompts, counter)
    if #prompts == 0 then return 0 end
    redis.call('SADD', key(run, 'ready', source), unpack(prompts))
    count(run, counter, #prompts)
    return #prompts
end

local WAKE_CHUNK = 1000 -- bounds the duration of one call; the rest wakes in a later epoch

local function wake(run, source, epoch)
    local resting = key(run, 'resting', source)
    local due = redis.call('ZRANGEBYSCORE', resting, '-inf', epoch, 'LIMIT', 0, WAKE_CHUNK)
    if #due > 0 then redis.call('ZREM', resting, unpack(due)) end
    move_back(run, source, due, 'prompts_woken')
end

-- Recalls resting prompts, then retired ones, if there are too few for the batches in flight.
local function refill(run, source, missing)
    missing = math.min(missing, WAKE_CHUNK)
    local popped, members = redis.call('ZPOPMIN', key(run, 'resting', source), missing), {}
    for i = 1, #popped, 2 do members[#members + 1] = popped[i] end
    missing = missing - move_back(run, source, members, 'prompts_recalled_resting')
    if missing > 0 then
        local retired = redis.call('SPOP', key(run, 'retired', source), missing)
        missing = missing - move_back(run, source, retired, 'prompts_recalled_retired')
    end
    return missing
end

-- Returns a number for each source: `weight`, `quota` or `left`.
local function read_by_source(run, name)
    local flat, numbers = redis.call('HGETALL', key(run, name)), {}
    for i = 1, #flat, 2 do numbers[flat[i]] = tonumber(flat[i + 1]) end
    return numbers
end

-- Starts the next epoch; returns false if there is nothing left to draw.
local function next_epoch(run)
    local epoch, sources, total = redis.call('HINCRBY', run.control, 'epoch', 1), read_by_source(run, 'weight'), 0
    run.epoch = tostring(epoch)
    for source in pairs(sources) do
        wake(run, source, epoch)
        total = total + eligible(run, source)
    end
    local missing = (run.staleness + 1) * batch_of(run, stage_of(run, run.next)) - total
    for source in pairs(sources) do
        if missing > 0 then missing = refill(run, source, missing) end
    end
    local any = false
    run.quota, run.left = {}, {}
    for source, weight in pairs(sources) do
        local quota = math.floor(weight * eligible(run, source) + 0.5)
        if weight > 0 and quota == 0 and eligible(run, source) > 0 then quota = 1 end
        run.quota[source], run.left[source] = quota, quota
        redis.call('HSET', key(run, 'quota'), source, quota)
        redis.call('HSET', key(run, 'left'), source, quota)
        any = any or quota > 0
    end
    return any
end

-- Returns the source that is furthest behind its share of the epoch, so that each batch has the mixture's proportions.
local function next_source(run)
    local best, share = nil, 0
    for source, left in pairs(run.left) do
        local this = left > 0 and left / run.quota[source] or 0
        if this > share or (best and this == share and source < best) then best, share = source, this end
    end
    return best
end

local function pop(run, source)
    local ready, drawn = key(run, 'ready', source), key(run, 'drawn', source)
    local prompt = redis.call('SPOP', ready)
    if not prompt and redis.call('EXISTS', drawn) == 1 then -- begin the next pass over the source
        redis.call('RENAME', drawn, ready)
        prompt = redis.call('SPOP', ready)
    end
    if prompt then
        redis.call('SADD', drawn, prompt)
        run.left[source] = redis.call('HINCRBY', key(run, 'left'), source, -1)
    else
        run.left[source] = 0
        redis.call('HSET', key(run, 'left'), source, 0)
    end
    return prompt
end

-- Returns the next prompt and its source; nil if the pool is exhausted.
local function draw(run)
    local turns = 0
    while true do
        local source = next_source(run)
        if source then
            local prompt = pop(run, source)
            if prompt then return prompt, source end
        else
            turns = turns + 1
            if turns > 2 or not next_epoch(run) then return nil end
        end
    end
end

-- Returns the number of a prompt's draw within the epoch. It starts at 0, or in a restored run at a number that no
-- lost group had.
local function number_draw(run, prompt)
    local draws = key(run, 'draws')
    local last, n = string.match(redis.call('HGET', draws, prompt) or '', '^(%d+):(%d+)$')
    n = last == run.epoch and tonumber(n) + 1 or run.draw_floor
    redis.call('HSET', draws, prompt, run.epoch .. ':' .. n)
    return n
end

-- Starts a group of `stage`; returns nil if the pool is exhausted.
local function start(run, actor, stage)
    local prompt, source = draw(run)
    if not prompt then return nil end
    local id = run.epoch .. '.' .. prompt .. '.' .. number_draw(run, prompt)
    redis.call('ZADD', in_flight_key(run, stage), actor.step, id)
    return id, { IN_FLIGHT, stage, actor.step, '', actor.name, source, actor.lineage, 0, false }
end

-- Leases a group again whose lease was lost; it keeps its place.
local function reissue(run, actor, id)
    local group = read_group(run, id)
    redis.call('ZREM', run.lost, id)
    group[STEP], group[ACTOR], group[LINEAGE] = actor.step, actor.name, actor.lineage
    redis.call('ZADD', in_flight_key(run, group[STAGE]), actor.step, id)
    return group
end

-- Returns the earliest stage with room for groups sampled by version `step`, and for how many.
local function stage_with_room(run, step)
    for stage = stage_of(run, run.next), stage_of(run, step + run.staleness) do
        local free = room(run, stage, step)
        if free > 0 then return stage, free end
    end
    return nil, 0
end

local function refusal(run, lineage, step)
    if run.stopping then return 'stopping' end
    if run.paused then return 'paused' end
    if not valid(run, lineage, step) or step + run.staleness < run.next then return 'stale' end
end

-- Returns what the generator needs of its groups.
local function describe(run, ids, groups)
    local prompts, rows = {}, {}
    for i, id in ipairs(ids) do prompts[i] = string.match(id, '^%d+%.(%d+)%.') end
    local histories, priors = read_fields(key(run, 'history'), prompts), read_fields(key(run, 'prior'), prompts)
    for i, group in ipairs(groups) do
        rows[i] = { ids[i], group[ATTEMPT], group[STAGE], group_size_of(run, group[STAGE]), group[SOURCE],
            histories[i] or '', priors[i] or '' }
    end
    return rows
end

-- Starts groups until there are `wanted`; returns how many it started, and why not all.
local function start_some(run, actor, wanted, ids, groups)
    local started, stage, free = 0, nil, 0
    run.left, run.quota = read_by_source(run, 'left'), read_by_source(run, 'quota')
    while #ids < wanted do
        if free == 0 then stage, free = stage_with_room(run, actor.step) end
        if not stage then return started, 'admission' end
        local id, group = start(run, actor, stage)
        if not id then return started, 'exhausted' end
        started, free = started + 1, free - 1
        ids[#ids + 1], groups[#groups + 1] = id, group
    end
    return started, ''
end

-- `actor`: who leases (name), on which weights (lineage, step). Groups whose lease was lost go first, if they were
-- not leased on newer weights.
local function lease(run, actor, wanted, request)
    local refused, started, groups = refusal(run, actor.lineage, actor.step), nil, {}
    if refused then return { refused, {} } end
    local ids = redis.call('ZRANGEBYSCORE', run.lost, '-inf', actor.step, 'LIMIT', 0, wanted)
    for i, id in ipairs(ids) do groups[i] = reissue(run, actor, id) end
    if #ids > 0 then count(run, 'reissued', #ids) end
    started, refused = start_some(run, actor, wanted, ids, groups)
    if started > 0 then count(run, 'started', started) end
    for i, group in ipairs(groups) do group[ATTEMPT] = request .. '-' .. (i - 1) end
    write_groups(run, ids, groups)
    return { refused, describe(run, ids, groups) }
end

-- ARGV: incarnation, actor, lineage, step, wanted, request. A repeated request gets the first answer again.
define('lease', function(run, args)
    local last = redis.call('HGET', key(run, 'requests'), args[2])
    if last then
        local request, answer = unpack(cmsgpack.unpack(last))
        if request == args[6] then return answer end
    end
    local actor = { name = args[2], lineage = tonumber(args[3]), step = tonumber(args[4]) }
    local answer = lease(run, actor, tonumber(args[5]), args[6])
    if #answer[2] > 0 then
        redis.call('HSET', key(run, 'requests'), args[2], cmsgpack.pack({ args[6], answer }))
    end
    return answer
end)

-- Moves the prompt of a finished group to its next status: active, resting or retired.
local function update_prompt(run, prompt, source, status, until_epoch)
    if status == 'active' then return end
    redis.call('SREM', key(run, 'ready', source), prompt)
    redis.call('SREM', key(run, 'drawn', source), prompt)
    if status == 'retired' then
        redis.call('SADD', key(run, 'retired', source), prompt)
    else
        redis.call('ZADD', key(run, 'resting', source), until_epoch, prompt)
    end
end
