-- shown_training(method): a method of training as pages call it.
create macro shown_training(method) as
    case method
        when 'resample' then 'RESAM'
        when 'learned_mixin' then 'LMIX'
        when 'confidence_regularization' then 'CREG'
        when 'product_of_experts' then 'PoE'
        when 'bias_model' then 'bias models'
        else method
    end
