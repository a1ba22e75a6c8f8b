package kube_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/kube"
)

// read returns the position and name of each object in a file, and the errors.
func read(text string) (found []string, errs []error) {
	manifests, errs := kube.Read("f", []byte(text))
	for _, m := range manifests {
		found = append(found, fmt.Sprintf("%s %s", m.Position, m))
	}
	return found, errs
}

func TestFileMayHaveManyObjects(t *testing.T) {
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}"
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "", nil},
		{"comments only", "# a\n---\n# b\n---\n\n", nil},
		{"one", pod, []string{"f:1 Pod default/a"}},
		{"a byte order mark, and carriage returns", "\ufeff---\r\n" + pod + "\r\n", []string{"f:2 Pod default/a"}},
		{"several", "# first\n" + pod + "\n---\n" + pod + "\n--- # third\n" + pod + "\n...\n", []string{"f:1 Pod default/a", "f:4 Pod default/a", "f:5 Pod default/a"}},
		{"text behind a marker", "--- " + pod, []string{"f:1 Pod default/a"}},
		{"dashes that are no marker", "kind: X\nmetadata: {name: |-\n  ---a\n  }", nil},
		{"JSON", `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}, "spec": {}}`, []string{"f:1 Pod b/a"}},
		{"a generated name", "{apiVersion: v1, kind: Pod, metadata: {generateName: web-}}", []string{"f:1 Pod default/web"}},
		{"a list", "{apiVersion: v1, kind: List, items: [" + pod + ", {apiVersion: v1, kind: Service, metadata: {name: s}}]}", []string{"f:1 Pod default/a", "f:1 Service default/s"}},
		{"an empty list", "{apiVersion: v1, kind: PodList, items: []}", nil},
		{"a typed list", "{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}}, {metadata: {name: b}}]}", []string{"f:1 Pod default/a", "f:1 Pod default/b"}},
		{"lists in lists", "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}}]}]}", []string{"f:1 Pod default/a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			found, errs := read(test.text)
			if test.want == nil && len(found) == 0 {
				return
			}
			if !slices.Equal(found, test.want) || len(errs) > 0 {
				t.Errorf("found %q, %v, want %q", found, errs, test.want)
			}
		})
	}
}

func TestErrorsHaveThePosition(t *testing.T) {
	for text, want := range map[string]string{
		"a: [": "f:1: line 1: did not find expected node content",
		"apiVersion: v1\nkind: A\n---\n\nb: c\nb: d": `f:4: line 6: key "b" already set in map`,
		"--- {a: b, a: c}":                           `f:1: line 1: key "a" already set in map`,
		"just text":                                  "f:1: not an object of a Kubernetes manifest, in YAML or JSON",
		"{apiVersion: v1, kind: Pod, metadata: {namespace: n, name: a}}": "f:1: Pod: metadata.namespace is false: it must be a string",
		"{apiVersion: v1, kind: Pod, metadata: {name: 1}}":               "f:1: Pod: metadata.name is 1: it must be a string",
		"metadata: {name: a}":                                                                                                    "f:1: kind is missing",
		"{kind: Pod, metadata: {name: a}}":                                                                                       "f:1: apiVersion is missing",
		"{apiVersion: v2, kind: Pod, metadata: {name: a}}":                                                                       `f:1: Pod a: no matches for kind "Pod" in version "v2": write apiVersion: v1`,
		"{apiVersion: apps/v1, kind: Pod, metadata: {name: a}}":                                                                  `f:1: Pod a: no matches for kind "Pod" in version "apps/v1": write apiVersion: v1`,
		"{apiVersion: v1, kind: Deployment, metadata: {name: a}}":                                                                `f:1: Deployment a: no matches for kind "Deployment" in version "v1": write apiVersion: apps/v1`,
		"{apiVersion: v2, kind: PodList, items: [{metadata: {name: a}}]}":                                                        `f:1: Pod a: no matches for kind "Pod" in version "v2": write apiVersion: v1`,
		"{apiVersion: v1, kind: List, items: [1]}":                                                                               "f:1: not an object of a Kubernetes manifest, in YAML or JSON",
		"{apiVersion: v1, kind: Pod, spec: {nodeName: 1}, metadata: {name: a}}":                                                  "f:1: Pod a: spec.nodeName has type number: it must be a string",
		"{apiVersion: v1, kind: Pod, spec: {containers: [{name: a, command: sleep}]}, metadata: {name: a}}":                      "f:1: Pod a: spec.containers.command has type string: it must be a list",
		"{apiVersion: v1, kind: Pod, spec: {containers: [{name: a, livenessProbe: {periodSeconds: '5'}}]}, metadata: {name: a}}": "f:1: Pod a: spec.containers.livenessProbe.periodSeconds has type string: it must be a whole number",
		"{apiVersion: v1, kind: Pod, spec: {containers: [{name: a, livenessProbe: {periodSeconds: 1.5}}]}, metadata: {name: a}}": "f:1: Pod a: spec.containers.livenessProbe.periodSeconds has type number: it must be a whole number",
		"{apiVersion: v1, kind: Pod, spec: {containers: {name: a}}, metadata: {name: a}}":                                        "f:1: Pod a: spec.containers has type object: it must be a list",
		"{apiVersion: v1, kind: Pod, spec: {containers: [a]}, metadata: {name: a}}":                                              "f:1: Pod a: spec.containers has type string: it must be an object",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {hostNetwork: 1}}}}":               "f:1: Deployment a: spec.template.spec.hostNetwork has type number: it must be true or false",
		"{apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {schedule: never}}":                                    `f:1: CronJob a: spec.jobTemplate.spec.template.spec.restartPolicy: Unsupported value: "Always": supported values: "OnFailure", "Never"`,
		"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {template: {spec: {restartPolicy: Never}}}}":        `f:1: StatefulSet a: spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`,
		strings.Repeat("x", kube.MaxManifestBytes+1):                                                                             "f: the file is larger than 3145728 bytes",
	} {
		_, errs := read(text)
		if len(errs) != 1 || errs[0].Error() != want {
			t.Errorf("errors of %.200s are %v, want %s", text, errs, want)
		}
	}
}

func TestTooManyObjectsAreRejected(t *testing.T) {
	found, errs := read("{apiVersion: v1, kind: PodList, items: [" + strings.Repeat("{},", kube.MaxManifests+1) + "]}")
	if len(found) != kube.MaxManifests || len(errs) != 1 || !strings.Contains(errs[0].Error(), "more than 10000 objects") {
		t.Errorf("found %d, %v", len(found), errs)
	}
}

func TestExcessiveAliasesAreRejected(t *testing.T) {
	text := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		text += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	if _, errs := read(text); len(errs) != 1 || !strings.Contains(errs[0].Error(), "excessive aliasing") {
		t.Errorf("errors are %v", errs)
	}
}

func TestAliasesOfALongTextAreRejected(t *testing.T) {
	text := "a: &a " + strings.Repeat("x", 100<<10) + "\nb: [" + strings.Repeat("*a,", 20_000) + "]\n"
	if _, errs := read(text); len(errs) != 1 || !strings.Contains(errs[0].Error(), "YAML aliases expand it to more than") {
		t.Errorf("errors are %.200v", errs)
	}
}

func TestDeepNestingIsRejected(t *testing.T) {
	if _, errs := read("{apiVersion: v1, kind: Pod, spec: " + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + "}"); len(errs) != 1 {
		t.Errorf("errors are %.200v", errs)
	}
}

func TestObjectsWithoutPodsHaveNoPod(t *testing.T) {
	for _, text := range []string{
		"{apiVersion: v1, kind: Service, metadata: {name: a}}",
		"{apiVersion: batch.volcano.sh/v1, kind: Job, metadata: {name: a}, spec: {}}",
		"{apiVersion: example.com/v1, kind: Pod, metadata: {name: a}, spec: {}}",
	} {
		found, errs := kube.Read("f", []byte(text))
		if len(errs) > 0 || len(found) != 1 || found[0].Pod != nil {
			t.Errorf("%s has %+v, %v", text, found, errs)
			continue
		}
		if containers, err := found[0].Containers(); len(containers) != 0 || err != nil {
			t.Errorf("%s has the containers %v, %v", text, containers, err)
		}
	}
}

func TestUnsupportedFieldsAreListed(t *testing.T) {
	found, errs := kube.Read("f", []byte(strings.ReplaceAll(`
apiVersion: apps/v1
kind: Deployment
extra: 1
metadata: {name: a, uid: u, labels: {a: b}, annotations: {}, managedFields: [{}], x: ""}
status: {replicas: 1}
spec:
	replicas: 0
	paused: false
	selector: {matchLabels: {}}
	template:
		metadata: {creationTimestamp: null, labels: {a: b}}
		spec:
			restartPolicy: Always
			hostNetwork: true
			nodeSelector: {}
			affinity: {nodeAffinity: {x: 1}}
			securityContext: {runAsUser: 1, fsGroup: 2}
			ephemeralContainers: [{name: e}]
			initContainers: [{name: i, restartPolicy: Always, tty: true}]
			containers:
			- name: c
				image: i
				resources: {}
				securityContext: {runAsGroup: 1, privileged: true}
				restartPolicyRules: [{exitCode: 1}]
				ports: [{containerPort: 1, hostPort: 2}, {containerPort: 3, protocol: UDP, hostIP: '::1'}]
				livenessProbe: {exec: {command: [x], shell: true}, periodSecond: 1, httpGet: {port: 1, https: true}, sleep: {seconds: 1}}
				livenessprobe: {}
				readinessprobe: {periodSeconds: 1}
			- name: plain
				command: [x]
`, "\t", "  ")))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	m := found[0]
	want := []string{"extra", "metadata.labels", "spec.paused", "spec.replicas", "spec.template.metadata.labels", "spec.template.spec.affinity",
		"spec.template.spec.ephemeralContainers", "spec.template.spec.securityContext.fsGroup"}
	if !slices.Equal(m.Ignored, want) {
		t.Errorf("left are %q, want %q", m.Ignored, want)
	}
	wantC := []string{"livenessProbe.exec.shell", "livenessProbe.httpGet.https", "livenessProbe.periodSecond", "livenessProbe.sleep", "ports[0].hostPort", "ports[1].hostIP",
		"readinessprobe", "restartPolicyRules[0].exitCode", "securityContext.privileged"}
	if !slices.Equal(m.IgnoredOf["c"], wantC) || !slices.Equal(m.IgnoredOf["i"], []string{"tty"}) || len(m.IgnoredOf) != 2 {
		t.Errorf("left of containers are %q", m.IgnoredOf)
	}
	if m.Pod.Spec.Containers[0].ReadinessProbe != nil {
		t.Error("a name in another case was understood")
	}
}

func TestGroupWithoutAUserIsIgnored(t *testing.T) {
	found, errs := kube.Read("f", []byte("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {securityContext: {runAsGroup: 1}, containers: [{name: c, image: i}, {name: d, image: i, securityContext: {runAsUser: 2}}]}}"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if got := found[0].IgnoredOf; len(got) != 1 || !slices.Equal(got["c"], []string{"securityContext.runAsGroup (without runAsUser)"}) {
		t.Errorf("ignored are %q", got)
	}
}

func TestPodOfATemplateHasTheObjectsName(t *testing.T) {
	for _, text := range []string{
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: ns}, spec: {template: {metadata: {name: x, labels: {l: m}}, spec: {containers: [{name: c, image: i}]}}}}",
		"{apiVersion: v1, kind: ReplicationController, metadata: {name: a, namespace: ns}, spec: {template: {metadata: {labels: {l: m}}, spec: {containers: [{name: c, image: i}]}}}}",
		"{apiVersion: batch/v1, kind: CronJob, metadata: {name: a, namespace: ns}, spec: {jobTemplate: {spec: {template: {metadata: {labels: {l: m}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}}",
		"{apiVersion: v1, kind: PodTemplate, metadata: {name: a, namespace: ns}, template: {metadata: {labels: {l: m}}, spec: {containers: [{name: c, image: i}]}}}",
	} {
		found, errs := kube.Read("f", []byte(text))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		containers, err := found[0].Containers()
		if err != nil || len(containers) != 1 || containers[0].Target.Name != "ns/a/c" || found[0].Pod.Labels["l"] != "m" {
			t.Errorf("%s has %+v, %v", text, containers, err)
		}
	}
}

// FuzzRead looks for texts that crash the reader.
func FuzzRead(f *testing.F) {
	f.Add([]byte("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, livenessProbe: {httpGet: {port: 1}}}]}}\n---\nkind: List"))
	f.Add([]byte("apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec: &a\n      containers: [*a]"))
	f.Add([]byte("{apiVersion: v1, kind: PodList, items: [{}, {spec: 1}, [], {metadata: 1}]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		found, _ := kube.Read("f", text)
		for _, m := range found {
			containers, err := m.Containers()
			if err == nil && m.Pod != nil && len(containers) == 0 {
				t.Errorf("a valid pod has no containers: %s", text)
			}
		}
	})
}
