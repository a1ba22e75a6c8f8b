package metrics

import "time"

// Reload is how the last reload of the configuration ended.
type Reload struct {
	Rejected bool
	Accepted time.Time // when the configuration in use was applied
}

// Metrics of reloads, with the names that Prometheus has for its own.
var reloadMetrics = []metric[Reload]{
	gauge("sonde_config_last_reload_successful", "Whether the last reload of the configuration was applied: 1, or 0 if it was rejected. 1 before the first reload.", func(r Reload) float64 {
		return number(!r.Rejected)
	}),
	gauge("sonde_config_last_reload_success_timestamp_seconds", "Time at which the configuration in use was applied, in seconds since 1970.", func(r Reload) float64 {
		return float64(r.Accepted.UnixMilli()) / 1000
	}),
}
