package metrics

import "time"

// State is the state of the file that stores the engine's state.
type State struct {
	Written time.Time // when it was last brought up to date; zero before the first time
	Size    int64     // in bytes
	Errors  uint64    // failed attempts to write it
}

// Metrics of the state file.
var stateMetrics = []metric[State]{
	gauge("sonde_state_last_write_timestamp_seconds", "Time at which the state file was last brought up to date, in seconds since 1970; 0 if it never was.", func(s State) float64 { return unixTime(s.Written) }),
	gauge("sonde_state_size_bytes", "Size of the state file in bytes.", func(s State) float64 { return float64(s.Size) }),
	counter("sonde_state_write_errors_total", "Total number of attempts to write the state file that have failed, or have taken more than 10 seconds.", func(s State) float64 { return float64(s.Errors) }),
}
