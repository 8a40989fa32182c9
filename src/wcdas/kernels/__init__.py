"""The WCDAS loss in closed form, and the floating-point rules every head follows."""
