# SPDX-License-Identifier: Apache-2.0
"""A pipeline as a picture: a simple latency model, and its drawing as SVG and HTML."""
