"""The command line: what a person types, and nothing that a Python program could not do as well.

Everything here stands on `shoal.client` and `shoal.objects`; only `offline/` knows one named entry
point each of a lower layer, for the verbs that work before there is a server. A verb costs what it
imports, so nothing is imported before it is needed: Click, msgspec and the standard http client for
`get`; no rich, no asyncio, no yaml.

- `main`: the entry point, the lazy group of verbs, and the one place that turns errors into exit codes
- `catalogue`: which verbs there are, readable without importing one
- `settings`, `options`, `parameters`: home, context, namespace and output; the options that set them
- `contexts`, `connection`: which server is meant, and the way to it
- `targets`, `completion`: `job/x` and its kin, and their live completion
- `output`, `table`, `text`, `colour`: data on stdout, messages on stderr
- `confirm`, `edits`: asking first; changing an object's spec and saying what became of it
- `verbs/`, `offline/`: one file per verb
"""
