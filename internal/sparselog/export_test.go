package sparselog

// Interval is for tests of the package from outside.
const Interval = interval
