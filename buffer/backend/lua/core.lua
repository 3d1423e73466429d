-- What all functions use: the run's settings, groups' records, the books, admission and the channels.
-- KEYS[1] is the run's namespace; ARGV[1] the incarnation that the caller knows ('' if none).

local SCHEMA = '1'
local SLOT = 8589934592 -- 2^33: a pending group's score is step * SLOT + arrival: it sorts by deadline, then arrival

-- A group's record: a msgpack array with these positions.
local PLACE, STAGE, STEP, ATTEMPT, ACTOR, SOURCE, LINEAGE, NEWEST, BODY = 1, 2, 3, 4, 5, 6, 7, 8, 9
-- PLACE: see below. STEP: that of the oldest token. LINEAGE, NEWEST: version of the newest token (in flight, LINEAGE
-- is that of the lease). ATTEMPT: unique name of the copy that is being sampled, or that won. BODY: whether the body is
-- stored. A group that ended keeps its record for a while, to answer late copies.

-- The places (buffer/rules/places.py has the table of what moves a group between them).
local IN_FLIGHT, PENDING, CLAIMED, TRAINED, REJECTED, DROPPED = 'in_flight', 'pending', 'claimed', 'trained',
    'rejected', 'dropped'

local function fail(code, text)
    error({ err = code .. ' ' .. text })
end

-- Returns the run's settings and the keys that most functions use; fails if Redis does not have the run.
local function load_run(keys, args)
    local run = keys[1]
    local row = redis.call('HMGET', run .. ':control', 'incarnation', 'lineage', 'next', 'staleness', 'steps',
        'stages', 'stopping', 'reject_limit', 'schema', 'begun', 'paused', 'epoch', 'draw_floor')
    if not row[1] then fail('LOST', 'this Redis knows nothing of the run') end
    if args[1] ~= '' and args[1] ~= row[1] then fail('LOST', 'the run was created again in this Redis') end
    if row[9] ~= SCHEMA then fail('SCHEMA', 'the run was begun with schema ' .. row[9] .. ', this is ' .. SCHEMA) end
    return {
        run = run, control = run .. ':control', books = run .. ':books', groups = run .. ':groups',
        summaries = run .. ':summaries', progress = run .. ':progress', lost = run .. ':lost',
        lineage = tonumber(row[2]), next = tonumber(row[3]), staleness = tonumber(row[4]),
        steps = tonumber(row[5]), stages = cmsgpack.unpack(row[6]), stopping = row[7],
        reject_limit = tonumber(row[8]), begun = tonumber(row[10]), paused = row[11] == '1', epoch = row[12],
        draw_floor = tonumber(row[13] or '0'), [IN_FLIGHT] = {}, [PENDING] = {},
    }
end

local function fence(run, lineage)
    if tonumber(lineage) > run.lineage then
        fail('LOST', 'this Redis forgot that lineage ' .. lineage .. ' began')
    elseif tonumber(lineage) < run.lineage then
        fail('FENCED', 'lineage ' .. lineage .. ' was replaced by lineage ' .. run.lineage)
    end
end

-- Registers a function of the library, `work(run, args)`. By default it may be called above the memory limit.
local function define(name, work, flags)
    redis.register_function {
        function_name = 'magicrl_v' .. SCHEMA .. '_' .. name, flags = flags or { 'allow-oom' },
        callback = function(keys, args) return work(load_run(keys, args), args) end,
    }
end

local function define_view(name, work) define(name, work, { 'no-writes' }) end

-- Registers a function for the learner of the current lineage. ARGV continues with its lineage and usually a step.
local function define_learner(name, work)
    define(name, function(run, args)
        fence(run, args[2])
        return work(run, tonumber(args[3]), args)
    end)
end

local function key(run, name, part)
    return part and run.run .. ':' .. name .. ':' .. part or run.run .. ':' .. name
end

-- Keys by stage, each built once in a call.
local function staged(run, name, stage)
    local known = run[name]
    known[stage] = known[stage] or key(run, name, stage)
    return known[stage]
end

local function in_flight_key(run, stage) return staged(run, IN_FLIGHT, stage) end
local function pending_key(run, stage) return staged(run, PENDING, stage) end
local function body_key(run, id, attempt) return run.run .. ':body:' .. id .. ':' .. attempt end

local CHUNK = 1000 -- arguments in one call, an even number: `unpack` fails beyond a few thousand

-- Calls `command` with all of `arguments`, on the key `name` if given.
local function bulk(command, arguments, name)
    for from = 1, #arguments, CHUNK do
        local to = math.min(from + CHUNK - 1, #arguments)
        if name then
            redis.call(command, name, unpack(arguments, from, to))
        else
            redis.call(command, unpack(arguments, from, to))
        end
    end
end

-- Returns the values of the hash `name` in the order of `fields`; false where there is none.
local function read_fields(name, fields)
    local values = {}
    for from = 1, #fields, CHUNK do
        local some = redis.call('HMGET', name, unpack(fields, from, math.min(from + CHUNK - 1, #fields)))
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
    local fields = {}
    for i, id in ipairs(ids) do
        fields[2 * i - 1], fields[2 * i] = id, cmsgpack.pack(groups[i])
    end
    bulk('HSET', fields, run.groups)
end

-- Returns the known groups for which `fits` is true, with their ids.
local function select_groups(ids, groups, fits)
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
local function notify(run, channel, text) redis.call('PUBLISH', key(run, 'bell', channel), text) end

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

-- Returns how many groups of `stage` the steps `from` to `to` train.
local function capacity(run, stage, from, to)
    local first = math.max(from, first_step(run, stage))
    local last = to
    if stage + 1 < stage_count(run) then last = math.min(last, first_step(run, stage + 1) - 1) end
    if run.steps >= 0 then last = math.min(last, run.steps - 1) end
    return math.max(0, last - first + 1) * batch_of(run, stage)
end

local function pending_until(run, stage, step)
    return redis.call('ZCOUNT', pending_key(run, stage), '-inf', '(' .. string.format('%.0f', (step + 1) * SLOT))
end

-- Returns how many unclaimed groups of `stage` have an oldest token from `step` or before.
local function unclaimed(run, stage, step)
    return redis.call('ZCOUNT', in_flight_key(run, stage), '-inf', step) + pending_until(run, stage, step)
end

-- Returns how many more groups of `stage` may have an oldest token from `step` (see buffer/rules/admission.py).
local function room(run, stage, step)
    local least = math.huge
    for version = step, math.max(run.next, step) do
        least = math.min(least,
            capacity(run, stage, run.next, version + run.staleness) - unclaimed(run, stage, version))
    end
    return least
end

-- Returns whether tokens of (lineage, step) may be trained on in the current lineage: it is its own,
-- or an ancestor's from before the fork (recovery.lua writes the limits).
local function valid(run, lineage, step)
    if tonumber(lineage) == run.lineage then return run.lineage > 0 end
    local limit = tonumber(redis.call('HGET', key(run, 'ancestry'), lineage) or '-2')
    return limit == -1 or step <= limit
end

local function leave_place(run, id, group)
    if group[PLACE] == IN_FLIGHT then
        redis.call('ZREM', in_flight_key(run, group[STAGE]), id)
        if group[ACTOR] == '' then redis.call('ZREM', run.lost, id) end
    elseif group[PLACE] == PENDING then
        redis.call('ZREM', pending_key(run, group[STAGE]), id)
    end
end

-- Removes the group from its place and forgets its progress.
local function end_work(run, id, group)
    leave_place(run, id, group)
    if group[PLACE] == IN_FLIGHT then redis.call('HDEL', run.progress, id) end
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

-- Ends the group in `place`; only the record stays, which rejects late copies.
local function finish(run, id, group, place)
    end_work(run, id, group)
    delete_bodies(run, { id }, { group })
    group[PLACE] = place
    write_group(run, id, group)
    redis.call('RPUSH', key(run, 'ended', run.next), id)
    count(run, place)
end

-- Lets the prompt be drawn again in this epoch.
local function return_prompt(run, id, group)
    local prompt = string.match(id, '^%d+%.(%d+)%.')
    local moved = redis.call('SMOVE', key(run, 'drawn', group[SOURCE]), key(run, 'ready', group[SOURCE]), prompt)
    if moved == 1 then redis.call('HINCRBY', key(run, 'left'), group[SOURCE], 1) end
end

-- Reasons that would recur: the prompt is not drawn again in this epoch.
local RECURRING = { ['straggler deadline'] = true, corrupt = true, oversize = true, ['grading error'] = true }

-- Returns the progress in a group's "progress:beat".
local function reported_progress(report) return report and tonumber(string.match(report, '^%d+')) or 0 end

local function drop(run, id, group, reason, tokens)
    tokens = tokens or reported_progress(redis.call('HGET', run.progress, id))
    finish(run, id, group, DROPPED)
    count(run, 'dropped:' .. reason)
    if tokens > 0 then count(run, 'dropped_tokens:' .. reason, tokens) end
    if not RECURRING[reason] then return_prompt(run, id, group) end
end
