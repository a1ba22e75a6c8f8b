package prom

import "time"

// State are the numbers of the file that keeps the engine's state.
type State struct {
	Written time.Time // when it was last brought up to date; zero before the first time
	Size    int64     // in bytes
	Errors  uint64    // failed attempts to write it
}

// Metrics of the state file.
var (
	stateWrittenDesc = describe("sonde_state_last_write_timestamp_seconds", "Time at which the state file was last brought up to date, in seconds since 1970; 0 if it never was.", nil)
	stateSizeDesc    = describe("sonde_state_size_bytes", "Size of the state file in bytes.", nil)
	stateErrorsDesc  = describe("sonde_state_write_errors_total", "Total number of failed attempts to write the state file.", nil)
)

// state sends the metrics of the state file.
func (s scrape) state(st State) {
	written := 0.0
	if !st.Written.IsZero() {
		written = float64(st.Written.UnixMilli()) / 1000
	}
	s.gauge(stateWrittenDesc, written)
	s.gauge(stateSizeDesc, float64(st.Size))
	s.counter(stateErrorsDesc, float64(st.Errors))
}
