-- What the driver does, and restarts: open a run, begin a lineage (undoing what a crash lost), restore, stop.

-- ARGV: incarnation ('' accepts any), new incarnation, staleness, steps (-1: no end), reject limit in batches,
-- then per stage its first step, batch and group size. Creates the run if Redis does not know it; returns whether it
-- did.
redis.register_function {
    function_name = 'magicrl_v1_open', flags = { 'allow-oom' },
    callback = function(keys, args)
        local control, stages = keys[1] .. ':control', {}
        local known = redis.call('HSETNX', control, 'incarnation', args[2]) == 0
        for i = 6, #args do stages[#stages + 1] = tonumber(args[i]) end
        redis.call('HSET', control, 'staleness', args[3], 'steps', args[4], 'reject_limit', args[5],
            'schema', SCHEMA, 'stages', cmsgpack.pack(stages))
        -- Left by an earlier driver: the weights that it announced may be gone, and its stop is not this one's.
        redis.call('HDEL', control, 'stopping', 'announced')
        for _, field in ipairs({ 'lineage', 'next', 'epoch', 'durable', 'begun' }) do
            redis.call('HSETNX', control, field, field == 'epoch' and -1 or 0)
        end
        return known and 1 or 0
    end,
}

local function read_lineage(run, number)
    local row = redis.call('HGET', key(run, 'lineages'), number)
    if not row then fail('LINEAGE', 'lineage ' .. number .. ' is not known') end
    local parent, fork = string.match(row, '^(%d+):(%d+)$')
    return tonumber(parent), tonumber(fork)
end

-- Writes the newest valid step by ancestor: the smallest fork on the path; -1: no limit.
local function write_ancestry(run, number)
    local limit, ancestry = -1, key(run, 'ancestry')
    redis.call('DEL', ancestry)
    redis.call('HSET', ancestry, number, -1)
    local parent, fork = read_lineage(run, number)
    while parent ~= 0 do
        limit = limit == -1 and fork or math.min(limit, fork)
        redis.call('HSET', ancestry, parent, limit)
        parent, fork = read_lineage(run, parent)
    end
end

-- Returns why a group cannot be trained after a restart at run.next; nil if it can. `moving`: it is in flight.
local function drop_reason(run, group, moving)
    local newest_valid = moving or valid(run, group[LINEAGE], group[NEWEST])
    if not newest_valid then return 'invalid lineage' end
    if group[STEP] + run.staleness < run.next then return 'stale' end
    if group[STAGE] >= stage_count(run) or group[STAGE] < stage_of(run, run.next) then return 'stage changed' end
    if room(run, group[STAGE], group[STEP]) < 1 then return 'stage changed' end
end

-- Removes everything unclaimed from its place and returns the ids, to be admitted again under the new rules.
local function clear_places(run, stages)
    local all = {}
    for stage = 0, stages - 1 do
        for _, name in ipairs({ pending_key(run, stage), in_flight_key(run, stage) }) do
            for _, id in ipairs(redis.call('ZRANGE', name, 0, -1)) do all[#all + 1] = id end
            redis.call('DEL', name)
        end
    end
    return all
end

local function by_deadline(run, ids)
    local rows = {}
    for _, id in ipairs(ids) do rows[#rows + 1] = { id, read_group(run, id) } end
    table.sort(rows, function(a, b)
        if a[2][STEP] ~= b[2][STEP] then return a[2][STEP] < b[2][STEP] end
        if a[2][PLACE] ~= b[2][PLACE] then return a[2][PLACE] > b[2][PLACE] end -- pending before in flight
        return a[1] < b[1]
    end)
    return rows
end

-- Ends claims that were not committed. Those before the fork were trained: the checkpoint includes them.
local function return_claims(run, old_next, ids)
    for step = math.max(0, run.next - 2), old_next do
        for _, id in ipairs(redis.call('LRANGE', claim_key(run, step), 0, -1)) do
            local group = read_group(run, id)
            if step < run.next then
                train(run, step, { id }, { group })
            else
                group[PLACE] = PENDING
                write_group(run, id, group)
                ids[#ids + 1] = id
            end
        end
        redis.call('DEL', claim_key(run, step))
    end
end

-- Undoes what was trained at `run.next` or later. Groups whose body is stored may be trained again.
local function roll_back(run, old_next, ids)
    for step = run.next, old_next do
        for _, id in ipairs(redis.call('LRANGE', trained_key(run, step), 0, -1)) do
            local group = read_group(run, id)
            count(run, TRAINED, -1)
            if group[BODY] and not drop_reason(run, group) then
                group[PLACE] = PENDING
                write_group(run, id, group)
                ids[#ids + 1] = id
            else
                group[PLACE] = CLAIMED
                drop(run, id, group, 'rolled back', 0)
            end
        end
        redis.call('DEL', trained_key(run, step))
    end
end

-- Admits again, by deadline, what a restart leaves; drops the rest with its reason.
local function readmit(run, old_next, durable, stages)
    local ids = clear_places(run, stages)
    return_claims(run, old_next, ids)
    forget_durable(run, durable, run.next)
    roll_back(run, old_next, ids)
    for _, row in ipairs(by_deadline(run, ids)) do
        local id, group = row[1], row[2]
        local moving = group[PLACE] == IN_FLIGHT
        local reason = drop_reason(run, group, moving)
        if not reason and moving and not valid(run, group[LINEAGE], group[STEP]) then reason = 'invalid lineage' end
        if reason then
            drop(run, id, group, reason)
        elseif moving then
            redis.call('ZADD', in_flight_key(run, group[STAGE]), group[STEP], id)
        else
            make_pending(run, id, group)
        end
    end
end

-- ARGV: incarnation, parent, fork step, floor (the largest lineage known outside Redis). Begins a learner's lineage and
-- returns its new number. What the parent did after the fork is undone, and older learners are fenced from now on.
define('begin_lineage', function(run, args)
    local number, old_next = tonumber(args[4]), run.next
    local durable = tonumber(redis.call('HGET', run.control, 'durable'))
    for _, known in ipairs(redis.call('HKEYS', key(run, 'lineages'))) do
        number = math.max(number, tonumber(known))
    end
    number = number + 1
    redis.call('HSET', key(run, 'lineages'), number, args[2] .. ':' .. args[3])
    write_ancestry(run, number)
    run.lineage, run.next, run.begun = number, tonumber(args[3]), tonumber(args[3])
    redis.call('HSET', run.control, 'lineage', number, 'next', run.next, 'begun', run.next,
        'durable', run.next, 'flat_in_a_row', 0)
    redis.call('HDEL', run.control, 'stopping', 'announced', 'paused')
    readmit(run, old_next, durable, math.max(stage_count(run), 64))
    notify(run, 'room', 'lineage')
    return number
end)

-- ARGV: incarnation, reason. Asks generators to drain; the first reason stays.
define('stop', function(run, args)
    if not run.stopping then redis.call('HSET', run.control, 'stopping', args[2]) end
    notify(run, 'room', 'stop')
    notify(run, 'work', 'stop')
    return 1
end)

-- ARGV: incarnation, reason. Drops everything unclaimed; returns how many groups.
define('end', function(run, args)
    local ended = 0
    for stage = 0, stage_count(run) - 1 do
        for _, name in ipairs({ pending_key(run, stage), in_flight_key(run, stage) }) do
            for _, id in ipairs(redis.call('ZRANGE', name, 0, -1)) do
                drop(run, id, read_group(run, id), args[2])
                ended = ended + 1
            end
        end
    end
    return ended
end)

-- ARGV: incarnation, lineage. Gives a sign of life of the learner.
define_learner('learner_beat', function(run)
    notify(run, 'learner', 'beat')
    return redis.call('HINCRBY', run.control, 'learner_beats', 1)
end)

-- ARGV: incarnation, draw floor, then the number of lineages, per lineage its number and "parent:fork", then per
-- counter its name and value. Restores only a run without lineages: an intact Redis wins. Returns whether it did.
define('restore', function(run, args)
    local rows = tonumber(args[3])
    if run.lineage > 0 then return 0 end
    for i = 4, 3 + 2 * rows, 2 do
        redis.call('HSET', key(run, 'lineages'), args[i], args[i + 1])
        run.lineage = math.max(run.lineage, tonumber(args[i]))
    end
    for i = 4 + 2 * rows, #args, 2 do redis.call('HSET', run.books, args[i], args[i + 1]) end
    redis.call('HSET', run.control, 'lineage', run.lineage, 'draw_floor', args[2])
    return 1
end)

-- ARGV: incarnation, '1' to pause or '0' to continue.
define('pause', function(run, args)
    redis.call('HSET', run.control, 'paused', args[2])
    notify(run, 'room', 'pause')
    return 1
end)
