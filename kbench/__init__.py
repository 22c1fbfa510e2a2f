"""Benchmarks of Phobos kernels: verified on every machine, timed beside a peer where there is a CUDA device."""
