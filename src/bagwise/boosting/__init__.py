"""Trees grown from bags: the objective, and the rounds of LightGBM that lower it.

    links       losses and the links from scores to means
    objective   gradient, exact diagonal of the Hessian, and how long a step should be
    training    rounds over one binned table; the only module that imports LightGBM

Only estimators import this room, when they fit.
"""
