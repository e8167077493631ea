"""How fast a job learns at each size: measured where it has been, predicted where it has not.

- `throughput`: seconds of a step over nodes, replicas and samples, fitted to a job's own steps
- `calibrated`: that model, corrected by what was measured near by
- `goodput`: steps a second times what a step is worth at its batch size, and the batch that makes most
  of it
- `learned`: the curve of a job from how its steps went, its own and those of its application;
  `watching`: how they went, by looking at jobs now and then

The model is that of Pollux (Qiao et al., OSDI 2021, sections 3.1 and 3.2); the fit is Shoal's own: one
parameter is searched, for the others follow from it by least squares.
"""
