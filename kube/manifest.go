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

	"github.com/sonde-probe/sonde/internal/anchors"
)

// Manifest is one object in a manifest file.
type Manifest struct {
	Position  string // of its document: "web.yaml:12"
	Kind      string // "Deployment"
	Namespace string // default "default"
	Name      string

	// Pod is the pod, or a pod made from the object's template with the object's name. It is nil for an object without
	// pods, such as a Service.
	Pod *v1.Pod

	// Ignored are the paths of fields that Containers does not support, such as
	// "spec.replicas", sorted. Fields that the API server sets, such as metadata.uid
	// and status, are not listed.
	Ignored []string

	// IgnoredOf are the ignored fields of single containers, such as "resources", by the container's name.
	IgnoredOf map[string][]string

	spec   *field.Path    // of the pod's spec
	object map[string]any // the whole object
}

// String returns the kind, namespace and name, such as "Deployment shop/web".
func (m Manifest) String() string { return m.Kind + " " + m.Namespace + "/" + m.Name }

// Containers returns the containers of the pod, like the function Containers, and also the init containers that must
// complete, which have no probes. Errors contain the paths of fields in the manifest. Without a pod there are no
// containers.
func (m Manifest) Containers() ([]Container, error) {
	if m.Pod == nil {
		return nil, nil
	}
	return everyContainer(m.Pod, m.spec)
}

// Limits of a manifest file.
const (
	MaxManifestBytes = 3 << 20 // the API server's limit for a request body
	maxManifests     = 10_000  // objects in one file
)

// Read reads the objects of a manifest file: one or more YAML or JSON documents, each an object or a List of objects. name
// is the file's name, for error messages. Read returns an error for each object that cannot be read, together with all
// other objects. It is safe for concurrent use by multiple goroutines.
func Read(name string, text []byte) ([]Manifest, []error) {
	if len(text) > MaxManifestBytes {
		return nil, []error{fmt.Errorf("%s: the file is larger than %d bytes", name, MaxManifestBytes)}
	}
	var r reader
	for _, d := range split(text) {
		r.position = fmt.Sprintf("%s:%d", name, d.line)
		r.document(d)
	}
	return r.found, r.errs
}

type reader struct {
	position string
	found    []Manifest
	errs     []error
}

func (r *reader) refuse(format string, a ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: %w", r.position, fmt.Errorf(format, a...)))
}

func (r *reader) document(d document) {
	if err := anchors.Check(d.text); err != nil {
		r.refuse("%w", err)
		return
	}
	asJSON, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		r.refuse("%s", yamlProblem(err, d.line))
		return
	}
	var o any
	decoder := json.NewDecoder(bytes.NewReader(asJSON))
	decoder.UseNumber() // float64 cannot represent all int64
	if err := decoder.Decode(&o); err != nil {
		r.refuse("%w", err)
		return
	}
	if o != nil { // nil if the document has only comments
		r.object(o, "", "")
	}
}

// object reads an object. Items of a typed list, such as PodList, may omit version and kind.
func (r *reader) object(o any, version, kind string) {
	fields, ok := o.(map[string]any)
	if !ok {
		r.refuse("not an object of a Kubernetes manifest, in YAML or JSON")
		return
	}
	version, kind = cmp.Or(text(fields, "apiVersion"), version), cmp.Or(text(fields, "kind"), kind)
	items, isList := fields["items"].([]any)
	switch {
	case kind == "":
		r.refuse("kind is missing")
	case version == "":
		r.refuse("apiVersion is missing")
	case len(r.found) >= maxManifests:
		r.refuse("more than %d objects", maxManifests)
	case isList && strings.HasSuffix(kind, "List"):
		for _, item := range items {
			r.object(item, version, strings.TrimSuffix(kind, "List"))
		}
	default:
		r.one(fields, version, kind)
	}
}

// one reads an object that is not a list.
func (r *reader) one(o map[string]any, version, kind string) {
	meta, _ := o["metadata"].(map[string]any)
	m := Manifest{Position: r.position, Kind: kind, Namespace: v1.NamespaceDefault, Name: strings.TrimSuffix(text(meta, "generateName"), "-")}
	for _, name := range []struct {
		field string
		to    *string
	}{{"namespace", &m.Namespace}, {"name", &m.Name}} {
		switch given := meta[name.field].(type) {
		case nil:
		case string:
			*name.to = cmp.Or(given, *name.to)
		default: // such as n and 1, which are not strings in YAML
			r.refuse("%s: metadata.%s is %v: it must be a string", kind, name.field, given)
			return
		}
	}
	// The kind of a custom resource, whose group is a domain name, may have the same name as one of Kubernetes' own.
	group, _, grouped := strings.Cut(version, "/")
	isCustom := grouped && strings.Contains(group, ".")
	if w, known := workloads[kind]; known && !isCustom {
		if !slices.Contains(w.versions, version) {
			r.refuse("%s %s: no matches for kind %q in version %q: write apiVersion: %s", kind, m.Name, kind, version, w.versions[0])
			return
		}
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

// workload describes a kind of object with pods.
type workload struct {
	versions []string // API versions: the current one, then those of older Kubernetes with the same fields
	template []string // path of the pod or its template
	policies []v1.RestartPolicy
}

var (
	core       = []string{"v1"}
	controller = workload{versions: []string{"apps/v1", "apps/v1beta2", "apps/v1beta1", "extensions/v1beta1"}, template: []string{"spec", "template"}, policies: []v1.RestartPolicy{v1.RestartPolicyAlways}}
	finite     = []v1.RestartPolicy{v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
)

// workloads are the supported kinds.
var workloads = map[string]workload{
	"Pod":                   {versions: core},
	"PodTemplate":           {versions: core, template: []string{"template"}},
	"ReplicationController": {versions: core, template: controller.template, policies: controller.policies},
	"Deployment":            controller,
	"StatefulSet":           controller,
	"DaemonSet":             controller,
	"ReplicaSet":            controller,
	"Job":                   {versions: []string{"batch/v1"}, template: []string{"spec", "template"}, policies: finite},
	"CronJob":               {versions: []string{"batch/v1", "batch/v1beta1", "batch/v2alpha1"}, template: []string{"spec", "jobTemplate", "spec", "template"}, policies: finite},
}

// read reads the pod of an object.
func (w workload) read(o map[string]any, m *Manifest) error {
	template := lookup(o, w.template)
	asJSON, err := json.Marshal(map[string]any{"metadata": template["metadata"], "spec": template["spec"], "status": template["status"]})
	if err != nil {
		return err
	}
	pod := new(v1.Pod)
	if err := kubejson.Unmarshal(asJSON, pod); err != nil {
		return typeError(err, w.template)
	}
	pod.Name, pod.Namespace = m.Name, m.Namespace
	m.Pod, m.spec = pod, field.NewPath("spec")
	if len(w.template) > 0 {
		m.spec = field.NewPath(w.template[0], append(slices.Clone(w.template[1:]), "spec")...)
	}
	m.object = o
	m.findIgnored(podFields, containerFields)
	policy := Default(pod).Spec.RestartPolicy
	if len(w.policies) == 0 || slices.Contains(w.policies, policy) {
		return nil
	}
	return field.NotSupported(m.spec.Child("restartPolicy"), policy, w.policies) // the API server's error
}

// typeError rewrites an error of package json, which contains Go types, in terms of the manifest.
func typeError(err error, template []string) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	path := strings.Join(append(slices.Clone(template), wrong.Field), ".")
	is, _, _ := strings.Cut(wrong.Value, " ") // "number 1.5"
	return fmt.Errorf("%s has type %s: it must be %s", path, is, wanted(wrong.Type))
}

// wanted returns the expected manifest type for a Go type.
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
