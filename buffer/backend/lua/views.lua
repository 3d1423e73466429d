-- What anyone may look at; nothing here writes.

-- The books: counters, and the places counted where the groups are.
define_view('books', function(run, args)
    local in_flight, waiting, claimed = 0, 0, 0
    for stage = 0, stage_count(run) - 1 do
        in_flight = in_flight + redis.call('ZCARD', flying(run, stage))
        waiting = waiting + redis.call('ZCARD', pending(run, stage))
    end
    for step = math.max(0, run.next - 2), run.next do
        claimed = claimed + redis.call('LLEN', claim_key(run, step))
    end
    return { in_flight, waiting, claimed, redis.call('HGETALL', run.books) }
end)

-- Ids of all groups that are started and not trained, rejected or dropped.
define_view('live', function(run, args)
    local live = {}
    local places = {}
    for stage = 0, stage_count(run) - 1 do
        places[#places + 1] = redis.call('ZRANGE', flying(run, stage), 0, -1)
        places[#places + 1] = redis.call('ZRANGE', pending(run, stage), 0, -1)
    end
    for step = math.max(0, run.next - 2), run.next do
        places[#places + 1] = redis.call('LRANGE', claim_key(run, step), 0, -1)
    end
    for _, ids in ipairs(places) do
        for _, id in ipairs(ids) do live[#live + 1] = id end
    end
    return live
end)

-- The summary of the pending group whose deadline is the earliest, or nothing.
define_view('oldest_ready', function(run, args)
    local oldest, summary = math.huge, false
    for stage = 0, stage_count(run) - 1 do
        local id = redis.call('ZRANGE', pending(run, stage), 0, 0)[1]
        local group = id and read_group(run, id)
        if group and group[STEP] < oldest then
            oldest, summary = group[STEP], redis.call('HGET', run.summaries, id)
        end
    end
    return summary
end)

-- Every lease that is held: group, attempt, actor, "progress:beat" ('' before the first heartbeat), step, stage.
define_view('leases', function(run, args)
    local held = {}
    for stage = 0, stage_count(run) - 1 do
        for _, id in ipairs(redis.call('ZRANGE', flying(run, stage), 0, -1)) do
            local group = read_group(run, id)
            if group[ACTOR] ~= '' then
                held[#held + 1] = { id, group[ATTEMPT], group[ACTOR],
                    redis.call('HGET', run.progress, id) or '', group[STEP], stage }
            end
        end
    end
    return held
end)
