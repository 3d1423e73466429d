-- The whole prompt pool: fill it, move prompts between its states, restore it.

-- ARGV: incarnation, source, weight, then per prompt its id and its prior pass rate ('' if unknown).
-- Prompts that the pool knows keep their state. Returns how many were added.
define('fill', function(run, args)
    local added = 0
    local source = args[2]
    redis.call('HSET', key(run, 'weight'), source, args[3])
    for i = 4, #args, 2 do
        local known = redis.call('SISMEMBER', key(run, 'drawn', source), args[i]) == 1
            or redis.call('SISMEMBER', key(run, 'retired', source), args[i]) == 1
            or redis.call('ZSCORE', key(run, 'resting', source), args[i])
        if not known then added = added + redis.call('SADD', key(run, 'ready', source), args[i]) end
        if args[i + 1] ~= '' then redis.call('HSET', key(run, 'prior'), args[i], args[i + 1]) end
    end
    return added
end)

-- ARGV: incarnation, source, state (ready, drawn, resting, retired), until epoch, then prompts. Moves the prompts that
-- the pool knows; groups that were started are not affected. Returns how many moved.
define('place', function(run, args)
    local source, moved = args[2], 0
    local states = { 'ready', 'drawn', 'retired' }
    for i = 5, #args do
        local found = redis.call('ZREM', key(run, 'resting', source), args[i])
        for _, state in ipairs(states) do found = found + redis.call('SREM', key(run, state, source), args[i]) end
        if found > 0 then
            moved = moved + 1
            if args[3] == 'resting' then
                redis.call('ZADD', key(run, 'resting', source), args[4], args[i])
            else
                redis.call('SADD', key(run, args[3], source), args[i])
            end
        end
    end
    return moved
end)

-- ARGV: incarnation, rules, then per source its name and weight. The next draw begins an epoch with these weights.
define('enter_stage', function(run, args)
    redis.call('HSET', run.control, 'prompt_rules', args[2])
    for i = 3, #args, 2 do redis.call('HSET', key(run, 'weight'), args[i], args[i + 1]) end
    redis.call('DEL', key(run, 'left'), key(run, 'quota'))
    return 1
end)

-- ARGV: incarnation, epoch, rules, then per source its name, quota and draws left.
define('restore_epoch', function(run, args)
    redis.call('HSET', run.control, 'epoch', args[2], 'prompt_rules', args[3])
    for i = 4, #args, 3 do
        redis.call('HSET', key(run, 'quota'), args[i], args[i + 1])
        redis.call('HSET', key(run, 'left'), args[i], args[i + 2])
    end
    return 1
end)

-- ARGV: incarnation, then per prompt its id and history.
define('restore_histories', function(run, args)
    for i = 2, #args, 2 do redis.call('HSET', key(run, 'history'), args[i], args[i + 1]) end
    return 1
end)
