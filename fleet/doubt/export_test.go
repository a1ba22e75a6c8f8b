package doubt

// Recovery is recovery.
const Recovery = recovery

// Settle is settle.
const Settle = settle
