"""The mathematics of the heads: by autograd, in chunks, in kernels for a GPU."""
