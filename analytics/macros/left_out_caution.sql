-- left_out_caution(names): the caution about rows of failed_parts that metrics leave out (analysis.missing_parts).
create macro left_out_caution(names) as
    'Parts failed, and every number leaves out: ' || some_of(list_transform(
        list_sort(list_distinct(names)),
        lambda name: regexp_replace(regexp_replace(name, '^part ', 'questions of part '), '^demo_set ', 'demonstration set ')
    ), 5) || ' (failed_parts in SQL).'
