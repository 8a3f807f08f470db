"""Neural networks from bags: one trainer for one network or a thousand. Needs `bagwise[neural]`.

batches   whole bags as tensors, from memory or from row groups
loss      the interpolating loss of many networks at once
networks  many multilayer perceptrons as one; a user's own module
training  the loop: Adam, schedule, early stopping on held-out bags, checkpoints
ensemble  train_ensemble: networks that differ in rho, seed, bags, split or learning rate
"""
