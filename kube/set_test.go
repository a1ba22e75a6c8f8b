package kube_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

const threeProbes = `{terminationGracePeriodSeconds: 20, containers: [{name: app, ports: [{name: http, containerPort: 80}],
	startupProbe: {exec: {command: [true]}, terminationGracePeriodSeconds: 5},
	readinessProbe: {httpGet: {port: http}},
	livenessProbe: {tcpSocket: {port: 81}}}],
	initContainers: [{name: side, restartPolicy: Always, readinessProbe: {grpc: {port: 1}}}]}`

func TestSetHasAProbeForEachKind(t *testing.T) {
	pod := podWith(t, strings.Replace(threeProbes, "[true]", "['true']", 1))
	pod.Status.PodIP = "10.1.2.3"
	set, err := kube.Set(pod, makers())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, id := range slices.SortedFunc(maps.Keys(set), probe.ID.Compare) {
		p := set[id]
		got = append(got, id.String()+" "+p.HandlerName+" "+p.Target.Address+" "+p.Rule.TerminationGracePeriod.String())
		if p.Revision == "" || p.Rule.Kind != id.Kind {
			t.Errorf("%v is %+v", id, p)
		}
	}
	want := []string{ // K139: the probe's own grace period, else the pod's
		"default/web/app:startup exec 10.1.2.3 5s",
		"default/web/app:readiness http 10.1.2.3 0s",
		"default/web/app:liveness tcp 10.1.2.3 20s",
		"default/web/side:readiness grpc 10.1.2.3 0s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the set is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	h := set[probe.ID{Target: "default/web/app", Kind: probe.Readiness}].Handler
	if want := (&made{kube.Action{Handler: "http", Path: "/", Port: "http", Scheme: "HTTP"}}); !reflect.DeepEqual(h, want) {
		t.Errorf("the handler is %+v, want %+v", h, want)
	}
}

func TestProbeWithoutAConstructorIsRejected(t *testing.T) {
	pod := podWith(t, strings.Replace(threeProbes, "[true]", "['true']", 1))
	h := makers()
	delete(h, "grpc")
	h["tcp"] = func(kube.Action) (probe.Handler, error) { return nil, errors.New("no sockets left") }
	set, err := kube.Set(pod, h)
	want := "container \"app\": livenessProbe: no sockets left\ncontainer \"side\": readinessProbe: no handler for grpc probes"
	if set != nil || err == nil || err.Error() != want {
		t.Errorf("Set = %v, %v, want %s", set, err, want)
	}
}

func TestInvalidPodHasNoSet(t *testing.T) {
	_, err := kube.Set(podWith(t, "{containers: [{name: app, livenessProbe: {}}]}"), makers())
	if want := "spec.containers[0].livenessProbe: Required value: must specify a handler type"; err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

func TestEqualPodKeepsItsProbes(t *testing.T) {
	e := engine.New(engine.Config{})
	apply := func(spec string) engine.Changes {
		t.Helper()
		set, err := kube.Set(podWith(t, spec), makers())
		if err != nil {
			t.Fatal(err)
		}
		changes, err := e.Apply(set)
		if err != nil {
			t.Fatal(err)
		}
		return changes
	}
	spec := "{containers: [{name: app, livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: A, value: x}]}}}]}"
	apply(spec)
	if got := apply(spec); got != (engine.Changes{Kept: 1}) {
		t.Errorf("an equal pod makes the changes %+v", got)
	}
	if got := apply(strings.Replace(spec, "value: x", "value: z", 1)); got != (engine.Changes{Replaced: 1}) {
		t.Errorf("another header makes the changes %+v", got)
	}
	if got := apply(strings.Replace(strings.Replace(spec, "value: x", "value: z", 1), "httpGet", "periodSeconds: 3, httpGet", 1)); got != (engine.Changes{Updated: 1}) {
		t.Errorf("another period makes the changes %+v", got)
	}
}

func TestRevisionContainsNoSecret(t *testing.T) {
	set, err := kube.Set(podWith(t, "{containers: [{name: app, livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: A, value: secret}]}}}]}"), makers())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range set {
		if strings.Contains(p.Revision, "secret") || len(p.Revision) != 64 {
			t.Errorf("the revision is %q", p.Revision)
		}
	}
}

func TestPodWithoutAnIPIsNotProbedOnTheLocalMachine(t *testing.T) {
	set, err := kube.Set(podWith(t, "{containers: [{name: app, livenessProbe: {tcpSocket: {port: 1}}}]}"), makers())
	if err != nil {
		t.Fatal(err)
	}
	p := set[probe.ID{Target: "default/web/app", Kind: probe.Liveness}]
	if p.Target.Address != "" || p.Rule.Timeout != time.Second {
		t.Errorf("K112: the probe is %+v", p)
	}
}
