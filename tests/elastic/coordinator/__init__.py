"""Tests of `shoal.elastic.coordinator`."""
