"""The command line: what a person types, and nothing that a Python program could not do as well.

Everything here stands on `shoal.client` and `shoal.objects`; only `offline/` imports one named entry
point each of a lower layer, for the verbs that work before there is a server. A verb costs what it
imports, so nothing is imported before it is needed: Click, msgspec and the standard http client for
`get`; no asyncio, no yaml.

- `main`: the entry point, the lazy group of verbs, and the one place that turns errors into exit codes
- `catalogue`: which verbs there are, readable without importing one
- `settings`, `options`: home, context, namespace and output, and the client of that server; the options,
  what may stand in them, and its live completion
- `contexts`: which server is meant
- `targets`: `job/x` and its like
- `output`, `lines`: data on stdout, messages on stderr, tables, logs
- `taskrows`: a job's tasks for people; `manifests`: objects from files
- `edits`: asking first; changing an object's spec and reporting the result; `diff`: what apply changes
- `failures`: errors and ends of jobs as sentences and exit codes
- `verbs/`, `launch/` (what `run` needs), `offline/`
"""
