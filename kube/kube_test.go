package kube_test

import (
	"cmp"
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// podOf returns the pod of a manifest. Tabs in it count as spaces, so that manifests can be indented in Go. Containers without
// an image get one.
func podOf(t *testing.T, manifest string) *v1.Pod {
	t.Helper()
	found, errs := kube.Read("test.yaml", []byte(strings.ReplaceAll(manifest, "\t", "  ")))
	if len(errs) > 0 || len(found) != 1 || found[0].Pod == nil {
		t.Fatalf("the manifest has %v, %v", found, errs)
	}
	pod := found[0].Pod
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			list[i].Image = cmp.Or(list[i].Image, "image")
		}
	}
	return pod
}

// podWith returns the pod default/web with the given spec, in YAML's flow style.
func podWith(t *testing.T, spec string) *v1.Pod {
	t.Helper()
	return podOf(t, "{apiVersion: v1, kind: Pod, metadata: {name: web, uid: u1}, spec: "+spec+"}")
}

// made is a handler that records its action.
type made struct{ action kube.Action }

func (made) Probe(context.Context, probe.Target) probe.Result { return probe.Succeed("") }

func maker(a kube.Action) (probe.Handler, error) { return &made{a}, nil }

// makers are constructors for all actions.
func makers() kube.Handlers {
	return kube.Handlers{"exec": maker, "http": maker, "tcp": maker, "grpc": maker}
}

// targets implements kube.Targets with the states in the map.
type targets map[string]engine.TargetStatus

func (t targets) Target(name string) (engine.TargetStatus, bool) {
	s, ok := t[name]
	return s, ok
}

// found returns targets with one target, default/web/app, which has one probe with a verdict about one instance.
func found(kind probe.Kind, instance string, v probe.Verdict) targets {
	id := probe.ID{Target: "default/web/app", Kind: kind}
	return targets{id.Target: {Target: id.Target, Probes: []engine.Status{{ID: id, Instance: instance, Verdict: v}}}}
}
