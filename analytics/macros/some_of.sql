-- some_of(words, n): the first n words as a sentence lists them, and how many more there are.
create macro some_of(words, n) as
    if(len(words) > n, array_to_string(words[:n], ', ') || format(' and {:,} more', len(words) - n), listed(words))
