"""Every method on real tables, from bags of many kinds, with standings that say who wins where.

tables    ten real tables, with their natural bags and public bounds
cells     a cell: table, bags, privacy, seed, method; what a method may see of it
methods   our estimators, those of the literature, and the two limits
peers     methods of others' code, in an environment of its own
results   what has been measured so far, safe from a kill at any time
run       workers that fit cells, one thread each, within a time limit
standing  recovery, ranks and verdicts from the results
"""
