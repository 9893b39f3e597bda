-- loss_caution(n_not_falling, n_adapters): that the loss of so many adapters does not fall, in a sentence.
create macro loss_caution(n_not_falling, n_adapters) as
    format(
        'The training loss of {:,} of {} is not lower at the last step than at the first. Each step has different '
        || 'examples, so a few may rise by chance; if most do, training did not help.',
        n_not_falling::bigint, counted(n_adapters, 'adapter')
    )
