# SPDX-License-Identifier: Apache-2.0
"""`pipegen tune`: which values of a description are fastest, for which sizes, on which GPU.

What decides is pure: `space` (the candidates, and what was dropped), `order` (which to try
first), `halving` (who goes on), `ranking`, `results` (what is kept in a file). `jobs` compiles and
measures through `concurrent.futures` executors (`executors`), so that a cluster may do it.
"""
