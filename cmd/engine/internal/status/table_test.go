package status

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

func TestTableHasALineForEachProbe(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	target := api.Target{
		Name: "shop/web", State: probe.StateNotReady,
		Instance: api.Instance{Phase: probe.Running, Restarts: 2, Reason: probe.ReasonBudget, Detail: "exit status 1:\n bad"},
		Probes: []api.Probe{
			{ID: "shop/web:startup", Target: "shop/web", Verdict: probe.Passing, Decided: true, Last: probe.Success, WaitReason: verdict.Held},
			{ID: "shop/web:readiness/db", Target: "shop/web", Verdict: probe.Failing, Errors: 4, Attempting: true,
				Result: &api.Result{Reason: "exec.start", Detail: "no such file"}},
			{ID: "shop/web:liveness", Target: "shop/web", Verdict: probe.Passing, Decided: true, Last: probe.Failure, Run: 2, Progress: "2/3",
				Next: now.Add(1250 * time.Millisecond), Result: &api.Result{Reason: probe.ReasonHTTPStatus, Detail: "status 503"}},
		},
	}
	want := `
TARGET    STATE      RESTARTS  PROBE         VERDICT    RUN          NEXT        RESULT
shop/web  not ready  2         -                                                 restart.budget: exit status 1: bad
                               startup       passing    -            next start
                               readiness/db  undecided  4 unknown    now         exec.start: no such file
                               liveness      passing    2/3 failure  1.3s        http.status: status 503
`
	if got := "\n" + table([]api.Target{target}, now, cli.Plain, false); got != want {
		t.Errorf("table is:%s\nwant:%s", got, want)
	}
}

func TestTableFitsItsWidth(t *testing.T) {
	wide := api.Target{Name: strings.Repeat("é", 300)}
	for line := range strings.Lines(table([]api.Target{wide}, time.Time{}, cli.Screen{Width: 20, Height: 20}, false)) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 20 {
			t.Errorf("a line has %d characters: %q", n, line)
		}
	}
}

func TestTableHasNoControlCharacters(t *testing.T) {
	rude := api.Target{Name: "a\x1b[2J", Probes: []api.Probe{{ID: "\x1b[31mx", Result: &api.Result{Reason: "\x1b]0;x\a", Detail: "a\r\x1b[1Ab\tc"}}}}
	if got := table([]api.Target{rude}, time.Time{}, cli.Plain, false); strings.ContainsAny(got, "\x1b\a\r\t") {
		t.Errorf("the table has control characters: %q", got)
	}
}

func TestHeadCountsTheLinesLeftOut(t *testing.T) {
	for _, test := range []struct {
		text string
		most int
		want string
	}{
		{"a\nb\nc\n", 3, "a\nb\nc\n"},
		{"a\nb\nc\n", 2, "a\n… and 2 more lines\n"},
		{"a\nb\n", 0, "… and 2 more lines\n"},
	} {
		if got := head(test.text, test.most); got != test.want {
			t.Errorf("head(%q, %d) is %q, want %q", test.text, test.most, got, test.want)
		}
	}
}

func TestGroupsThatAreNotReadyComeFirst(t *testing.T) {
	groups := []api.Group{
		{Name: "a", State: "ready", Need: 2, Counts: api.GroupCounts{Total: 4, Ready: 3, Down: 1}},
		{Name: "b", State: "down", Need: 2, Counts: api.GroupCounts{Total: 2, Ready: 1, Down: 1}},
		{Name: "c", State: "undecided", Need: 1, Counts: api.GroupCounts{Total: 2, Undecided: 2}, ZeroWeight: 3},
	}
	want := "group b: down, 1 of 2 ready, 2 needed\ngroup c: undecided, 0 of 2 ready, 1 needed, 2 undecided, 3 more of weight 0\ngroup a: ready, 3 of 4 ready, 2 needed\n"
	if got := groupLines(cli.Plain, groups, "", maxGroupLines); got != want {
		t.Errorf("the lines are\n%s\nwant\n%s", got, want)
	}
	if got := groupLines(cli.Plain, groups, "a", maxGroupLines); got != "group a: ready, 3 of 4 ready, 2 needed\n" {
		t.Errorf("the line of one group is %q", got)
	}
	if got := groupLines(cli.Plain, groups, "", 1); got != "group b: down, 1 of 2 ready, 2 needed\n… and 2 more groups\n" {
		t.Errorf("one line of groups is %q", got)
	}
	many := make([]api.Group, maxGroupLines+2)
	if got := groupLines(cli.Plain, many, "", maxGroupLines); !strings.HasSuffix(got, "… and 2 more groups\n") {
		t.Errorf("the lines of many groups are %s", got)
	}
}

func TestGatewaysThatAreNotUpToDateComeFirst(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	gateways := []api.Gateway{
		{GatewayStatus: group.GatewayStatus{Gateway: "a", Output: "agent", Groups: []string{"web"}, Outputs: 7, Last: now.Add(-3 * time.Second)}, State: api.GatewayUpToDate},
		{GatewayStatus: group.GatewayStatus{Gateway: "b", Output: "oracle", Groups: []string{"db"}}, State: api.GatewayWaiting},
		{GatewayStatus: group.GatewayStatus{Gateway: "c", Output: "haproxy", Groups: []string{"web"}, Error: "dial unix /run/h.sock:\nno such file", ErrorSince: now.Add(-192 * time.Second)}, State: api.GatewayFailing},
	}
	a, b := "gateway a (agent): up to date, 3s ago\n", "gateway b (oracle): waiting for its first update\n"
	c := "gateway c (haproxy): not up to date for 3m12s: dial unix /run/h.sock: no such file\n"
	for _, test := range []struct {
		of   string
		most int
		want string
	}{
		{"", maxGroupLines, c + a + b},
		{"web", maxGroupLines, c + a},
		{"", 1, c + "… and 2 more gateways\n"},
		{"none", maxGroupLines, ""},
	} {
		if got := gatewayLines(cli.Plain, gateways, test.of, test.most, now); got != test.want {
			t.Errorf("of %q, %d at most:\n%s\nwant\n%s", test.of, test.most, got, test.want)
		}
	}
}

func TestMaintenancesThatAreNearAreShown(t *testing.T) {
	now := time.Date(2026, 1, 31, 3, 0, 0, 0, time.Local)
	all := []api.Maintenance{
		{Name: "nightly", Active: true, From: now.Add(-time.Hour), To: now.Add(time.Hour), Targets: 1, Reason: "back\nup"},
		{Name: "daily", From: now.Add(24 * time.Hour), To: now.Add(25 * time.Hour)},
		{Name: "weekly", From: now.Add(24*time.Hour + 1), To: now.Add(25 * time.Hour)},
	}
	nightly := "maintenance nightly: 1 target, until 2026-01-31 04:00:00 (back up)\n"
	if got, want := maintenanceLines(cli.Plain, all, maxGroupLines, now), nightly+"maintenance daily: next from 2026-02-01 03:00:00 to 2026-02-01 04:00:00\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := maintenanceLines(cli.Plain, all, 1, now), nightly+"… and 1 more maintenances\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTheTableSaysUntilWhenATargetIsDamped(t *testing.T) {
	now := time.Date(2026, 1, 31, 3, 0, 0, 0, time.Local)
	for want, d := range map[string]api.Damping{
		"damped until 2026-01-31 03:30:00: it has flapped, penalty 2866\n": {Penalty: 2866, Flapped: now, Since: now, Until: now.Add(30 * time.Minute)},
		"-\n": {Penalty: 1000, Flapped: now},
	} {
		if got := table([]api.Target{{Name: "web", State: probe.StateDamped, Damping: &d}}, now, cli.Plain, false); !strings.HasSuffix(got, want) {
			t.Errorf("the table is\n%s", got)
		}
	}
}

func TestTheTableSaysUntilWhenNothingIsDone(t *testing.T) {
	now := time.Date(2026, 1, 31, 3, 0, 0, 0, time.Local)
	for _, c := range []struct {
		pause api.Pause
		want  string
	}{
		{api.Pause{Reason: probe.ReasonMaintenance, Until: now, Detail: "nightly: backup"}, "restart.maintenance until 2026-01-31 03:00:00: nightly: backup\n"},
		{api.Pause{Reason: probe.ReasonPaused, Detail: "by alice"}, "restart.paused until sonde unpause: by alice\n"},
	} {
		if got := table([]api.Target{{Name: "web", State: probe.StatePaused, Pause: &c.pause}}, now, cli.Plain, false); !strings.HasSuffix(got, c.want) {
			t.Errorf("the table is\n%s", got)
		}
	}
}

func TestReceiversWithPendingNoticesAreShown(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	notifiers := []api.Notifier{
		{Name: "oncall", Output: "alertmanager", Receiver: "http://am-1:9093", State: api.NotifierUpToDate},
		{Name: "oncall", Output: "alertmanager", Receiver: "http://am-2:9093", State: api.NotifierBehind, Pending: 2},
		{Name: "mail", Output: "run", Receiver: "sh", State: api.NotifierFailing, Pending: 17, Error: "exit status 1:\nbusy", ErrorSince: now.Add(-192 * time.Second)},
	}
	mail := "notify mail (run), sh: failing for 3m12s, 17 notices pending: exit status 1: busy\n"
	for most, want := range map[int]string{
		9: mail + "notify oncall (alertmanager), http://am-2:9093: 2 notices pending\n",
		1: mail + "… and 1 more receivers of notifiers\n",
	} {
		if got := notifierLines(cli.Plain, notifiers, most, now); got != want {
			t.Errorf("%d at most:\n%s\nwant\n%s", most, got, want)
		}
	}
}

// The screen of --watch has the same content as the table.
func TestTheScreenShowsGroupsAndGateways(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderEngine, "sonde")
		switch r.URL.Path {
		case "/v1/groups":
			io.WriteString(w, `{"groups": [{"name": "web", "state": "down", "need": 2, "counts": {"total": 2, "ready": 1, "down": 1}}]}`)
		case "/v1/gateways":
			io.WriteString(w, `{"gateways": [{"name": "edge", "output": "agent", "state": "failing", "error": "port in use", "groups": ["web"]}]}`)
		case "/v1/targets":
			io.WriteString(w, `{"targets": [{"name": "shop/a", "state": "ready"}], "total": 1}`)
		default:
			io.WriteString(w, `{}`)
		}
	}))
	defer server.Close()
	s := viewer{client: &api.Client{Base: server.URL}, out: io.Discard}
	got, err := s.screen(t.Context())
	if err != nil || !strings.Contains(got, "shop/a  ready") || !strings.HasSuffix(got, "group web: down, 1 of 2 ready, 2 needed\ngateway edge (agent): not up to date for -: port in use\n") {
		t.Errorf("the screen is %q, %v", got, err)
	}
}

func TestTroubleOfTheEngineIsShown(t *testing.T) {
	for _, c := range []struct {
		stats api.Stats
		want  string
	}{
		{api.Stats{}, ""},
		{api.Stats{Health: api.Health{Score: 1, Stalls: 3, StalledSeconds: 1}}, ""},
		{api.Stats{Shed: 7}, "overloaded: skipped 7 attempts of passing probes\n"},
		{api.Stats{Health: api.Health{Score: 5, Degraded: true, StalledSeconds: 4.96}},
			"degraded (5 of 8): the engine is short of CPU, memory or descriptors; restarts are paused\n"},
		{api.Stats{Health: api.Health{SilentNameServers: []api.NameServer{{Address: "10.0.0.1:53", Since: time.Unix(0, 0), Unanswered: 12}}}},
			"name server 10.0.0.1:53 has not answered 12 queries in a row since 1970-01-01 00:00:00 UTC\n"},
	} {
		if got := engineLines(cli.Plain, c.stats); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestWideTableHasAgeGatewayStateAddressAndLabelsOfATarget(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	target := api.Target{
		Name: "web", Address: "10.0.0.7", Labels: map[string]string{"tier": "canary", "team": "shop"}, State: probe.StateReady, Since: now.Add(-90 * time.Second),
		Gateway: probe.GatewayDown, Ejection: &api.Ejection{Reason: probe.ReasonTCPRefused, Detail: "no"},
		Probes: []api.Probe{{ID: "web:readiness/a", Target: "web"}, {ID: "web:readiness/b", Target: "web"}},
	}
	want := `
TARGET  STATE           RESTARTS  FOR    EXIT  GATEWAY  ADDRESS   LABELS                 PROBE        VERDICT    RUN  NEXT  RESULT
web     ready, ejected  0         1m30s  -     down     10.0.0.7  team=shop,tier=canary  -                                  ejected: tcp.refused: no
                                                                                         readiness/a  undecided  -    -
                                                                                         readiness/b  undecided  -    -
`
	if got := "\n" + table([]api.Target{target}, now, cli.Plain, true); got != want {
		t.Errorf("table is:%s\nwant:%s", got, want)
	}
}

func TestTableFillsTheTerminalAboveItsLastLines(t *testing.T) {
	for _, test := range []struct {
		foot   string
		height int
		want   string
	}{
		{"", 4, "a\nb\nc\n"},
		{"", 3, "a\n… and 2 more lines\n"},
		{"degraded\n", 4, "a\n… and 2 more lines\ndegraded\n"},
		{"degraded\nisolated\n", 6, "a\nb\nc\ndegraded\nisolated\n"},
	} {
		if got := fill("a\nb\nc\n", test.foot, test.height); got != test.want {
			t.Errorf("of %d lines got %q, want %q", test.height, got, test.want)
		}
	}
}

func TestATableSaysWhoProbesTheTargetsOfACluster(t *testing.T) {
	heard := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	all := []api.Target{
		{Name: "a", State: probe.StateReady, Sharing: api.Sharing{Owner: "engine-1"}}, {Name: "b", State: probe.StateReady, Sharing: api.Sharing{Owner: "engine-2", Heard: heard}},
		{Name: "c", State: probe.StateReady, Sharing: api.Sharing{Heard: heard, Stale: true}}, {Name: "d", State: probe.StateReady},
	}
	want := `
TARGET  OWNER     STATE         RESTARTS  PROBE  VERDICT  RUN  NEXT  RESULT
a       engine-1  ready         0         -
b       engine-2  ready         0         -
c       none      ready, stale  0         -
d       -         ready         0         -
`
	if got := "\n" + table(all, heard, cli.Plain, false); got != want {
		t.Errorf("got:%swant:%s", got, want)
	}
	if got := clusterLine(api.Cluster{Name: "engine-1", Heard: heard}, heard.Add(12*time.Second)); !strings.HasSuffix(got, "; etcd was last heard from 12s ago: other engines and their targets are shown as they were then\n") {
		t.Errorf("without etcd: %s", got)
	}
}

func TestAnEngineThatIsCutOffFromEtcdSaysSinceWhen(t *testing.T) {
	cut := api.Cluster{
		Name: "a", Member: true, Heard: time.Now().Add(-42 * time.Second), Targets: 30, Owned: 10,
		Members: []api.ClusterMember{{Name: "a", Health: api.MemberWell}, {Name: "b", Health: api.MemberUnknown}},
	}
	var status, members strings.Builder
	if err := errors.Join(writeClusterStatus(&status, cut), writeMembers(&members, cut)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"member:   not known; 42s ago: yes, of 2 engines\n", "etcd:     last heard from 42s ago\n",
		"stale:    the 20 of other engines are shown as they were 42s ago\n",
	} {
		if !strings.Contains(status.String(), want) {
			t.Errorf("the status lacks %q:\n%s", want, status.String())
		}
	}
	if got := members.String(); !strings.Contains(got, "unknown  as it was 42s ago\n") || strings.Count(got, "ago") != 1 {
		t.Errorf("the members are\n%s", got)
	}
	refused := cut
	refused.Refused = "unsupported layout 2 in etcd, written by a later version of Sonde"
	if got := clusterLine(refused, time.Now()); !strings.Contains(got, "restarts none of them: unsupported layout 2 in etcd") || strings.Contains(got, "unreachable") {
		t.Errorf("with another layout: %s", got)
	}
	if got := memberText(refused, time.Now()); got != "no: unsupported layout 2 in etcd, written by a later version of Sonde" {
		t.Errorf("with another layout: %s", got)
	}
	cut.Heard = time.Time{}
	if got := memberText(cut, time.Now()); got != "not known: etcd has not answered yet" {
		t.Errorf("before the first answer: %s", got)
	}
}

func TestMembersAreShownWithWhatTheirFilesLack(t *testing.T) {
	known := api.Cluster{Name: "a", Allowed: true, Members: []api.ClusterMember{
		{Name: "a"},
		{Name: "b", Differs: &api.ClusterDifference{Lacks: 15, LacksExamples: []string{"web[\"0\"]", "web\x1b[2J"}, More: 1, Changed: 2, ChangedExamples: []string{"c", "d"}}},
	}}
	var members strings.Builder
	if err := writeMembers(&members, known); err != nil {
		t.Fatal(err)
	}
	if want := "lacks 15 targets: web[\"0\"], web\ufffd[2J, …; has 1 target that this engine lacks; probes up to 2 targets differently: c, d"; !strings.Contains(members.String(), want) {
		t.Errorf("got %q, without %q", members.String(), want)
	}
	if got := clusterLine(known, time.Now()); !strings.Contains(got, "the files of 1 engine differ from those of this engine") {
		t.Errorf("got %q", got)
	}
}

func TestMembersAreShownWithWhatTheyOwnAndWhoHasDrainedThem(t *testing.T) {
	at := time.Now().Add(-90 * time.Second)
	two := int64(2)
	known := api.Cluster{
		Name: "a", Allowed: true, Member: true, Shards: 7,
		Members: []api.ClusterMember{
			{Name: "a", Shards: 7, Targets: 3, Health: api.MemberDoubtful, Drained: true},
			{Name: "b\x1b[2J", Shards: 0, Health: api.MemberUnknown, Drained: true, Revision: &two, Refused: "no"},
		},
		Drains: []api.ClusterDrain{{Name: "a", By: "root@ops\x1b", At: at}, {Name: "c"}},
		Config: &api.ClusterConfig{},
	}
	var members, own strings.Builder
	if err := errors.Join(writeMembers(&members, known), writeClusterStatus(&own, known)); err != nil {
		t.Fatal(err)
	}
	spaces := regexp.MustCompile(`[ \n]+`)
	got := spaces.ReplaceAllString(members.String(), " ")
	for _, want := range []string{
		"a 7 3 doubtful unknown this engine, drained by root@ops", ", 1m30s ago ",
		" 0 0 unknown 2 drained, has refused the current revision ", "c - - - - not a member, drained by an operator ",
	} {
		if !strings.Contains(got, want) || strings.Contains(got, "\x1b") {
			t.Errorf("the members are %q, without %q", got, want)
		}
	}
	if got := own.String(); !strings.Contains(got, "sonde-fleet cluster undrain ends that; it has shards, since all engines are drained") {
		t.Errorf("the status is %s", got)
	}
	known.Drains, known.Members[0].Shards, known.Shards = nil, 0, 0
	if got := drainText(known, at); got != "it does not run the current revision" {
		t.Errorf("without an operator: %s", got)
	}
}

func TestATrialIsShownAtItsEngine(t *testing.T) {
	trial := &api.ClusterTrial{Revision: 3, Engine: "a"}
	for want, c := range map[string]api.ClusterConfig{
		"none":                                             {},
		"2; the current one is not known":                  {Revision: 2},
		"2, the current one":                               {Revision: 2, Current: 2},
		"1; it is to run 2, the current one":               {Revision: 1, Current: 2},
		"1; it has refused 2: no":                          {Revision: 1, Current: 2, Refused: "no"},
		"3, a trial; the current one is 2":                 {Revision: 3, Current: 2, Trial: trial},
		"2; it has refused 3: no":                          {Revision: 2, Current: 2, Trial: trial, Refused: "no"},
		"2; it is to run 3, a trial; the current one is 2": {Revision: 2, Current: 2, Trial: trial},
	} {
		if got := revisionText("a", c); got != want {
			t.Errorf("%+v: got %q, want %q", c, got, want)
		}
	}
	if got, want := revisionText("b", api.ClusterConfig{Revision: 2, Current: 2, Trial: trial}), "2, the current one"; got != want {
		t.Errorf("another engine: got %q, want %q", got, want)
	}
	known := api.Cluster{Config: &api.ClusterConfig{Trial: trial}}
	for want, m := range map[string]api.ClusterMember{
		"tries revision 3, a trial": {Name: "a"}, "has refused revision 3, a trial": {Name: "a", Refused: "no"},
		"": {Name: "b"}, "has refused the current revision": {Name: "b", Refused: "no"},
	} {
		if got := memberNotes(known, m, time.Now()); got != want {
			t.Errorf("%+v: got %q, want %q", m, got, want)
		}
	}
}
