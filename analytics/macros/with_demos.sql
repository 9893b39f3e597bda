-- with_demos(n): in a sentence: without demonstrations, with 4 demonstrations.
create macro with_demos(n) as
    if(n = 0, 'without demonstrations', 'with ' || counted(n, 'demonstration'))
