// Command oci writes the container image of a release to its standard output: an archive of an OCI image layout
// (https://github.com/opencontainers/image-spec), which podman load, docker load and skopeo read. The image has the program and
// its plugins and nothing else: no shell, no users, no certificates.
//
// The time of all files is SOURCE_DATE_EPOCH, so that the same input gives the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// settings are how the image runs the program: as a user without rights, with a configuration that is mounted at /etc/sonde.
var settings = map[string]any{
	"User":         "65532:65532",
	"Env":          []string{"PATH=/usr/bin", "XDG_CACHE_HOME=/tmp"},
	"Entrypoint":   []string{"/usr/bin/sonde"},
	"Cmd":          []string{"run", "/etc/sonde"},
	"ExposedPorts": map[string]any{"9650/tcp": struct{}{}},
	"StopSignal":   "SIGTERM",
}

func main() {
	arch := flag.String("arch", "", "the architecture, as Go calls it")
	name := flag.String("name", "", "name and tag of the image")
	flag.Parse()
	if flag.NArg() != 2 || *arch == "" || *name == "" {
		fmt.Fprintln(os.Stderr, "usage: oci -arch ARCH -name NAME:TAG PROGRAM PLUGINS > FILE")
		os.Exit(2)
	}
	if err := run(os.Stdout, *arch, *name, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "oci:", err)
		os.Exit(1)
	}
}

// descriptor names a blob.
type descriptor struct {
	Type        string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// archive is a tar file that is being written.
type archive struct {
	*tar.Writer
	at time.Time
}

func (a archive) add(path string, mode int64, body []byte) error {
	h := &tar.Header{Name: path, Mode: mode, Size: int64(len(body)), ModTime: a.at, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
	if body == nil {
		h.Typeflag = tar.TypeDir
	}
	if err := a.WriteHeader(h); err != nil {
		return err
	}
	_, err := a.Write(body)
	return err
}

// blob adds a blob, and returns its descriptor.
func (a archive) blob(mediaType string, body []byte) (descriptor, error) {
	sum := digest(body)
	return descriptor{Type: mediaType, Digest: "sha256:" + sum, Size: len(body)}, a.add("blobs/sha256/"+sum, 0o644, body)
}

// json adds a blob of JSON.
func (a archive) json(mediaType string, v any) (descriptor, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return a.blob(mediaType, body)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func run(w io.Writer, arch, name, program, plugins string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	at := time.Unix(seconds, 0).UTC()
	files, err := layer(at, program, plugins)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(files) // a buffer returns no error
	_ = z.Close()

	const vendor = "application/vnd.oci.image."
	out := archive{tar.NewWriter(w), at}
	top, err := out.blob(vendor+"layer.v1.tar+gzip", packed.Bytes())
	if err != nil {
		return err
	}
	config, err := out.json(vendor+"config.v1+json", map[string]any{
		"created": at, "architecture": arch, "os": "linux", "config": settings,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(files)}},
	})
	if err != nil {
		return err
	}
	manifest, err := out.json(vendor+"manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": vendor + "manifest.v1+json", "config": config, "layers": []descriptor{top},
	})
	if err != nil {
		return err
	}
	manifest.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": vendor + "index.v1+json", "manifests": []descriptor{manifest}})
	if err != nil {
		return err
	}
	if err := out.add("index.json", 0o644, index); err != nil {
		return err
	}
	if err := out.add("oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	return out.Close()
}

// layer returns the files of the image as a tar file.
func layer(at time.Time, program, plugins string) ([]byte, error) {
	var b bytes.Buffer
	files := archive{tar.NewWriter(&b), at}
	paths, err := filepath.Glob(plugins + "/*.wasm")
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"etc/", "etc/sonde/", "usr/", "usr/bin/", "usr/lib/", "usr/lib/sonde/", "usr/lib/sonde/plugins/"} {
		_ = files.add(dir, 0o755, nil) // a buffer returns no error
	}
	_ = files.add("tmp/", 0o1777, nil)
	copied := map[string]string{"usr/bin/sonde": program}
	names := []string{"usr/bin/sonde"}
	for _, path := range paths { // sorted
		name := "usr/lib/sonde/plugins/" + filepath.Base(path)
		copied[name], names = path, append(names, name)
	}
	for _, name := range names {
		body, err := os.ReadFile(copied[name])
		if err != nil {
			return nil, err
		}
		_ = files.add(name, 0o755, body)
	}
	err = files.Close() // before the bytes are taken
	return b.Bytes(), err
}
