-- counted(n, thing): a number of things in words: 1 task, 2 tasks.
create macro counted(n, thing) as
    format('{:,} {}', n::bigint, thing || if(n = 1, '', 's'))
