-- listed(words): words as a sentence lists them: a, b and c.
create macro listed(words) as
    case when len(words) > 1 then array_to_string(words[:-2], ', ') || ' and ' || words[-1] else words[1] end
