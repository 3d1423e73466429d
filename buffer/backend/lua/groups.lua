-- What generators do with the groups they leased: push, reject, drop, report progress, lose.

-- Upper bounds of the pass-rate buckets, as in buffer/rules/books.py.
local BUCKETS = { 0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 0.999, 1 }

local function bucket(rate)
    for i, bound in ipairs(BUCKETS) do
        if rate <= bound then return i - 1 end
    end
end

-- The report of a finished group: a msgpack array with these positions. That of a rejected group ends with TOKENS.
local ID, COPY, HISTORY, STATUS, UNTIL_EPOCH, PASS_RATE, SAMPLES, TOKENS = 1, 2, 3, 4, 5, 6, 7, 8
local OLDEST_LINEAGE, OLDEST, NEWEST_LINEAGE, NEWEST_STEP, SUMMARY = 9, 10, 11, 12, 13

-- Histories and outcomes of finished groups, rejected ones too, collected to be written in one call.
local function new_tally() return { histories = {}, outcomes = { samples = 0, tokens = 0 } } end

local function add_to_tally(run, tally, report, source)
    local prompt, outcomes = string.match(report[ID], '^%d+%.(%d+)%.'), tally.outcomes
    local histories, rate = tally.histories, 'rate:' .. source .. ':' .. bucket(report[PASS_RATE])
    histories[#histories + 1], histories[#histories + 2] = prompt, report[HISTORY]
    outcomes[rate] = (outcomes[rate] or 0) + 1
    outcomes.samples, outcomes.tokens = outcomes.samples + report[SAMPLES], outcomes.tokens + report[TOKENS]
    update_prompt(run, prompt, source, report[STATUS], report[UNTIL_EPOCH])
end

-- Outcomes are kept under the step that is claimed next.
local function write_tally(run, tally)
    if #tally.histories == 0 then return end
    bulk('HSET', tally.histories, key(run, 'history'))
    for name, number in pairs(tally.outcomes) do
        redis.call('HINCRBY', key(run, 'outcomes', run.next), name, number)
    end
end

local ACCEPTED = { 'accepted', '' }

-- Answers a copy that comes after another copy, or after the group's end: it is not counted.
local function answer_late_copy(run, id, group, attempt)
    local won = group and (group[PLACE] == PENDING or group[PLACE] == CLAIMED or group[PLACE] == TRAINED
        or group[PLACE] == REJECTED) and group[ATTEMPT] == attempt
    if not (won and group[BODY]) then redis.call('UNLINK', body_key(run, id, attempt)) end
    return { won and 'accepted' or group and 'duplicate' or 'unknown', '' }
end

-- Returns whether a group leased on its STEP may instead have its oldest token from the older `step`.
local function room_to_age(run, group, step)
    for version = step, group[STEP] - 1 do
        if capacity(run, group[STAGE], run.next, version + run.staleness)
            - unclaimed(run, group[STAGE], version) < 1 then return false end
    end
    return true
end

local function refuse(run, id, group, attempt, reason, tokens)
    redis.call('UNLINK', body_key(run, id, attempt))
    drop(run, id, group, reason, tokens)
    notify(run, 'room', reason)
    notify(run, 'work', reason)
    return { 'refused', reason }
end

-- Returns why a pushed group cannot be trained on; nil if it can.
local function refusal_reason(run, report)
    if not (valid(run, report[NEWEST_LINEAGE], report[NEWEST_STEP])
            and valid(run, report[OLDEST_LINEAGE], report[OLDEST])) then
        return 'invalid lineage'
    elseif report[OLDEST] + run.staleness < run.next then
        return 'stale'
    end
end

-- Pushes one group. Its place changes at once because admission counts it; `batch` collects the other writes.
local function push_one(run, batch, report, group)
    local id, attempt = report[ID], report[COPY]
    if not group or group[PLACE] ~= IN_FLIGHT then return answer_late_copy(run, id, group, attempt) end
    local reason = refusal_reason(run, report)
    if reason then return refuse(run, id, group, attempt, reason, report[TOKENS]) end
    if not room_to_age(run, group, report[OLDEST]) then -- another copy is sampled on newer weights
        redis.call('UNLINK', body_key(run, id, attempt))
        return { 'duplicate', '' }
    end
    leave_place(run, id, group)
    group[STEP], group[LINEAGE], group[NEWEST] = report[OLDEST], report[NEWEST_LINEAGE], report[NEWEST_STEP]
    group[PLACE], group[ATTEMPT], group[BODY] = PENDING, attempt, true
    local n = #batch.ids + 1
    local arrival = (batch.pushed + n) % SLOT
    redis.call('ZADD', pending_key(run, group[STAGE]), string.format('%.0f', report[OLDEST] * SLOT + arrival), id)
    batch.ids[n], batch.groups[n] = id, group
    batch.summaries[2 * n - 1], batch.summaries[2 * n] = id, report[SUMMARY]
    add_to_tally(run, batch.tally, report, group[SOURCE])
    return ACCEPTED
end

local function write_batch(run, batch)
    if #batch.ids == 0 then return end
    write_groups(run, batch.ids, batch.groups)
    bulk('HSET', batch.summaries, run.summaries)
    bulk('HDEL', batch.ids, run.progress)
    write_tally(run, batch.tally)
    count(run, 'pushed', #batch.ids)
    notify(run, 'work', 'push')
end

-- ARGV: incarnation, then the report of each group; their bodies were set in the same transaction. Refused above the
-- memory limit. Returns outcome and reason of each.
define('push', function(run, args)
    local reports, ids, known, replies = {}, {}, {}, {}
    for i = 2, #args do
        reports[i - 1] = cmsgpack.unpack(args[i])
        ids[i - 1] = reports[i - 1][ID]
    end
    local batch = { ids = {}, groups = {}, summaries = {}, tally = new_tally(),
        pushed = tonumber(redis.call('HGET', run.books, 'pushed') or '0') }
    local groups = read_groups(run, ids)
    for i, id in ipairs(ids) do
        known[id] = known[id] or groups[i] -- two copies of one group share its record
        replies[i] = push_one(run, batch, reports[i], known[id])
    end
    write_batch(run, batch)
    return replies
end, {})

-- ARGV: incarnation, report. Ends a group that gives no gradient.
define('reject', function(run, args)
    local report, tally = cmsgpack.unpack(args[2]), new_tally()
    local id, group = report[ID], read_group(run, report[ID])
    if not group or group[PLACE] ~= IN_FLIGHT then return answer_late_copy(run, id, group, report[COPY]) end
    group[ATTEMPT] = report[COPY]
    finish(run, id, group, REJECTED)
    local flat = redis.call('HINCRBY', run.control, 'flat_in_a_row', 1)
    if flat >= run.reject_limit * batch_of(run, stage_of(run, run.next)) and not run.stopping then
        redis.call('HSET', run.control, 'stopping', 'data exhausted')
        notify(run, 'room', 'stop')
    end
    add_to_tally(run, tally, report, group[SOURCE])
    write_tally(run, tally)
    notify(run, 'work', id)
    return ACCEPTED
end)

-- ARGV: incarnation, group, attempt, reason, tokens. Ends a group that its generator gave up.
define('drop', function(run, args)
    local id = args[2]
    local group = read_group(run, id)
    if not group or group[PLACE] ~= IN_FLIGHT or group[ATTEMPT] ~= args[3] then return 0 end
    drop(run, id, group, args[4], tonumber(args[5]))
    notify(run, 'room', args[4])
    notify(run, 'work', args[4])
    return 1
end)

local function lose(run, id, group)
    redis.call('ZADD', run.lost, group[STEP], id)
    redis.call('HDEL', run.progress, id)
    group[ACTOR] = ''
    write_group(run, id, group)
    count(run, 'leases_lost')
end

-- ARGV: incarnation, actor, then per group its id and a number that grows with its progress; what they grew by adds up
-- to the run's progress. Returns the groups whose lease the actor lost.
define('heartbeat', function(run, args)
    local ids, progress, gone, grown = {}, {}, {}, 0
    for i = 3, #args, 2 do ids[#ids + 1] = args[i] end
    local beat = redis.call('HINCRBY', key(run, 'beats'), args[2], 1)
    local before = read_fields(run.progress, ids)
    for i, group in ipairs(read_groups(run, ids)) do
        if group and group[PLACE] == IN_FLIGHT and group[ACTOR] == args[2] then
            grown = grown + math.max(0, args[2 * i + 2] - reported_progress(before[i]))
            progress[#progress + 1], progress[#progress + 2] = ids[i], args[2 * i + 2] .. ':' .. beat
        else
            gone[#gone + 1] = ids[i]
        end
    end
    bulk('HSET', progress, run.progress)
    redis.call('HINCRBY', run.control, 'progress', grown)
    return gone
end)

-- ARGV: incarnation, then per lease its group and attempt. The groups keep their places and will be leased again.
define('lose', function(run, args)
    local lost = 0
    for i = 2, #args, 2 do
        local group = read_group(run, args[i])
        if group and group[PLACE] == IN_FLIGHT and group[ACTOR] ~= '' and group[ATTEMPT] == args[i + 1] then
            lose(run, args[i], group)
            lost = lost + 1
        end
    end
    if lost > 0 then notify(run, 'room', 'reissue') end
    return lost
end)
