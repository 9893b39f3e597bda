-- shown_heuristic(name): a heuristic in a sentence: what it counts, and its name; a user's own by its name.
create macro shown_heuristic(name) as
    case name
        when 'word_dist' then 'distance from the answer to a word of the question (word_dist)'
        when 'sim_word' then 'words shared with the question (sim_word)'
        when 'ans_pos' then 'sentence that holds the answer (ans_pos)'
        when 'cos_sim' then 'similarity to the question (cos_sim)'
        when 'ans_len' then 'length of the answer (ans_len)'
        when 'sim_ents' then 'entities of the answer''s kind (sim_ents)'
        when 'subj_pos' then 'subjects of the question before the answer (subj_pos)'
        else name
    end
