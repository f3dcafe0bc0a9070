# SPDX-License-Identifier: Apache-2.0
"""What pipegen knows of a file that it wrote and a user owns."""
