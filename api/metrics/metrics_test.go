package metrics_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/api/metrics"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// shownGroups are groups as the API shows them.
type shownGroups []*group.View

func (shownGroups) Get(string) *group.Group { return nil }
func (g shownGroups) Views() []*group.View  { return g }

// fake is an engine whose state does not change.
type fake struct {
	targets []engine.TargetStatus
	stats   engine.Stats
	summary engine.Summary
	times   map[probe.ID]engine.Histogram
}

func (f *fake) Select(context.Context, engine.Filter) iter.Seq[engine.TargetStatus] {
	return slices.Values(f.targets)
}
func (f *fake) Summary(context.Context) engine.Summary { return f.summary }
func (f *fake) Stats() engine.Stats                    { return f.stats }
func (f *fake) SuccessDurations(id probe.ID) (engine.Histogram, bool) {
	h, ok := f.times[id]
	return h, ok
}

var bounds = []time.Duration{10 * time.Millisecond, time.Second}

func counted(sum time.Duration, counts ...uint64) engine.Histogram {
	return engine.Histogram{Bounds: bounds, Counts: counts, Sum: sum}
}

// shop is one target with a probe of each verdict.
func shop() *fake {
	id := func(k probe.Kind, name string) probe.ID {
		return probe.ID{Target: "shop/web/nginx", Kind: k, Name: name}
	}
	return &fake{
		targets: []engine.TargetStatus{{
			Target:   "shop/web/nginx",
			Instance: probe.Instance{Restarts: 4, Phase: probe.Running},
			Started:  true,
			Live:     true,
			Probes: []engine.Status{
				{ID: id(probe.Startup, ""), Verdict: probe.Passing, Changes: 2, Attempts: [4]uint64{0, 1, 0, 2}},
				{ID: id(probe.Readiness, "db"), Verdict: probe.Failing, Changes: 3, Attempts: [4]uint64{5, 2, 1, 7}},
				{ID: id(probe.Readiness, "web"), Verdict: probe.Undecided, Errors: 9, Attempts: [4]uint64{9, 1, 0, 0}},
			},
		}},
		stats: engine.Stats{
			Attempts: []engine.AttemptStats{
				{Kind: probe.Startup, HandlerName: "http", Outcome: probe.Success, Durations: counted(20*time.Millisecond, 0, 1, 0)},
				{Kind: probe.Readiness, HandlerName: "tcp", Outcome: probe.Failure, Durations: counted(9*time.Second, 1, 2, 4)},
			},
			Lateness: counted(time.Millisecond, 8, 0, 0),
			Probes:   3, InFlight: 1, Queued: 2, Overrun: 3, Late: 4, Shed: 7, Busy: 1500 * time.Millisecond, Panics: 5, Dropped: 6, Ejected: 2, Ejections: 9, Flaps: 12, Damped: 3, Dampings: 4, Health: engine.Health{Score: 2, Isolated: true, NamesIsolated: true, Stalls: 8, Stalled: 2500 * time.Millisecond},
		},
		times: map[probe.ID]engine.Histogram{
			id(probe.Readiness, "db"):  counted(time.Second, 1, 1, 0),
			id(probe.Readiness, "web"): counted(time.Second, 1, 0, 0),
			id(probe.Startup, ""):      counted(0, 0, 0, 0),
		},
	}
}

func TestProbeMetrics(t *testing.T) {
	want := `
# HELP sonde_probe_changes_total Total number of changes of the probe's verdict or of the instance it is about.
# TYPE sonde_probe_changes_total counter
sonde_probe_changes_total{kind="readiness",name="db",target="shop/web/nginx"} 3
sonde_probe_changes_total{kind="readiness",name="web",target="shop/web/nginx"} 0
sonde_probe_changes_total{kind="startup",name="",target="shop/web/nginx"} 2
# HELP sonde_probe_consecutive_errors Number of consecutive attempts that ended in an error (outcome unknown).
# TYPE sonde_probe_consecutive_errors gauge
sonde_probe_consecutive_errors{kind="readiness",name="db",target="shop/web/nginx"} 0
sonde_probe_consecutive_errors{kind="readiness",name="web",target="shop/web/nginx"} 9
sonde_probe_consecutive_errors{kind="startup",name="",target="shop/web/nginx"} 0
# HELP sonde_probe_passing Whether the probe's verdict is passing (1), or failing or undecided (0).
# TYPE sonde_probe_passing gauge
sonde_probe_passing{kind="readiness",name="db",target="shop/web/nginx"} 0
sonde_probe_passing{kind="readiness",name="web",target="shop/web/nginx"} 0
sonde_probe_passing{kind="startup",name="",target="shop/web/nginx"} 1
# HELP sonde_probe_undecided Whether the probe has no verdict yet (1 for yes, 0 for no).
# TYPE sonde_probe_undecided gauge
sonde_probe_undecided{kind="readiness",name="db",target="shop/web/nginx"} 0
sonde_probe_undecided{kind="readiness",name="web",target="shop/web/nginx"} 1
sonde_probe_undecided{kind="startup",name="",target="shop/web/nginx"} 0
`
	compare(t, metrics.Config{Engine: shop()}, want, "sonde_probe_passing", "sonde_probe_undecided", "sonde_probe_consecutive_errors", "sonde_probe_changes_total")
}

func TestTargetMetrics(t *testing.T) {
	want := `
# HELP sonde_target_live Whether no startup or liveness probe of the target is failing (1 for yes, 0 for no).
# TYPE sonde_target_live gauge
sonde_target_live{target="shop/web/nginx"} 1
# HELP sonde_target_ready Whether the target has started and its readiness probes are passing (1 for yes, 0 for no).
# TYPE sonde_target_ready gauge
sonde_target_ready{target="shop/web/nginx"} 0
# HELP sonde_target_restarts_total Total number of restarts of the target.
# TYPE sonde_target_restarts_total counter
sonde_target_restarts_total{target="shop/web/nginx"} 4
# HELP sonde_target_started Whether the target is running and its startup probes have passed (1 for yes, 0 for no).
# TYPE sonde_target_started gauge
sonde_target_started{target="shop/web/nginx"} 1
`
	compare(t, metrics.Config{Engine: shop()}, want, "sonde_target_live", "sonde_target_ready", "sonde_target_restarts_total", "sonde_target_started")
}

func TestDroppedLinesOfProcesses(t *testing.T) {
	want := `
# HELP sonde_process_log_lines_dropped_total Total number of lines of the output of the target's processes that were dropped because they came too fast or could not be written.
# TYPE sonde_process_log_lines_dropped_total counter
sonde_process_log_lines_dropped_total{target="shop/web/nginx"} 7
`
	const name = "sonde_process_log_lines_dropped_total"
	dropped := func(target string) (api.Process, bool) {
		return api.Process{DroppedLines: 7}, target == "shop/web/nginx"
	}
	compare(t, metrics.Config{Engine: shop(), Shown: api.Config{Process: dropped}}, want, name)
	compare(t, metrics.Config{Engine: shop()}, "", name)
}

func TestAttemptMetricsByOutcome(t *testing.T) {
	want := `
# HELP sonde_attempt_duration_seconds Duration of attempts in seconds, including retries.
# TYPE sonde_attempt_duration_seconds histogram
sonde_attempt_duration_seconds_bucket{handler="tcp",kind="readiness",outcome="failure",le="0.01"} 1
sonde_attempt_duration_seconds_bucket{handler="tcp",kind="readiness",outcome="failure",le="1"} 3
sonde_attempt_duration_seconds_bucket{handler="tcp",kind="readiness",outcome="failure",le="+Inf"} 7
sonde_attempt_duration_seconds_sum{handler="tcp",kind="readiness",outcome="failure"} 9
sonde_attempt_duration_seconds_count{handler="tcp",kind="readiness",outcome="failure"} 7
sonde_attempt_duration_seconds_bucket{handler="http",kind="startup",outcome="success",le="0.01"} 0
sonde_attempt_duration_seconds_bucket{handler="http",kind="startup",outcome="success",le="1"} 1
sonde_attempt_duration_seconds_bucket{handler="http",kind="startup",outcome="success",le="+Inf"} 1
sonde_attempt_duration_seconds_sum{handler="http",kind="startup",outcome="success"} 0.02
sonde_attempt_duration_seconds_count{handler="http",kind="startup",outcome="success"} 1
# HELP sonde_attempts_total Total number of finished attempts by probe kind, handler and outcome.
# TYPE sonde_attempts_total counter
sonde_attempts_total{handler="http",kind="startup",outcome="success"} 1
sonde_attempts_total{handler="tcp",kind="readiness",outcome="failure"} 7
`
	compare(t, metrics.Config{Engine: shop()}, want, "sonde_attempts_total", "sonde_attempt_duration_seconds")
}

func TestEngineMetrics(t *testing.T) {
	want := `
# HELP sonde_targets_ejected Number of targets that gateways are to send no requests because those that they have sent failed.
# TYPE sonde_targets_ejected gauge
sonde_targets_ejected 2
# HELP sonde_ejections_total Total number of times that a target was ejected because requests of gateways failed.
# TYPE sonde_ejections_total counter
sonde_ejections_total 9
# HELP sonde_flaps_total Total number of times that a target with a damping block was ready and then was not.
# TYPE sonde_flaps_total counter
sonde_flaps_total 12
# HELP sonde_targets_damped Number of targets that are damped because they flap.
# TYPE sonde_targets_damped gauge
sonde_targets_damped 3
# HELP sonde_dampings_total Total number of times that a target was damped because it flapped.
# TYPE sonde_dampings_total counter
sonde_dampings_total 4
# HELP sonde_results_dropped_total Total number of results dropped because the instance or the probe was replaced during the attempt.
# TYPE sonde_results_dropped_total counter
sonde_results_dropped_total 6
# HELP sonde_attempts_in_flight Number of attempts in progress.
# TYPE sonde_attempts_in_flight gauge
sonde_attempts_in_flight 1
# HELP sonde_attempts_queued Number of attempts that are due and wait for a free slot.
# TYPE sonde_attempts_queued gauge
sonde_attempts_queued 2
# HELP sonde_handler_panics_total Total number of panics in handlers.
# TYPE sonde_handler_panics_total counter
sonde_handler_panics_total 5
# HELP sonde_attempt_lateness_seconds Time in seconds from the due time of an attempt to its start.
# TYPE sonde_attempt_lateness_seconds histogram
sonde_attempt_lateness_seconds_bucket{le="0.01"} 8
sonde_attempt_lateness_seconds_bucket{le="1"} 8
sonde_attempt_lateness_seconds_bucket{le="+Inf"} 8
sonde_attempt_lateness_seconds_sum 0.001
sonde_attempt_lateness_seconds_count 8
# HELP sonde_probes Number of probes.
# TYPE sonde_probes gauge
sonde_probes 3
# HELP sonde_attempts_skipped_total Total number of skipped attempts by reason: the previous attempt was in progress (overrun), the engine was late by a period or more (late), or it was overloaded and the probe was passing (shed).
# TYPE sonde_attempts_skipped_total counter
sonde_attempts_skipped_total{reason="late"} 4
sonde_attempts_skipped_total{reason="overrun"} 3
sonde_attempts_skipped_total{reason="shed"} 7
# HELP sonde_health_score Health score of the engine itself: 0 is healthy, from 2 on it restarts nothing, 8 is the worst.
# TYPE sonde_health_score gauge
sonde_health_score 2
# HELP sonde_isolated 1 while no target answers, otherwise 0.
# TYPE sonde_isolated gauge
sonde_isolated 1
# HELP sonde_names_isolated 1 while no name server answers, or no target with a name, otherwise 0.
# TYPE sonde_names_isolated gauge
sonde_names_isolated 1
# HELP sonde_stalls_total Total number of stalls of the engine: its process was stopped or short of processor time.
# TYPE sonde_stalls_total counter
sonde_stalls_total 8
# HELP sonde_stalled_seconds_total Total time in seconds that the engine was stalled.
# TYPE sonde_stalled_seconds_total counter
sonde_stalled_seconds_total 2.5
`
	compare(t, metrics.Config{Engine: shop()}, want, "sonde_targets_ejected", "sonde_ejections_total", "sonde_flaps_total", "sonde_targets_damped", "sonde_dampings_total", "sonde_results_dropped_total", "sonde_attempts_in_flight", "sonde_attempts_queued",
		"sonde_handler_panics_total", "sonde_attempt_lateness_seconds", "sonde_probes", "sonde_attempts_skipped_total",
		"sonde_health_score", "sonde_isolated", "sonde_names_isolated", "sonde_stalls_total", "sonde_stalled_seconds_total")
}

func TestGroupMetrics(t *testing.T) {
	views := []*group.View{
		{Group: "db", Counts: group.Counts{probe.GatewayUndecided: 2}},
		{Group: "web", State: probe.GatewayUndecided, Last: probe.GatewayDown, Counts: group.Counts{probe.GatewayReady: 1, probe.GatewayDown: 2, probe.GatewayUndecided: 3}},
		{Group: "zone", State: probe.GatewayReady, Last: probe.GatewayReady, Counts: group.Counts{probe.GatewayReady: 4}},
	}
	want := `
# HELP sonde_group_members Number of members of the group by state, without those of the weight 0.
# TYPE sonde_group_members gauge
sonde_group_members{group="db",state="degraded"} 0
sonde_group_members{group="db",state="down"} 0
sonde_group_members{group="db",state="draining"} 0
sonde_group_members{group="db",state="ready"} 0
sonde_group_members{group="db",state="undecided"} 2
sonde_group_members{group="web",state="degraded"} 0
sonde_group_members{group="web",state="down"} 2
sonde_group_members{group="web",state="draining"} 0
sonde_group_members{group="web",state="ready"} 1
sonde_group_members{group="web",state="undecided"} 3
sonde_group_members{group="zone",state="degraded"} 0
sonde_group_members{group="zone",state="down"} 0
sonde_group_members{group="zone",state="draining"} 0
sonde_group_members{group="zone",state="ready"} 4
sonde_group_members{group="zone",state="undecided"} 0
# HELP sonde_group_ready Whether the group was ready when that was last known (1 for yes, 0 for no).
# TYPE sonde_group_ready gauge
sonde_group_ready{group="web"} 0
sonde_group_ready{group="zone"} 1
`
	names := []string{"sonde_group_ready", "sonde_group_members"}
	compare(t, metrics.Config{Engine: &fake{}, Shown: api.Config{Groups: shownGroups(views)}}, want, names...)
	views = nil // as after a reload without groups
	compare(t, metrics.Config{Engine: &fake{}, Shown: api.Config{Groups: shownGroups(views)}}, "", names...)
}

func TestMaintenanceMetrics(t *testing.T) {
	all := []api.Maintenance{{Name: "nightly", Active: true, Targets: 3}, {Name: "weekly"}}
	want := `
# HELP sonde_maintenance_active 1 during the maintenance, otherwise 0.
# TYPE sonde_maintenance_active gauge
sonde_maintenance_active{maintenance="nightly"} 1
sonde_maintenance_active{maintenance="weekly"} 0
# HELP sonde_maintenance_targets Number of targets that are under maintenance by it, and not by another one that ends later.
# TYPE sonde_maintenance_targets gauge
sonde_maintenance_targets{maintenance="nightly"} 3
sonde_maintenance_targets{maintenance="weekly"} 0
`
	compare(t, metrics.Config{Engine: &fake{}, Shown: api.Config{Maintenances: func() []api.Maintenance { return all }}}, want,
		"sonde_maintenance_active", "sonde_maintenance_targets")
}

func TestClusterMetrics(t *testing.T) {
	want := `
# HELP sonde_cluster_allowed 1 while the lease of this engine lasts, otherwise 0.
# TYPE sonde_cluster_allowed gauge
sonde_cluster_allowed 1
# HELP sonde_cluster_doubtful 1 while this engine doubts its own verdicts: its votes do not count, and it restarts no shared targets, or only those that have answered; otherwise 0.
# TYPE sonde_cluster_doubtful gauge
sonde_cluster_doubtful 1
# HELP sonde_cluster_drained 1 while this engine is drained: it is to own no shards, unless all engines are drained; otherwise 0.
# TYPE sonde_cluster_drained gauge
sonde_cluster_drained 1
# HELP sonde_cluster_lease_seconds Time in seconds until this engine restarts no targets and tells nothing, unless its lease is renewed before.
# TYPE sonde_cluster_lease_seconds gauge
sonde_cluster_lease_seconds 4.25
# HELP sonde_cluster_members Number of engines that share targets with this one, and this one, by what etcd has said last.
# TYPE sonde_cluster_members gauge
sonde_cluster_members 3
# HELP sonde_cluster_shards_owned Number of shards whose targets this engine probes.
# TYPE sonde_cluster_shards_owned gauge
sonde_cluster_shards_owned 1362
# HELP sonde_quorum_gray Number of probes of targets that this engine owns, on which engines differ.
# TYPE sonde_quorum_gray gauge
sonde_quorum_gray 2
# HELP sonde_quorum_polls Number of probes with a quorum that this engine attempts, and votes on.
# TYPE sonde_quorum_polls gauge
sonde_quorum_polls 7
`
	names := []string{"sonde_cluster_allowed", "sonde_cluster_lease_seconds", "sonde_cluster_members", "sonde_cluster_shards_owned", "sonde_cluster_doubtful", "sonde_cluster_drained", "sonde_quorum_gray", "sonde_quorum_polls"}
	known := api.Cluster{
		Name: "one", Members: []api.ClusterMember{{Name: "one", Drained: true}, {Name: "two"}, {Name: "three"}},
		Shards: 1362, LeaseSeconds: 4.25, Allowed: true, Polls: 7, Gray: 2, Doubt: api.DoubtAlone,
	}
	compare(t, metrics.Config{Engine: &fake{}, Shown: api.Config{Cluster: func() api.Cluster { return known }}}, want, names...)
	compare(t, metrics.Config{Engine: &fake{}}, "", names...)
}

func TestAnEngineIsToRunTheRevisionThatItTries(t *testing.T) {
	for engine, want := range map[string]string{"one": "5", "two": "4"} {
		known := api.Cluster{Name: engine, Config: &api.ClusterConfig{Revision: 4, Current: 4, Trial: &api.ClusterTrial{Revision: 5, Engine: "one"}}}
		text, _ := scrape(metrics.Handler(metrics.Config{Engine: &fake{}, Shown: api.Config{Cluster: func() api.Cluster { return known }}}))
		if !strings.Contains(text, "\nsonde_cluster_revision 4\n") || !strings.Contains(text, "\nsonde_cluster_revision_current "+want+"\n") {
			t.Errorf("engine %s, want the revision %s:\n%s", engine, want, text)
		}
	}
}

func TestGatewayMetrics(t *testing.T) {
	gateways := []group.GatewayStatus{
		{Gateway: "edge", Output: "agent", Outputs: 5, Last: time.UnixMilli(1_790_000_000_250), Refused: 7},
		{Gateway: "lb", Output: "haproxy", Refused: 1, Errors: 2, Error: "no socket", Failing: 1},
	}
	want := `
# HELP sonde_gateway_errors_total Total number of failed attempts to bring the gateway up to date.
# TYPE sonde_gateway_errors_total counter
sonde_gateway_errors_total{gateway="edge",output="agent"} 0
sonde_gateway_errors_total{gateway="lb",output="haproxy"} 2
# HELP sonde_gateway_outputs_total Total number of times that the gateway was given what it needs: answers, commands or files.
# TYPE sonde_gateway_outputs_total counter
sonde_gateway_outputs_total{gateway="edge",output="agent"} 5
sonde_gateway_outputs_total{gateway="lb",output="haproxy"} 0
# HELP sonde_gateway_refused_total Total number of refused requests of the gateway: without the token, for an unknown name, malformed, or beyond a limit.
# TYPE sonde_gateway_refused_total counter
sonde_gateway_refused_total{gateway="edge",output="agent"} 7
sonde_gateway_refused_total{gateway="lb",output="haproxy"} 1
`
	compare(t, metrics.Config{Engine: &fake{}, Shown: api.Config{Gateways: func() []group.GatewayStatus { return gateways }}}, want,
		"sonde_gateway_outputs_total", "sonde_gateway_errors_total", "sonde_gateway_refused_total")
}

func TestStateMetrics(t *testing.T) {
	state := metrics.State{Written: time.UnixMilli(1_790_000_000_250), Size: 4096, Errors: 3}
	text, _ := scrape(metrics.Handler(metrics.Config{Engine: shop(), State: func() metrics.State { return state }}))
	for _, want := range []string{
		"sonde_state_last_write_timestamp_seconds 1.79000000025e+09\n", "sonde_state_size_bytes 4096\n", "sonde_state_write_errors_total 3\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if text, _ := scrape(metrics.Handler(metrics.Config{Engine: shop()})); strings.Contains(text, "sonde_state_") {
		t.Error("there are metrics of a state file that does not exist")
	}
}

func TestKubeletMetricsSumUpNamedProbes(t *testing.T) {
	want := `
# HELP prober_probe_duration_seconds Duration in seconds for a probe response.
# TYPE prober_probe_duration_seconds histogram
prober_probe_duration_seconds_bucket{container="nginx",namespace="shop",pod="web",probe_type="Readiness",le="0.01"} 2
prober_probe_duration_seconds_bucket{container="nginx",namespace="shop",pod="web",probe_type="Readiness",le="1"} 3
prober_probe_duration_seconds_bucket{container="nginx",namespace="shop",pod="web",probe_type="Readiness",le="+Inf"} 3
prober_probe_duration_seconds_sum{container="nginx",namespace="shop",pod="web",probe_type="Readiness"} 2
prober_probe_duration_seconds_count{container="nginx",namespace="shop",pod="web",probe_type="Readiness"} 3
# HELP prober_probe_total Cumulative number of a liveness, readiness or startup probe for a container by result.
# TYPE prober_probe_total counter
prober_probe_total{container="nginx",namespace="shop",pod="web",pod_uid="",probe_type="Readiness",result="failed"} 7
prober_probe_total{container="nginx",namespace="shop",pod="web",pod_uid="",probe_type="Readiness",result="successful"} 4
prober_probe_total{container="nginx",namespace="shop",pod="web",pod_uid="",probe_type="Startup",result="failed"} 2
prober_probe_total{container="nginx",namespace="shop",pod="web",pod_uid="",probe_type="Startup",result="successful"} 1
`
	kubelet := []string{"prober_probe_total", "prober_probe_duration_seconds"}
	compare(t, metrics.Config{Engine: shop(), Compatibility: probe.Kubelet}, want, kubelet...)
	compare(t, metrics.Config{Engine: shop()}, "", kubelet...)
}

func TestShortTargetNameHasNoNamespace(t *testing.T) {
	f := &fake{}
	for _, name := range []string{"web", "shop/web", "eu/shop/web/v2", "/shop/web"} {
		f.targets = append(f.targets, engine.TargetStatus{Target: name, Probes: []engine.Status{{
			ID: probe.ID{Target: name, Kind: probe.Liveness}, Attempts: [4]uint64{probe.Success: 1},
		}}})
	}
	want := `
# HELP prober_probe_total Cumulative number of a liveness, readiness or startup probe for a container by result.
# TYPE prober_probe_total counter
prober_probe_total{container="web",namespace="",pod="",pod_uid="",probe_type="Liveness",result="successful"} 1
prober_probe_total{container="web",namespace="",pod="shop",pod_uid="",probe_type="Liveness",result="successful"} 2
prober_probe_total{container="web/v2",namespace="eu",pod="shop",pod_uid="",probe_type="Liveness",result="successful"} 1
`
	compare(t, metrics.Config{Engine: f, Compatibility: probe.Kubelet}, want, "prober_probe_total")
}

func TestSeriesEndWithTheTarget(t *testing.T) {
	f := shop()
	c := metrics.New(metrics.Config{Engine: f, Compatibility: probe.Kubelet})
	if n := testutil.CollectAndCount(c, "sonde_probe_passing", "sonde_target_ready", "prober_probe_total"); n != 8 {
		t.Errorf("%d series with the target, want 8", n)
	}
	f.targets = nil
	if n := testutil.CollectAndCount(c, "sonde_probe_passing", "sonde_target_ready", "prober_probe_total"); n != 0 {
		t.Errorf("%d series without the target, want none", n)
	}
}

func TestSeriesOfEachProbeAreOmittedAboveALimit(t *testing.T) {
	each := []string{"sonde_probe_passing", "sonde_target_ready", "prober_probe_total"}
	for limit, want := range map[int]struct{ each, omitted int }{3: {8, 0}, 2: {0, 1}} {
		f := shop()
		f.summary = engine.Summary{Targets: 1, Started: 1, Live: 1, Verdicts: map[engine.KindVerdict]int{
			{Kind: probe.Readiness, Verdict: probe.Failing}: 1, {Kind: probe.Readiness, Verdict: probe.Undecided}: 1,
		}}
		c := metrics.Config{Engine: f, Compatibility: probe.Kubelet, MaxProbes: limit}
		if n := testutil.CollectAndCount(metrics.New(c), each...); n != want.each {
			t.Errorf("limit %d: %d series of the target and its probes, want %d", limit, n, want.each)
		}
		compare(t, c, fmt.Sprintf(`
# HELP sonde_series_omitted Whether the series of each probe and target are left out because there are more probes than metrics_max_probes (1 for yes, 0 for no).
# TYPE sonde_series_omitted gauge
sonde_series_omitted %d
# HELP sonde_targets Number of targets.
# TYPE sonde_targets gauge
sonde_targets 1
# HELP sonde_targets_live Number of targets of which no startup or liveness probe is failing.
# TYPE sonde_targets_live gauge
sonde_targets_live 1
# HELP sonde_targets_ready Number of targets that have started and whose readiness probes are passing.
# TYPE sonde_targets_ready gauge
sonde_targets_ready 0
# HELP sonde_targets_started Number of targets that are running and whose startup probes have passed.
# TYPE sonde_targets_started gauge
sonde_targets_started 1
# HELP sonde_verdicts Number of probes by kind and verdict.
# TYPE sonde_verdicts gauge
sonde_verdicts{kind="readiness",verdict="failing"} 1
sonde_verdicts{kind="readiness",verdict="undecided"} 1
`, want.omitted), "sonde_series_omitted", "sonde_targets", "sonde_targets_live", "sonde_targets_ready", "sonde_targets_started", "sonde_verdicts")
	}
}

// endless is an engine whose Select yields one target repeatedly until its context is done.
type endless struct {
	*fake
	yielded chan struct{} // closed after the first
}

func (e *endless) Select(ctx context.Context, _ engine.Filter) iter.Seq[engine.TargetStatus] {
	return func(yield func(engine.TargetStatus) bool) {
		for i := 0; ctx.Err() == nil && yield(engine.TargetStatus{Target: fmt.Sprint(i)}); i++ {
			if i == 0 {
				close(e.yielded)
			}
		}
	}
}

func TestAScrapeEndsWithItsRequest(t *testing.T) {
	e := &endless{shop(), make(chan struct{})}
	h := metrics.Handler(metrics.Config{Engine: e})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-e.yielded
		cancel()
	}()
	defer func() {
		if r := recover(); r != http.ErrAbortHandler {
			t.Errorf("the handler ended with %v, want http.ErrAbortHandler: what it has sent is not complete", r)
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
}

func TestScrapesBeyondTheLimitAreRejected(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := metrics.Handler(metrics.Config{Engine: &blocked{shop(), ctx}})
	ended := make(chan int, metrics.MaxScrapes+1)
	for range metrics.MaxScrapes + 1 {
		go func() {
			_, status := scrape(h)
			ended <- status
		}()
	}
	if status := <-ended; status != http.StatusServiceUnavailable {
		t.Errorf("the first that ended has status %d, want 503", status)
	}
	cancel()
	for range metrics.MaxScrapes {
		if status := <-ended; status != http.StatusOK {
			t.Errorf("a scrape within the limit has status %d", status)
		}
	}
}

// blocked is an engine whose Summary blocks until a context is done.
type blocked struct {
	*fake
	until context.Context
}

func (b *blocked) Summary(context.Context) engine.Summary {
	<-b.until.Done()
	return engine.Summary{}
}

func TestNamesAndHelpTextsPassTheLinter(t *testing.T) {
	problems, err := testutil.CollectAndLint(metrics.New(metrics.Config{Engine: shop(), Compatibility: probe.Kubelet, State: func() metrics.State { return metrics.State{} }}))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestCollectedMetricsAreDescribed(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.New(metrics.Config{Engine: shop(), Compatibility: probe.Kubelet, State: func() metrics.State { return metrics.State{} }}))
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
}

func TestHandlerServesEngineBuildAndProcessMetrics(t *testing.T) {
	text, status := scrape(metrics.Handler(metrics.Config{Engine: shop(), Version: "1.2.3"}))
	for _, want := range []string{"sonde_probes 3\n", `sonde_build_info{goversion="go1.`, `version="1.2.3"} 1`, "go_goroutines"} {
		if !strings.Contains(text, want) {
			t.Errorf("status %d, the text lacks %q:\n%s", status, want, text)
		}
	}
}

func TestInvalidUTF8LabelOmitsOnlyItsOwnSeries(t *testing.T) {
	f := shop()
	f.stats.Attempts[0].HandlerName = "\xff"
	text, status := scrape(metrics.Handler(metrics.Config{Engine: f}))
	if status != http.StatusOK || !strings.Contains(text, `sonde_attempts_total{handler="tcp"`) {
		t.Errorf("status %d:\n%s", status, text)
	}
}

func scrape(h http.Handler) (string, int) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String(), w.Code
}

func compare(t *testing.T, c metrics.Config, want string, names ...string) {
	t.Helper()
	if err := testutil.CollectAndCompare(metrics.New(c), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

func BenchmarkAScrapeOf10000Probes(b *testing.B) {
	f := &fake{}
	for i := range 10_000 {
		name := fmt.Sprintf("shop/web-%d/nginx", i)
		f.targets = append(f.targets, engine.TargetStatus{Target: name, Probes: []engine.Status{{
			ID: probe.ID{Target: name, Kind: probe.Readiness}, Verdict: probe.Passing, Attempts: [4]uint64{probe.Success: 1},
		}}})
	}
	h := metrics.Handler(metrics.Config{Engine: f, Compatibility: probe.Kubelet})
	b.ReportAllocs()
	for b.Loop() {
		text, _ := scrape(h)
		b.ReportMetric(float64(len(text)), "B/scrape")
	}
}

func TestMetricsOfTheLatestAttempt(t *testing.T) {
	e := shop()
	probes := e.targets[0].Probes
	probes[0].ResultAt, probes[1].ResultAt = time.Unix(1, 0), time.Unix(1, 0)
	probes[0].Result = probe.Result{Outcome: probe.Success, Took: 1500 * time.Millisecond, HTTPStatus: 204, CertificateExpiry: 1800000000}
	probes[1].Result = probe.Fail(probe.ReasonTCPRefused, "refused")
	want := `
# HELP sonde_probe_http_status_code Status code of the response to the probe's latest attempt.
# TYPE sonde_probe_http_status_code gauge
sonde_probe_http_status_code{kind="startup",name="",target="shop/web/nginx"} 204
# HELP sonde_probe_last_duration_seconds Duration of the probe's latest attempt in seconds, including retries.
# TYPE sonde_probe_last_duration_seconds gauge
sonde_probe_last_duration_seconds{kind="readiness",name="db",target="shop/web/nginx"} 0
sonde_probe_last_duration_seconds{kind="startup",name="",target="shop/web/nginx"} 1.5
# HELP sonde_probe_last_result_info A metric with a constant '1' value labeled by outcome and reason of the probe's latest attempt.
# TYPE sonde_probe_last_result_info gauge
sonde_probe_last_result_info{kind="readiness",name="db",outcome="failure",reason="tcp.refused",target="shop/web/nginx"} 1
sonde_probe_last_result_info{kind="startup",name="",outcome="success",reason="",target="shop/web/nginx"} 1
# HELP sonde_probe_ssl_earliest_cert_expiry When the first of the certificates expires that the server has sent in the probe's latest attempt, in seconds since 1970.
# TYPE sonde_probe_ssl_earliest_cert_expiry gauge
sonde_probe_ssl_earliest_cert_expiry{kind="startup",name="",target="shop/web/nginx"} 1.8e+09
`
	compare(t, metrics.Config{Engine: e}, want, "sonde_probe_last_duration_seconds", "sonde_probe_last_result_info", "sonde_probe_http_status_code", "sonde_probe_ssl_earliest_cert_expiry")
}

func TestStatesOfTargetsHaveASeriesEach(t *testing.T) {
	e := shop()
	e.targets[0].State = probe.StateBlind
	e.summary.States[probe.StateBlind], e.summary.States[probe.StateReady] = 3, 5
	want := `
# HELP sonde_target_in_trouble Whether the target is in trouble (1 for yes, 0 for no).
# TYPE sonde_target_in_trouble gauge
sonde_target_in_trouble{target="shop/web/nginx"} 1
# HELP sonde_target_states Number of targets by state.
# TYPE sonde_target_states gauge
sonde_target_states{state="absent"} 0
sonde_target_states{state="blind"} 3
sonde_target_states{state="cannot_start"} 0
sonde_target_states{state="completed"} 0
sonde_target_states{state="crash_looping"} 0
sonde_target_states{state="damped"} 0
sonde_target_states{state="degraded"} 0
sonde_target_states{state="exited"} 0
sonde_target_states{state="failing"} 0
sonde_target_states{state="not_ready"} 0
sonde_target_states{state="ready"} 5
sonde_target_states{state="restart_blocked"} 0
sonde_target_states{state="restarting"} 0
sonde_target_states{state="starting"} 0
sonde_target_states{state="stopped"} 0
sonde_target_states{state="unreachable"} 0
sonde_target_states{state="paused"} 0
# HELP sonde_targets_in_trouble Number of targets in trouble: failing, not ready, crash-looping, cannot start, exited, restart blocked, blind or degraded.
# TYPE sonde_targets_in_trouble gauge
sonde_targets_in_trouble 3
`
	compare(t, metrics.Config{Engine: e}, want, "sonde_target_in_trouble", "sonde_target_states", "sonde_targets_in_trouble")
}

func TestMetricsPassPromtool(t *testing.T) {
	tier.Needs(t, "promtool")
	e := shop()
	e.targets[0].Probes[0].ResultAt = time.Unix(1, 0)
	e.targets[0].Probes[0].Result = probe.Result{Outcome: probe.Success, HTTPStatus: 204, CertificateExpiry: 1800000000}
	w := httptest.NewRecorder()
	metrics.Handler(metrics.Config{
		Engine: e, LogDropped: func() uint64 { return 0 },
		State: func() metrics.State { return metrics.State{} }, Shown: api.Config{LastReload: func() api.Reload { return api.Reload{} }},
	}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(w.Body.String(), "sonde_probe_ssl_earliest_cert_expiry") {
		t.Fatal(w.Body)
	}
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = w.Body
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
