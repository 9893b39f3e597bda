-- advised_majority(row): what the verdicts of a row of majority_remedies amount to, in a word or two.
create macro advised_majority(row) as
    case
        when row.is_supported then 'helps'
        when row.evidence in ('mixed', 'bias rises') then 'mixed'
        when
            coalesce(row.sd_f1_reason is null and row.sd_f1_verdict in ('lower', 'higher'), false)
            or coalesce(row.is_rb_at_10_judged and row.rb_at_10_verdict in ('lower', 'higher'), false)
            or coalesce(row.mean_f1_reason is null and row.mean_f1_verdict in ('lower', 'higher'), false)
            then case
                when not coalesce(row.is_above_constant, false) then 'helps, not enough'
                when row.mean_f1_reason is null and row.mean_f1_verdict = 'lower' then 'at a price'
                else 'helps in part'
            end
        else 'no change shown'
    end
