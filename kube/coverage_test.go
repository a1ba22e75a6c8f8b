package kube_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sonde-probe/sonde/kube"
)

// treatment is how a field of a manifest is handled.
type treatment string

const (
	carried    treatment = "carried"     // it is in Container
	process    treatment = "process"     // carried, and listed by ProcessFields
	obstacle   treatment = "obstacle"    // the container cannot run as a process
	warned     treatment = "warned"      // it is listed as ignored
	rejected   treatment = "rejected"    // the API server does not allow it here
	irrelevant treatment = "irrelevant"  // it has no effect on probes or processes
	below      treatment = "field table" // its subfields have their own table
)

// fieldTable defines the treatment of each field of a Kubernetes type. Fields that are not listed cause a warning, unless
// others is set.
type fieldTable struct {
	of     any
	within func(pod *v1.Pod) any // the struct in a pod that has the fields
	fields map[string]treatment
}

func app(pod *v1.Pod) *v1.Container { return &pod.Spec.Containers[0] }

func readiness(pod *v1.Pod) *v1.Probe { return app(pod).ReadinessProbe }

// fieldTables cover a pod's spec and its partly supported subfields.
var fieldTables = []fieldTable{
	{v1.PodSpec{}, func(pod *v1.Pod) any { return &pod.Spec }, map[string]treatment{
		"containers": below, "initContainers": below, "restartPolicy": process, "terminationGracePeriodSeconds": process,
		"securityContext": below, "os": obstacle,
		"hostNetwork": irrelevant, // a pod's address is taken from its status
	}},
	{v1.PodSecurityContext{}, func(pod *v1.Pod) any {
		pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64)}
		return pod.Spec.SecurityContext
	}, map[string]treatment{"runAsUser": process, "runAsGroup": process}},
	{v1.Container{}, func(pod *v1.Pod) any {
		never := v1.ContainerRestartPolicyOnFailure // restartPolicyRules need a policy
		app(pod).RestartPolicy = &never
		return app(pod)
	}, map[string]treatment{
		"name": carried, "image": carried, "command": process, "args": process, "workingDir": process, "env": process,
		"envFrom": obstacle, "volumeMounts": obstacle, "volumeDevices": obstacle, "restartPolicy": process, "restartPolicyRules": process,
		"ports": below, "securityContext": below, "lifecycle": below, "livenessProbe": below, "readinessProbe": below, "startupProbe": below,
	}},
	{v1.Lifecycle{}, func(pod *v1.Pod) any {
		app(pod).Lifecycle = &v1.Lifecycle{}
		return app(pod).Lifecycle
	}, map[string]treatment{"stopSignal": process, "preStop": below}},
	{v1.LifecycleHandler{}, func(pod *v1.Pod) any {
		app(pod).Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}}
		return app(pod).Lifecycle.PreStop
	}, map[string]treatment{"exec": carried, "httpGet": carried, "sleep": carried}},
	{v1.SecurityContext{}, func(pod *v1.Pod) any {
		app(pod).SecurityContext = &v1.SecurityContext{RunAsUser: new(int64)}
		return app(pod).SecurityContext
	}, map[string]treatment{"runAsUser": process, "runAsGroup": process}},
	{v1.ContainerPort{}, func(pod *v1.Pod) any {
		app(pod).Ports = []v1.ContainerPort{{ContainerPort: 1, Name: "other"}}
		return &app(pod).Ports[0]
	}, map[string]treatment{
		"name": carried, "containerPort": carried,
		"protocol": irrelevant, // K110: ignored
	}},
	{v1.EnvVar{}, func(pod *v1.Pod) any {
		app(pod).Env = []v1.EnvVar{{Name: "A"}}
		return &app(pod).Env[0]
	}, map[string]treatment{"name": carried, "value": carried, "valueFrom": obstacle}},
	{v1.Probe{}, func(pod *v1.Pod) any { return readiness(pod) }, map[string]treatment{
		"exec": below, "httpGet": below, "tcpSocket": below, "grpc": below,
		"initialDelaySeconds": carried, "timeoutSeconds": carried, "periodSeconds": carried, "successThreshold": carried, "failureThreshold": carried,
		"terminationGracePeriodSeconds": rejected, // K171: for readiness; the next table has liveness
	}},
	{struct {
		TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds"`
	}{}, func(pod *v1.Pod) any {
		app(pod).LivenessProbe = readiness(pod).DeepCopy()
		return app(pod).LivenessProbe
	}, map[string]treatment{"terminationGracePeriodSeconds": process}},
	{v1.ExecAction{}, func(pod *v1.Pod) any { return readiness(pod).Exec }, map[string]treatment{"command": carried}},
	{v1.HTTPGetAction{}, func(pod *v1.Pod) any {
		readiness(pod).ProbeHandler = v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(1)}}
		return readiness(pod).HTTPGet
	}, map[string]treatment{"path": carried, "port": carried, "host": carried, "scheme": carried, "httpHeaders": carried}},
	{v1.HTTPHeader{}, func(pod *v1.Pod) any {
		readiness(pod).ProbeHandler = v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(1), HTTPHeaders: []v1.HTTPHeader{{Name: "A", Value: "b"}}}}
		return &readiness(pod).HTTPGet.HTTPHeaders[0]
	}, map[string]treatment{"name": carried, "value": carried}},
	{v1.TCPSocketAction{}, func(pod *v1.Pod) any {
		readiness(pod).ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(1)}}
		return readiness(pod).TCPSocket
	}, map[string]treatment{"port": carried, "host": carried}},
	{v1.GRPCAction{}, func(pod *v1.Pod) any {
		readiness(pod).ProbeHandler = v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 1}}
		return readiness(pod).GRPC
	}, map[string]treatment{"port": carried, "service": carried}},
}

// basePod returns a pod with one container and a readiness probe.
func basePod() *v1.Pod {
	pod := &v1.Pod{}
	pod.APIVersion, pod.Kind, pod.Name = "v1", "Pod", "web"
	pod.Spec.Containers = []v1.Container{{
		Name: "app", Image: "image",
		ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}},
	}}
	return pod
}

// outcome is the result of reading a pod.
type outcome struct {
	container kube.Container
	ignored   []string
	process   []string
	err       error
}

func readPod(t *testing.T, pod *v1.Pod) outcome {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	found, errs := kube.Read("f", text)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	name := pod.Spec.Containers[0].Name
	o := outcome{ignored: slices.Concat(found[0].Ignored, found[0].IgnoredOf[name]), process: found[0].ProcessFields(name)}
	all, err := found[0].Containers()
	if o.err = err; err == nil {
		o.container = all[0]
	}
	return o
}

// TestEachFieldOfAPodIsCarriedOrNamed sets each field of a pod's spec, and compares the result with that without the field. The
// field must be used, be listed as ignored, or have an entry in fieldTables. A field that Kubernetes adds in the future is
// ignored with a warning.
func TestEachFieldOfAPodIsCarriedOrNamed(t *testing.T) {
	for _, table := range fieldTables {
		kind := reflect.TypeOf(table.of)
		listed := map[string]bool{}
		for _, f := range reflect.VisibleFields(kind) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || f.Anonymous {
				continue
			}
			listed[name] = true
			want, known := table.fields[name]
			if !known {
				want = warned
			}
			if want == below {
				continue
			}
			t.Run(fmt.Sprintf("%s.%s", kind.Name(), name), func(t *testing.T) {
				without, with := basePod(), basePod()
				table.within(without)
				set(reflect.ValueOf(table.within(with)).Elem().FieldByName(f.Name))
				if got := treated(readPod(t, without), readPod(t, with), name); got != want {
					t.Errorf("the field is %s, want %s", got, want)
				}
			})
		}
		for name := range table.fields {
			if !listed[name] {
				t.Errorf("%s has no field %s", kind.Name(), name)
			}
		}
	}
}

// treated returns the treatment of a field, judging by the results without it and with it.
func treated(without, with outcome, name string) treatment {
	listed := func(paths []string) bool {
		return slices.ContainsFunc(paths, func(path string) bool { return slices.Contains(strings.FieldsFunc(path, isSeparator), name) })
	}
	switch {
	case with.err != nil:
		return rejected
	case listed(with.ignored):
		return warned
	case len(with.container.Obstacles) > len(without.container.Obstacles):
		return obstacle
	case reflect.DeepEqual(with.container, without.container):
		return irrelevant
	case listed(with.process):
		return process
	}
	return carried
}

func isSeparator(r rune) bool { return strings.ContainsRune(".[]", r) }

// set sets a value to something other than its zero value and its default, including everything that it requires.
func set(v reflect.Value) {
	switch v.Addr().Interface().(type) {
	case *v1.RestartPolicy, *v1.ContainerRestartPolicy:
		v.SetString("Never")
		return
	case *v1.OSName:
		v.SetString("windows")
		return
	case *v1.URIScheme:
		v.SetString("HTTPS")
		return
	case *v1.Protocol:
		v.SetString("UDP")
		return
	case *[]v1.ContainerRestartRule:
		codes := &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{7}}
		v.Set(reflect.ValueOf([]v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: codes}}))
		return
	case *intstr.IntOrString:
		v.Set(reflect.ValueOf(intstr.FromInt32(7)))
		return
	case *resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("7")))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("changed")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		set(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		set(key)
		set(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Field(i).Kind() != reflect.Pointer {
				set(v.Field(i))
			}
		}
		if v.NumField() > 0 && v.IsZero() { // all its fields are pointers
			set(v.Field(0))
		}
	}
}
