"""One decision over the whole cluster: from what is there and who waits to what is to be done.

Shares, placing and backfill each know one thing; this is where they meet. Pure: no clock, no chance,
equal input gives an equal plan. What is put in are rows (`rows`) that can be kept in a file; what comes
out are steps with their reasons (`steps`).

- `rows`: nodes, queues, jobs with their tasks; `check`: what is wrong with them, in a sentence each
- `columns`: rows as arrays: resources, masks, the tree of queues
- `ground`: what rows come to, kept from one decision to the next; `holdings`: and as arrays
- `needs`: what a job asks for, apart from who it is
- `books`: what is free and in use, in two tenses
- `table`: what is so while the decision is made; `desk`: what is done
- `fitting`: what would fit, and what would be allowed
- `compositions`: of which roles a gang is, where it may be any
- `gangs`: a job as placing knows it; `lines`: who is served next; `wishes`: what those behind ask for
- `giving`: what jobs give back for no one
- `places`: where a job's minimum goes; `ways`: ways to make room for it
- `stock`: what everybody may give up; `victims`: who gives way for whom; `rivals`: who may take back;
  `freed`: what a gang would find then
- `dates`: when those start who wait for time; `precedence`: who may start before his date
- `ranks`: whom the dates of others do not keep waiting
- `ahead`: and where, node by node (`laid`); `windows`, `future`, `holds`: what is free in time
- `own_place`: who has a date gets the place that goes with it
- `exchanges`: which of them come to an end
- `growing`: what is left goes to elastic jobs
- `sizes`: how many tasks each elastic job is to have; `peers`: plans of other people's policies
- `serving`: those who wait, one after the other; `telling`: they are told why, and until when
- `planner`: the stages in their order
- `reasons`: why a job does not start, the first of a fixed order, with the numbers
- `steps`: the plan; `invariants`: what has to hold of every plan
"""
