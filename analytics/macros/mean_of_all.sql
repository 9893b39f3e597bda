-- mean_of_all(value, place): the mean of all values, added in the order of their places; null where one of them is
-- null.
create macro mean_of_all(value, place) as nullif(avg(coalesce(value::double, 'nan') order by place), 'nan')
