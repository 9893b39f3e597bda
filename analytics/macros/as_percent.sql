-- as_percent(share): a share from 0 to 1 as sentences write it.
create macro as_percent(share) as
    coalesce(format('{:.1f} %', 100 * share), '–')
