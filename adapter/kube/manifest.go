package kube

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	kubejson "k8s.io/apimachinery/pkg/util/json" // its names are case-sensitive, as the API server's
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Manifest is an object of a manifest file.
type Manifest struct {
	Place     string // "web.yaml:12", where its document begins
	Kind      string // "Deployment"
	Namespace string // "default" unless it says otherwise
	Name      string

	// Pod is the pod, or one as the object makes it of its template, under the
	// object's own name. Nil for an object that has no pods, such as a Service.
	Pod *v1.Pod

	// Left are the fields that Containers knows nothing of, such as
	// "spec.replicas", sorted. Those that the API server fills in itself, such
	// as metadata.uid and status, are not among them.
	Left []string

	// LeftOf are those of single containers, such as "resources", by the
	// container's name.
	LeftOf map[string][]string

	spec *field.Path // where the pod's spec stands
}

// String returns "Deployment shop/web".
func (m Manifest) String() string { return m.Kind + " " + m.Namespace + "/" + m.Name }

// Containers returns the containers of the pod, as the function of that name
// does; errors name the fields by their paths in the manifest. A manifest without
// a pod has none.
func (m Manifest) Containers() ([]Container, error) {
	if m.Pod == nil {
		return nil, nil
	}
	return containersAt(m.Pod, m.spec)
}

// Bounds on a manifest file.
const (
	MaxManifestBytes = 3 << 20 // of the text; the API server's own limit for a request body
	MaxManifests     = 10_000  // objects in one file
)

// Read reads the objects of a manifest file: one or several documents of YAML or
// JSON, each an object or a List of objects. Name is the file's, for messages. What
// cannot be read is in the errors, and the rest is returned. It may be called from
// many goroutines at once.
func Read(name string, text []byte) ([]Manifest, []error) {
	if len(text) > MaxManifestBytes {
		return nil, []error{fmt.Errorf("%s: the file is longer than %d bytes", name, MaxManifestBytes)}
	}
	var r reader
	for _, d := range split(text) {
		r.place = fmt.Sprintf("%s:%d", name, d.line)
		r.document(d)
	}
	return r.found, r.errs
}

type reader struct {
	place string
	found []Manifest
	errs  []error
}

func (r *reader) refuse(format string, a ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: %w", r.place, fmt.Errorf(format, a...)))
}

func (r *reader) document(d document) {
	asJSON, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		r.refuse("%s", yamlProblem(err, d.line))
		return
	}
	var o any
	decoder := json.NewDecoder(bytes.NewReader(asJSON))
	decoder.UseNumber() // a float64 has no place for every int64
	if err := decoder.Decode(&o); err != nil {
		r.refuse("%w", err)
		return
	}
	if o != nil { // comments only
		r.object(o, "")
	}
}

// object reads an object. The items of a typed list need not say what they are.
func (r *reader) object(o any, kind string) {
	fields, ok := o.(map[string]any)
	if !ok {
		r.refuse("it is no object")
		return
	}
	if given, _ := fields["kind"].(string); given != "" {
		kind = given
	}
	items, isList := fields["items"].([]any)
	switch {
	case kind == "":
		r.refuse("kind is missing")
	case len(r.found) >= MaxManifests:
		r.refuse("there are more than %d objects", MaxManifests)
	case isList && strings.HasSuffix(kind, "List"):
		for _, item := range items {
			r.object(item, strings.TrimSuffix(kind, "List"))
		}
	default:
		r.one(fields, kind)
	}
}

// one reads an object that is no list.
func (r *reader) one(o map[string]any, kind string) {
	meta, _ := o["metadata"].(map[string]any)
	m := Manifest{Place: r.place, Kind: kind, Namespace: v1.NamespaceDefault, Name: strings.TrimSuffix(text(meta, "generateName"), "-")}
	for _, name := range []struct {
		field string
		to    *string
	}{{"namespace", &m.Namespace}, {"name", &m.Name}} {
		switch given := meta[name.field].(type) {
		case nil:
		case string:
			*name.to = cmp.Or(given, *name.to)
		default: // n and 1 are no text in YAML
			r.refuse("%s: metadata.%s must be a string, %v is none", kind, name.field, given)
			return
		}
	}
	if w, known := workloads[kind]; known && w.of(text(o, "apiVersion")) {
		if err := w.read(o, &m); err != nil {
			r.refuse("%s %s: %w", kind, m.Name, err)
			return
		}
	}
	r.found = append(r.found, m)
}

func text(o map[string]any, field string) string {
	s, _ := o[field].(string)
	return s
}

// workload is a kind of object that has pods.
type workload struct {
	groups   []string // of its apiVersion; "" for the core's
	template []string // where the pod, or its template, stands
	policies []v1.RestartPolicy
}

var (
	steady = workload{groups: []string{"apps", "extensions"}, template: []string{"spec", "template"}, policies: []v1.RestartPolicy{v1.RestartPolicyAlways}}
	once   = []v1.RestartPolicy{v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
)

// workloads are the kinds whose pods are read.
var workloads = map[string]workload{
	"Pod":                   {groups: []string{""}},
	"PodTemplate":           {groups: []string{""}, template: []string{"template"}},
	"ReplicationController": {groups: []string{""}, template: steady.template, policies: steady.policies},
	"Deployment":            steady,
	"StatefulSet":           steady,
	"DaemonSet":             steady,
	"ReplicaSet":            steady,
	"Job":                   {groups: []string{"batch"}, template: []string{"spec", "template"}, policies: once},
	"CronJob":               {groups: []string{"batch"}, template: []string{"spec", "jobTemplate", "spec", "template"}, policies: once},
}

func (w workload) of(apiVersion string) bool {
	group, _, slash := strings.Cut(apiVersion, "/")
	if !slash {
		group = "" // v1; a list's items need not have one
	}
	return slices.Contains(w.groups, group) || apiVersion == ""
}

// read reads the pod of an object.
func (w workload) read(o map[string]any, m *Manifest) error {
	template := o
	for _, name := range w.template {
		template, _ = template[name].(map[string]any)
	}
	asJSON, err := json.Marshal(map[string]any{"metadata": template["metadata"], "spec": template["spec"], "status": template["status"]})
	if err != nil {
		return err
	}
	pod := new(v1.Pod)
	if err := kubejson.Unmarshal(asJSON, pod); err != nil {
		return misread(err, w.template)
	}
	pod.Name, pod.Namespace = m.Name, m.Namespace
	m.Pod, m.spec = pod, field.NewPath("spec")
	if len(w.template) > 0 {
		m.spec = field.NewPath(w.template[0], append(slices.Clone(w.template[1:]), "spec")...)
	}
	m.leave(o, strings.Join(append(slices.Clone(w.template), "spec"), "."))
	return w.checkPolicy(pod, m.spec)
}

// misread says what is wrong with a pod that cannot be read. Its errors are those of
// package json, which names types of Go.
func misread(err error, template []string) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	path := strings.Join(append(slices.Clone(template), wrong.Field), ".")
	is, _, _ := strings.Cut(wrong.Value, " ") // "number 1.5"
	return fmt.Errorf("%s is of type %s, it must be %s", path, is, wanted(wrong.Type))
}

// wanted returns what a manifest should have for a type.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	case reflect.Pointer:
		return wanted(t.Elem())
	}
	return "an object"
}

// checkPolicy refuses the restart policies that an object's pods cannot have, in
// the API server's words.
func (w workload) checkPolicy(pod *v1.Pod, spec *field.Path) error {
	policy := Default(pod).Spec.RestartPolicy
	if len(w.policies) == 0 || slices.Contains(w.policies, policy) {
		return nil
	}
	return field.NotSupported(spec.Child("restartPolicy"), policy, w.policies)
}
