package manifests

import (
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/kube"
)

func TestEntrypointOfTheImageRunsWithoutACommand(t *testing.T) {
	known := entrypoints{"busybox": {}, "shop/web": {"/web", "-v"}, "localhost:5000/db": {"/db"}}
	for _, test := range []struct {
		of   kube.Container
		want []string // nil if unknown
	}{
		{kube.Container{Image: "nginx", Command: []string{"a", "b"}, Args: []string{"c"}}, []string{"a", "b", "c"}},
		{kube.Container{Image: "nginx", Args: []string{"c"}}, nil},
		{kube.Container{Image: "nginx"}, nil},
		{kube.Container{Image: "registry.k8s.io/busybox:1.27", Args: []string{"sh", "-c", "x"}}, []string{"sh", "-c", "x"}},
		{kube.Container{Image: "busybox"}, nil},
		{kube.Container{Image: "ghcr.io/shop/web@sha256:00"}, []string{"/web", "-v"}},
		{kube.Container{Image: "ghcr.io/shop/web:1@sha256:00", Args: []string{"-q"}}, []string{"/web", "-v", "-q"}},
		{kube.Container{Image: "localhost:5000/db"}, []string{"/db"}},
		{kube.Container{Image: "localhost:5000/web"}, nil},
		{kube.Container{Image: "notbusybox"}, nil},
	} {
		got, err := known.command(test.of)
		if !slices.Equal(got, test.want) || (err == nil) != (test.want != nil) {
			t.Errorf("%s runs %q, %v, want %q", test.of.Image, got, err, test.want)
		}
	}
}

func TestTheErrorNamesTheEndOfTheImage(t *testing.T) {
	for image, want := range map[string]string{
		"": "not known", "busybox": "--entrypoint busybox=PROGRAM", "registry.k8s.io/busybox:1.27": "--entrypoint busybox=PROGRAM",
		"localhost:5000/shop/web": "--entrypoint web=PROGRAM", "ghcr.io/shop/web@sha256:00": "--entrypoint web=PROGRAM",
	} {
		if _, err := (entrypoints{}).command(kube.Container{Image: image}); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("the error about image %q is %v, want %q", image, err, want)
		}
	}
}
