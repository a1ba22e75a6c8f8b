package docker_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/dockertest"
)

// registry serves one image with an empty layer, and returns its address.
func registry(t *testing.T) string {
	t.Helper()
	var layer bytes.Buffer
	files := tar.NewWriter(&layer)
	if err := files.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o777}); err != nil {
		t.Fatal(err)
	}
	_ = files.Close()
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write(layer.Bytes())
	_ = zip.Close()
	digest := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	config := fmt.Appendf(nil, `{"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":[%q]}}`, digest(layer.Bytes()))
	const kind = "application/vnd.docker.distribution.manifest.v2+json"
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.docker.container.image.v1+json","size":%d,"digest":%q},`+
		`"layers":[{"mediaType":"application/vnd.docker.image.rootfs.diff.tar.gzip","size":%d,"digest":%q}]}`, kind, len(config), digest(config), packed.Len(), digest(packed.Bytes()))
	blobs := map[string][]byte{digest(config): config, digest(packed.Bytes()): packed.Bytes()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		switch {
		case r.URL.Path == "/v2/":
		case r.URL.Path == "/v2/image/manifests/latest" || name == digest(manifest):
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Docker-Content-Digest", digest(manifest))
			_, _ = w.Write(manifest)
		case blobs[name] != nil:
			_, _ = w.Write(blobs[name])
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`))
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestImagesArePulled(t *testing.T) {
	r := dockertest.Docker(t) // Podman uses plain HTTP only for registries that are listed in its files
	image := registry(t) + "/image"
	if has, err := r.HasImage(t.Context(), image); has || err != nil {
		t.Fatal(has, err)
	}
	if err := r.Pull(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	if has, err := r.HasImage(t.Context(), image); !has || err != nil {
		t.Fatal(has, err)
	}
	err := r.Pull(t.Context(), image+":missing")
	if err == nil || !strings.HasPrefix(err.Error(), "image "+image+":missing cannot be pulled: ") {
		t.Errorf("image that is not in the registry: %v", err)
	}
}
