package metrics

import beatprobe "github.com/sonde-probe/sonde/builtin/beat"

// beatsDesc describes the counter of accepted beats.
var beatsDesc = describe("sonde_beats_total", "Total number of beats of targets that were accepted.", "transport")

// beatsRejectedDesc describes the counter of rejected beats.
var beatsRejectedDesc = describe("sonde_beats_rejected_total", "Total number of beats that have changed nothing: without the token of a target, or not of the right form (denied); with a time that was used before (replayed); made too long ago (old); or too soon after another one (too_many).", "reason")

var lastBeatDesc = describe("sonde_target_last_beat_timestamp_seconds", "Time of the last beat of the target, in seconds since 1970.", "target")

// Metrics of the beats of all targets.
var beatMetrics = []metric[beatprobe.Stats]{
	gauge("sonde_beat_targets", "Number of targets that beats are expected of.", func(s beatprobe.Stats) float64 { return float64(s.Targets) }),
	counter("sonde_beat_datagrams_dropped_total", "Total number of datagrams with beats that the system has dropped, since they came faster than they were read.", func(s beatprobe.Stats) float64 { return float64(s.Dropped) }),
	counter("sonde_beat_interruptions_total", "How many times beats may have been missed: the engine was stopped or short of processor time, the clock was set back, datagrams were dropped, or connections were not served.", func(s beatprobe.Stats) float64 { return float64(s.Interruptions) }),
}

// beats sends the metrics of beats.
func (s scrape) beats(st beatprobe.Stats) {
	s.counter(beatsDesc, float64(st.HTTP), "http")
	s.counter(beatsDesc, float64(st.UDP), "udp")
	s.counter(beatsRejectedDesc, float64(st.Denied), "denied")
	s.counter(beatsRejectedDesc, float64(st.Replayed), "replayed")
	s.counter(beatsRejectedDesc, float64(st.Old), "old")
	s.counter(beatsRejectedDesc, float64(st.TooMany), "too_many")
	send(s, beatMetrics, st)
}

// lastBeat sends the time of a target's last beat, if there was one.
func (c *collector) lastBeat(s scrape, target string) {
	if c.config.Shown.Beats == nil {
		return
	}
	if last, ok := c.config.Shown.Beats.Last(target); ok && !last.At.IsZero() {
		s.gauge(lastBeatDesc, unixTime(last.At), target)
	}
}
