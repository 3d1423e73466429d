-- What every function uses: the run's settings, a group's record, the books and the bells.
-- KEYS[1] is the run's name space; ARGV[1] the incarnation the caller knows ('' if none).

local SCHEMA = '1'
local SLOT = 8589934592 -- 2^33: a pending group's score is step * SLOT + arrival, so it sorts by deadline, then age

-- A group's record: a msgpack array with these positions.
local PLACE, STAGE, STEP, ATTEMPT, ACTOR, SOURCE, LINEAGE, NEWEST, BODY = 1, 2, 3, 4, 5, 6, 7, 8, 9
-- PLACE is one of these; STEP is that of the oldest token; LINEAGE and NEWEST name its newest token's version
-- (while in flight, LINEAGE is that of the lease); ATTEMPT is the unique name of the copy that is being sampled
-- or that won; BODY says whether its body is stored. A group that ended keeps PLACE and ATTEMPT for a while, to answer
-- late copies.
local FLYING, PENDING, CLAIMED, TRAINED, REJECTED, DROPPED = 'in_flight', 'pending', 'claimed', 'trained',
    'rejected', 'dropped'

local function fail(code, text)
    error({ err = code .. ' ' .. text })
end

local function load_run(keys, args)
    local run = keys[1]
    local row = redis.call('HMGET', run .. ':control', 'incarnation', 'lineage', 'next', 'staleness', 'steps',
        'stages', 'stopping', 'reject_limit', 'schema', 'begun', 'paused', 'epoch', 'draw_floor')
    if not row[1] then fail('LOST', 'this Redis knows nothing of the run') end
    if args[1] ~= '' and args[1] ~= row[1] then fail('LOST', 'the run was begun anew in this Redis') end
    if row[9] ~= SCHEMA then fail('SCHEMA', 'the run was begun with schema ' .. row[9] .. ', this is ' .. SCHEMA) end
    return {
        run = run, control = run .. ':control', books = run .. ':books', groups = run .. ':groups',
        summaries = run .. ':summaries', progress = run .. ':progress', lost = run .. ':lost',
        lineage = tonumber(row[2]), next = tonumber(row[3]), staleness = tonumber(row[4]),
        steps = tonumber(row[5]), stages = cmsgpack.unpack(row[6]), stopping = row[7],
        reject_limit = tonumber(row[8]), begun = tonumber(row[10]), paused = row[11] == '1', epoch = row[12],
        draw_floor = tonumber(row[13] or '0'), [FLYING] = {}, [PENDING] = {},
    }
end

local function fence(run, lineage)
    if tonumber(lineage) > run.lineage then
        fail('LOST', 'this Redis forgot that lineage ' .. lineage .. ' began')
    elseif tonumber(lineage) < run.lineage then
        fail('FENCED', 'lineage ' .. lineage .. ' was replaced by lineage ' .. run.lineage)
    end
end

-- Registers a function of the library: `work(run, args)`, with the run loaded. By default it works above the memory
-- limit.
local function define(name, work, flags)
    redis.register_function {
        function_name = 'magicrl_v' .. SCHEMA .. '_' .. name, flags = flags or { 'allow-oom' },
        callback = function(keys, args) return work(load_run(keys, args), args) end,
    }
end

local function define_view(name, work) define(name, work, { 'no-writes' }) end

-- What the learner alone may do. ARGV goes on with its lineage and, mostly, a step.
local function define_learner(name, work)
    define(name, function(run, args)
        fence(run, args[2])
        return work(run, tonumber(args[3]), args)
    end)
end

local function key(run, name, part)
    return part and run.run .. ':' .. name .. ':' .. part or run.run .. ':' .. name
end

-- Keys by stage, put together once in a call.
local function staged(run, name, stage)
    local known = run[name]
    known[stage] = known[stage] or key(run, name, stage)
    return known[stage]
end

local function flying(run, stage) return staged(run, FLYING, stage) end
local function pending(run, stage) return staged(run, PENDING, stage) end
local function body_key(run, id, attempt) return run.run .. ':body:' .. id .. ':' .. attempt end

local PIECE = 1000 -- an even number of words: `unpack` bears only some thousands

-- Calls `command` with all `words`, on the key `name` if there is one.
local function bulk(command, words, name)
    for from = 1, #words, PIECE do
        local to = math.min(from + PIECE - 1, #words)
        if name then
            redis.call(command, name, unpack(words, from, to))
        else
            redis.call(command, unpack(words, from, to))
        end
    end
end

-- Values of the hash `name`, in the order of `fields`; false where there is none.
local function read_fields(name, fields)
    local values = {}
    for from = 1, #fields, PIECE do
        local some = redis.call('HMGET', name, unpack(fields, from, math.min(from + PIECE - 1, #fields)))
        for i = 1, #some do values[from + i - 1] = some[i] end
    end
    return values
end

local function read_groups(run, ids)
    local groups = read_fields(run.groups, ids)
    for i = 1, #ids do groups[i] = groups[i] and cmsgpack.unpack(groups[i]) end
    return groups
end

local function write_groups(run, ids, groups)
    local words = {}
    for i, id in ipairs(ids) do
        words[2 * i - 1], words[2 * i] = id, cmsgpack.pack(groups[i])
    end
    bulk('HSET', words, run.groups)
end

-- Those groups, with their ids, for which `fits` holds; unknown ones left out.
local function choose(ids, groups, fits)
    local some, chosen = {}, {}
    for i, id in ipairs(ids) do
        if groups[i] and fits(groups[i]) then some[#some + 1], chosen[#chosen + 1] = id, groups[i] end
    end
    return some, chosen
end

local function read_group(run, id)
    local packed = redis.call('HGET', run.groups, id)
    return packed and cmsgpack.unpack(packed)
end

local function write_group(run, id, group) redis.call('HSET', run.groups, id, cmsgpack.pack(group)) end
local function count(run, field, by) return redis.call('HINCRBY', run.books, field, by or 1) end
local function ring(run, bell, text) redis.call('PUBLISH', key(run, 'bell', bell), text) end

-- Stages: flat triples {first step, batch, group size, ...}; index 0 is the first stage.
local function stage_count(run) return #run.stages / 3 end
local function first_step(run, stage) return run.stages[stage * 3 + 1] end
local function batch_of(run, stage) return run.stages[stage * 3 + 2] end
local function group_size_of(run, stage) return run.stages[stage * 3 + 3] end

local function stage_of(run, step)
    local stage = stage_count(run) - 1
    while stage > 0 and first_step(run, stage) > step do stage = stage - 1 end
    return stage
end

-- Groups that steps `from` to `to` take of `stage`.
local function capacity(run, stage, from, to)
    local first = math.max(from, first_step(run, stage))
    local last = to
    if stage + 1 < stage_count(run) then last = math.min(last, first_step(run, stage + 1) - 1) end
    if run.steps >= 0 then last = math.min(last, run.steps - 1) end
    return math.max(0, last - first + 1) * batch_of(run, stage)
end

local function pending_until(run, stage, step)
    return redis.call('ZCOUNT', pending(run, stage), '-inf', '(' .. string.format('%.0f', (step + 1) * SLOT))
end

-- Unclaimed groups of `stage` whose oldest token is from `step` or before.
local function unclaimed(run, stage, step)
    return redis.call('ZCOUNT', flying(run, stage), '-inf', step) + pending_until(run, stage, step)
end

-- How many more groups of `stage` may have `step` as their oldest (see admission.py).
local function room(run, stage, step)
    local least = math.huge
    for version = step, math.max(run.next, step) do
        least = math.min(least,
            capacity(run, stage, run.next, version + run.staleness) - unclaimed(run, stage, version))
    end
    return least
end

-- Whether tokens of (lineage, step) may be trained on in the current lineage (see versions.Ancestry).
local function valid(run, lineage, step)
    if tonumber(lineage) == run.lineage then return run.lineage > 0 end
    local limit = tonumber(redis.call('HGET', key(run, 'ancestry'), lineage) or '-2')
    return limit == -1 or step <= limit
end

local function leave_place(run, id, group)
    if group[PLACE] == FLYING then
        redis.call('ZREM', flying(run, group[STAGE]), id)
        if group[ACTOR] == '' then redis.call('ZREM', run.lost, id) end
    elseif group[PLACE] == PENDING then
        redis.call('ZREM', pending(run, group[STAGE]), id)
    end
end

-- A group leaves its place for good: nothing of it stays but what answers a late copy.
local function forget_work(run, id, group)
    leave_place(run, id, group)
    if group[PLACE] == FLYING then redis.call('HDEL', run.progress, id) end
end

local function delete_bodies(run, ids, groups)
    local bodies = {}
    for i, id in ipairs(ids) do
        local group = groups[i]
        if group[BODY] then bodies[#bodies + 1] = body_key(run, id, group[ATTEMPT]) end
        group[BODY] = false
    end
    bulk('UNLINK', bodies)
    bulk('HDEL', ids, run.summaries)
end

local function finish(run, id, group, place)
    forget_work(run, id, group)
    delete_bodies(run, { id }, { group })
    group[PLACE] = place
    write_group(run, id, group)
    redis.call('RPUSH', key(run, 'ended', run.next), id)
    count(run, place)
end

-- The prompt may be drawn again in this epoch.
local function rejoin(run, id, group)
    local prompt = string.match(id, '^%d+%.(%d+)%.')
    local moved = redis.call('SMOVE', key(run, 'drawn', group[SOURCE]), key(run, 'ready', group[SOURCE]), prompt)
    if moved == 1 then redis.call('HINCRBY', key(run, 'left'), group[SOURCE], 1) end
end

-- What would happen again is not tried again in the same epoch.
local FINAL = { ['straggler deadline'] = true, corrupt = true, oversize = true, ['grading error'] = true }

local function sampled_tokens(run, id)
    local beat = redis.call('HGET', run.progress, id)
    return beat and tonumber(string.match(beat, '^%d+')) or 0
end

local function drop(run, id, group, reason, tokens)
    tokens = tokens or sampled_tokens(run, id)
    finish(run, id, group, DROPPED)
    count(run, 'dropped:' .. reason)
    if tokens > 0 then count(run, 'dropped_tokens:' .. reason, tokens) end
    if not FINAL[reason] then rejoin(run, id, group) end
end
