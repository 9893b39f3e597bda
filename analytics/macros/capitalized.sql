-- capitalized(sentence): with a capital letter first.
create macro capitalized(sentence) as
    upper(sentence[1]) || sentence[2:]
