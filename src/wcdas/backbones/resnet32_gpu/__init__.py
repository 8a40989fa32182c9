"""ResNet-32 through CUDA kernels of its own."""
