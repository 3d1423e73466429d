-- What the learner does: claim a batch, commit it, mark checkpoints, announce weights. All fenced by lineage.

local function claim_key(run, step) return key(run, 'claim', step) end
local function trained_key(run, step) return key(run, 'trained', step) end

-- Returns how many groups in flight must arrive before the next step may be claimed, and from which version or before.
local function overdue(run, stage, need)
    for version = run.next - run.staleness, run.next do
        local ready = pending_until(run, stage, version)
        local excess = unclaimed(run, stage, version) - math.min(need, ready)
            - capacity(run, stage, run.next + 1, version + run.staleness)
        if excess > 0 then return excess, version end
    end
    return 0, -1
end

-- Returns the groups in flight from `version` or before, each followed by its progress.
local function progress_until(run, stage, version)
    local ids, rows = redis.call('ZRANGEBYSCORE', in_flight_key(run, stage), '-inf', version), {}
    local reports = read_fields(run.progress, ids)
    for i, id in ipairs(ids) do rows[2 * i - 1], rows[2 * i] = id, reported_progress(reports[i]) end
    return rows
end

-- Returns a number that grows with what generators report of their groups, and with every group that finishes.
local function run_progress(run)
    local finished = redis.call('HMGET', run.books, 'pushed', REJECTED)
    return (redis.call('HGET', run.control, 'progress') or 0) + (finished[1] or 0) + (finished[2] or 0)
end

-- Returns the answer to a claim: per group its id, attempt and summary.
local function claim_answer(run, ids, groups)
    local answer, summaries = { 'claimed' }, read_fields(run.summaries, ids)
    for i, id in ipairs(ids) do answer[i + 1] = { id, groups[i][ATTEMPT], summaries[i] or '' } end
    return answer
end

local KEEP_ENDED = 4 -- steps beyond the staleness bound for which the record of an ended group answers late copies

local function forget_ended(run)
    local old = key(run, 'ended', run.next - run.staleness - KEEP_ENDED)
    bulk('HDEL', redis.call('LRANGE', old, 0, -1), run.groups)
    redis.call('DEL', old, key(run, 'outcomes', run.next - 64))
end

local function take(run, stage, need)
    local popped, ids = redis.call('ZPOPMIN', pending_key(run, stage), need), {}
    for i = 1, #popped, 2 do ids[#ids + 1] = popped[i] end
    local groups = read_groups(run, ids)
    for _, group in ipairs(groups) do group[PLACE] = CLAIMED end
    write_groups(run, ids, groups)
    bulk('RPUSH', ids, claim_key(run, run.next))
    return claim_answer(run, ids, groups)
end

-- Announces `version`, unless it is the newest announced already.
local function announce(run, version)
    if version ~= '' and redis.call('HGET', run.control, 'announced') ~= version then
        redis.call('HSET', run.control, 'announced', version)
        notify(run, 'room', 'announce')
    end
end

-- ARGV: incarnation, lineage, step, version announced last ('' if none), which is announced again in case this Redis
-- forgot it. A repeated claim gets the first answer again. Answers 'claimed' with the groups, 'not_ready' with counts
-- and the progress of each group that may be overdue, or 'behind' if this Redis forgot claims and commits.
define_learner('claim', function(run, step, args)
    local ids = redis.call('LRANGE', claim_key(run, step), 0, -1)
    if #ids > 0 then return claim_answer(run, ids, read_groups(run, ids)) end
    if step > run.next then return { 'behind', run.next } end
    if step < run.next then fail('STEP', 'step ' .. run.next .. ' is claimed next, not ' .. step) end
    announce(run, args[4])
    local stage = stage_of(run, step)
    local need = batch_of(run, stage)
    local have = redis.call('ZCARD', pending_key(run, stage))
    local late_groups, version = overdue(run, stage, need)
    if have < need or late_groups > 0 then
        return { 'not_ready', have, need, redis.call('ZCARD', in_flight_key(run, stage)), late_groups, version,
            run_progress(run), progress_until(run, stage, version) }
    end
    forget_ended(run)
    local answer = take(run, stage, need)
    redis.call('HSET', run.control, 'next', step + 1, 'flat_in_a_row', 0)
    notify(run, 'room', 'claim')
    return answer
end)

-- ARGV: incarnation, lineage, step, then ids. Drops those of the groups that keep the step from being claimed; returns
-- how many.
define_learner('drop_stragglers', function(run, step, args)
    if step ~= run.next then return 0 end
    local dropped, stage = 0, stage_of(run, step)
    for i = 4, #args do
        local group = read_group(run, args[i])
        local _, version = overdue(run, stage, batch_of(run, stage))
        if group and group[PLACE] == IN_FLIGHT and group[STAGE] == stage and group[STEP] <= version then
            drop(run, args[i], group, 'straggler deadline')
            dropped = dropped + 1
        end
    end
    if dropped > 0 then notify(run, 'room', 'straggler deadline') end
    return dropped
end)

-- Makes a group pending again, with its old deadline.
local function make_pending(run, id, group)
    group[PLACE] = PENDING
    write_group(run, id, group)
    redis.call('ZADD', pending_key(run, group[STAGE]), string.format('%.0f', group[STEP] * SLOT), id)
end

-- Deletes bodies that no restore could use: those with tokens newer than the checkpoint begun last.
local function delete_unusable(run, ids, groups)
    ids, groups = select_groups(ids, groups, function(group) return group[NEWEST] > run.begun end)
    delete_bodies(run, ids, groups)
    return ids, groups
end

-- Marks groups as trained at `step`.
local function train(run, step, ids, groups)
    for i, id in ipairs(ids) do
        end_work(run, id, groups[i])
        groups[i][PLACE] = TRAINED
    end
    delete_unusable(run, ids, groups)
    write_groups(run, ids, groups)
    bulk('RPUSH', ids, trained_key(run, step))
    count(run, TRAINED, #ids)
end

-- Returns a record for a group that was trained though this Redis forgot its lease, and counts it as started.
local function forgotten_group(run)
    count(run, 'started')
    return { CLAIMED, stage_of(run, run.next), 0, '', '', '', 0, math.huge, false }
end

-- Returns `ids` and the elements of `more` from position `from` on, each once.
local function union(ids, more, from)
    local seen, all = {}, {}
    local function add(id)
        if not seen[id] then all[#all + 1] = id end
        seen[id] = true
    end
    for _, id in ipairs(ids) do add(id) end
    for i = from, #more do add(more[i]) end
    return all
end

local UNTRAINED = { [IN_FLIGHT] = true, [PENDING] = true, [CLAIMED] = true }

-- ARGV: incarnation, lineage, step, then the ids that the learner trained: a Redis that lost its last second may have
-- forgotten the claim. Each group that has not ended is trained now, whatever its place.
define_learner('commit', function(run, step, args)
    local ids = union(redis.call('LRANGE', claim_key(run, step), 0, -1), args, 4)
    local groups = read_groups(run, ids)
    for i = 1, #ids do groups[i] = groups[i] or forgotten_group(run) end
    train(run, step, select_groups(ids, groups, function(group) return UNTRAINED[group[PLACE]] end))
    redis.call('DEL', claim_key(run, step))
    if run.next <= step then redis.call('HSET', run.control, 'next', step + 1) end
    notify(run, 'room', 'commit')
    return 1
end)

-- ARGV: incarnation, lineage, step, then pairs (id, reason or 'trained'). Undoes the claim. Groups named are dropped
-- for the reason, or trained (Redis had forgotten it); the others are pending again, and `step` is claimed next.
define_learner('unclaim', function(run, step, args)
    if redis.call('EXISTS', claim_key(run, step)) == 0 then return 0 end
    local ends = {}
    for i = 4, #args, 2 do ends[args[i]] = args[i + 1] end
    for _, id in ipairs(redis.call('LRANGE', claim_key(run, step), 0, -1)) do
        local group = read_group(run, id)
        if ends[id] == TRAINED then
            train(run, step - 1, { id }, { group })
        elseif ends[id] then
            drop(run, id, group, ends[id], 0)
        else
            make_pending(run, id, group)
        end
    end
    redis.call('DEL', claim_key(run, step))
    redis.call('HSET', run.control, 'next', step)
    return 1
end)

-- ARGV: incarnation, lineage, step of the checkpoint that is being written. Keeps the bodies that it could use.
define_learner('checkpoint_begun', function(run, step) return redis.call('HSET', run.control, 'begun', step) end)

local function is_known(group) return group end

-- Forgets what steps `from` to `to` - 1 trained: it is in a checkpoint, so no restore needs it.
local function forget_durable(run, from, to)
    for step = from, to - 1 do
        local ids = redis.call('LRANGE', trained_key(run, step), 0, -1)
        delete_bodies(run, select_groups(ids, read_groups(run, ids), is_known))
        bulk('HDEL', ids, run.groups)
        redis.call('DEL', trained_key(run, step))
    end
end

-- Deletes the bodies of groups trained since the checkpoint begun last that it could not use.
local function trim_bodies(run)
    for step = run.begun, run.next - 1 do
        local ids = redis.call('LRANGE', trained_key(run, step), 0, -1)
        ids = select_groups(ids, read_groups(run, ids), function(group) return group[BODY] end)
        write_groups(run, delete_unusable(run, ids, read_groups(run, ids)))
    end
end

-- ARGV: incarnation, lineage, step. Marks everything trained before `step` as durable.
define_learner('checkpoint_durable', function(run, step)
    forget_durable(run, tonumber(redis.call('HGET', run.control, 'durable')), step)
    redis.call('HSET', run.control, 'durable', step, 'begun', step)
    run.begun = step
    trim_bodies(run)
    return 1
end)

-- ARGV: incarnation, lineage, step. Announces the newest weights.
define_learner('announce', function(run, step)
    announce(run, run.lineage .. '.' .. step)
    return 1
end)
