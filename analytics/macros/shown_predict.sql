-- shown_predict(way): a way of predicting as pages call it.
create macro shown_predict(way) as
    case way
        when 'likelihood' then 'label likelihood'
        when 'generate' then 'free generation'
        when 'constrained' then 'constrained generation'
        else way
    end
