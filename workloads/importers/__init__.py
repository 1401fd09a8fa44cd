"""Readers of what people have: traces of real training jobs and workload files of other tools.

Every reader turns its files into programs of calls (:mod:`workloads.importers.model`).
:mod:`~workloads.importers.merge` makes one workload of them, a graph of operations over groups of ranks, and
:mod:`~workloads.importers.expand` makes a schedule of that. :mod:`~workloads.importers.registry` finds the reader by
the content of the files.
"""
