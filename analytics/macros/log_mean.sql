-- log_mean(logs): the logarithm of the mean of the numbers whose logarithms are in a list, added in its order.
create macro log_mean(logs) as
    list_transform([list_max(logs)], lambda peak: peak + ln(list_avg(list_transform(logs, lambda x: exp(x - peak)))))[1]
