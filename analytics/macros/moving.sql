-- moving(names, verb): "a and b fall", "a falls"; null without a name. verb: 'fall' or 'rise'.
create macro moving(names, verb) as
    if(names = [], null, listed(names) || ' ' || verb || if(len(names) = 1, 's', ''))
