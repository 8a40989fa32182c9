"""The WCDAS loss in closed form, a ResNet-32's step in Triton, and the floating-point rules."""
