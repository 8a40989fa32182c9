"""The mathematics of the heads: by autograd, in chunks, over processes."""
