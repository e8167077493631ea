"""What makes pages of the documentation from the code; not part of the package.

- `reference`: the fields of all kinds, `docs/manifests.md`
- `openapi`: the API's description, `docs/openapi.json`
"""
