-- shown_heuristic(name): a heuristic in a sentence: its quantity and its name; a user's own by its name.
create macro shown_heuristic(name) as
    case name
        when 'word_dist' then 'the distance from the answer to a word of the question (word_dist)'
        when 'sim_word' then 'the words shared with the question (sim_word)'
        when 'ans_pos' then 'the sentence that holds the answer (ans_pos, 0: the first)'
        when 'cos_sim' then 'the similarity to the question (cos_sim)'
        when 'ans_len' then 'the length of the answer (ans_len)'
        when 'sim_ents' then 'the entities of the answer''s kind (sim_ents)'
        when 'subj_pos' then 'the subjects of the question before the answer (subj_pos)'
        else name
    end
