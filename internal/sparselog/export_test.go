package sparselog

// Interval is exported for external tests of the package.
const Interval = interval
