package doubt

// Recovery is recovery.
const Recovery = recovery
