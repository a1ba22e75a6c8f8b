package kube_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// handlers returns the built-in handlers; any others would work as well.
func handlers() kube.Handlers {
	return kube.Handlers{
		"tcp": func(t kube.Action) (probe.Handler, error) {
			return tcpprobe.New(tcpprobe.Config{Host: t.Host, Port: t.Port})
		},
		"exec": func(kube.Action) (probe.Handler, error) { // runs in the container, through its runtime
			return probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") }), nil
		},
	}
}

func web() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "1"},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name:           "app",
			Image:          "web",
			ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/app/ready"}}}},
			LivenessProbe:  &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(8080)}}},
		}}},
	}
}

// The probes of a pod are a probe.Set.
func ExampleSet() {
	set, err := kube.Set(web(), handlers())
	if err != nil {
		fmt.Println(err)
		return
	}
	e := engine.New(engine.Config{})
	changes, err := e.Apply(set)
	fmt.Printf("%+v %v\n", changes, err)
	// Output: {Added:2 Updated:0 Replaced:0 Removed:0 Kept:0} <nil>
}

// Validate returns the API server's errors.
func ExampleValidate() {
	pod := web()
	pod.Spec.Containers[0].LivenessProbe.SuccessThreshold = 2
	fmt.Println(kube.Validate(pod).ToAggregate())
	// Output: spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1
}

// A sync loop like the kubelet's calls the manager's methods.
func ExampleManager() {
	e := engine.New(engine.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	m := kube.NewManager(e, handlers())
	pod := web()
	if err := m.AddPod(pod); err != nil {
		fmt.Println(err)
	}

	// The runtime has started the container.
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://1",
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	m.UpdatePodStatus(pod, &pod.Status)
	readiness, _ := e.Watch(probe.ID{Target: "shop/web/app", Kind: probe.Readiness})
	changes := e.Subscribe()
	for !readiness.Passing() {
		if _, err := changes.Next(ctx); err != nil {
			fmt.Println(err)
		}
	}
	changes.Close()
	pod.Status = kube.PodStatus(pod, e, time.Now())
	for _, c := range pod.Status.Conditions {
		fmt.Println(c.Type, c.Status)
	}
	m.RemovePod(pod)
	cancel()
	<-done
	// Output:
	// Initialized True
	// Ready True
	// ContainersReady True
}

// The containers of a manifest as targets and processes.
func ExampleRead() {
	manifests, errs := kube.Read("web.yaml", []byte(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - name: app
        image: web
        command: [/web]
        livenessProbe: {httpGet: {path: /healthz, port: 8080}}
`))
	fmt.Println(len(errs))
	for _, m := range manifests {
		containers, err := m.Containers()
		fmt.Println(m, err, m.Ignored)
		for _, c := range containers {
			fmt.Println(c.Target.Name, c.Command, c.Probes[0].Rule.Kind, c.Probes[0].Path)
		}
	}
	// Output:
	// 0
	// Deployment shop/web <nil> [spec.replicas]
	// shop/web/app [/web] liveness /healthz
}
