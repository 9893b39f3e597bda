-- long_method(meaning, shown): a calibration with its full name, from the head of its file: contextual calibration (CC).
create macro long_method(meaning, shown) as
    coalesce(
        nullif(lower(regexp_extract(meaning, '^([A-Z])[\w-]+(?: [\w-]+){0,5} \(', 1))
        || regexp_extract(meaning, '^[A-Z]([\w-]+(?: [\w-]+){0,5}) \(', 1), '') || format(' ({})', shown),
        shown
    )
