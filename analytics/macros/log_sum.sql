-- log_sum(logs): the logarithm of the sum of the numbers whose logarithms are in a list, added in its order.
create macro log_sum(logs) as
    list_transform([list_max(logs)], lambda peak: peak + ln(list_sum(list_transform(logs, lambda x: exp(x - peak)))))[1]
