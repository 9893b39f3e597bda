-- clipped(x, low, high): x, or the bound that it lies beyond; a null bound is none. Null of null.
create macro clipped(x, low, high) as
    case when x < low then low when x > high then high else x end
