package accepted

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/internal/redact"
)

// fleetFolder is the folder of a fleet's configuration, both where it is pushed and on each engine. It exists on no file
// system: relative paths in that configuration are names of files of the revision, whatever the working directory is. Absolute
// paths name files of the machine that reads them.
const fleetFolder = "fleet:"

// inFleet returns the name of a file relative to fleetFolder. ok is false if the file is not below it.
func inFleet(path string) (name string, ok bool) {
	name, ok = strings.CutPrefix(filepath.ToSlash(path), fleetFolder+"/")
	return name, ok && name != ""
}

// IsOfFleet reports whether the path of a file is one of the files that are pushed to the engines of a fleet.
func IsOfFleet(path string) bool {
	_, ok := inFleet(path)
	return ok
}

// ReadFleet reads the sources of a configuration to push: a folder, or files of one folder. The returned Inputs read the other
// files that the sources name.
func ReadFleet(paths []string) (*Inputs, config.Diagnostics) {
	sources, diags := config.Read(paths)
	if diags.HasErrors() {
		return nil, diags
	}
	in := &Inputs{folder: filepath.Dir(sources[0].Name)}
	for _, s := range sources {
		if filepath.Dir(s.Name) != in.folder {
			return nil, append(diags, config.Diagnostic{
				Summary: fmt.Sprintf("%s and %s are in different folders", sources[0].Name, s.Name),
				Hint:    "push files of one folder: relative paths in them start there",
			})
		}
		in.Sources = append(in.Sources, config.Source{Name: fleetFolder + "/" + filepath.Base(s.Name), Bytes: s.Bytes})
	}
	return in, diags
}

// ToPush reports whether the files below fleetFolder are read from a local folder, so that they can be pushed.
func (in *Inputs) ToPush() bool { return in.folder != "" }

// OfRevision returns Inputs with the files of a revision. The sources of the revision are the Sources, which an engine parses
// together with its own.
func OfRevision(r revision.Ref, b *revision.Bundle) *Inputs {
	in := &Inputs{Revision: r, Files: map[string][]byte{}, Regular: map[string]bool{}}
	for _, name := range b.Sources {
		in.Sources = append(in.Sources, config.Source{Name: fleetFolder + "/" + name, Bytes: b.Files[name]})
	}
	for name, content := range b.Files {
		if content == nil {
			content = []byte{} // nil would mean that the file does not exist
		}
		in.Files[fleetFolder+"/"+name], in.Regular[fleetFolder+"/"+name] = content, true
		in.size += len(content)
	}
	return in
}

// Bundle returns the files to push: the sources, and the files that they name by relative paths. local are the absolute paths
// of files that each engine reads from its own disk, sorted. It is an error if a relative path leads out of the folder, or if a
// file contains one of the secrets, since everyone with access to the store would see it. The search finds literal values of
// six bytes or more; config.Options.ToPush rejects other expressions that may contain a secret from the files.
func (in *Inputs) Bundle(secrets []string) (b *revision.Bundle, local []string, err error) {
	b = in.pushed()
	for _, path := range in.Paths() {
		switch _, isOfFleet := inFleet(path); {
		case isOfFleet:
		case filepath.IsAbs(path):
			local = append(local, path)
		default:
			return nil, nil, fmt.Errorf("%s is outside the configuration's folder: move it there, or use its absolute path on the engines", path)
		}
	}
	var known redact.Redactor
	if !known.Add(secrets) {
		return nil, nil, errors.New("too many sensitive values to search for in the pushed files: use fewer variables, and read the values on each engine, from its environment or from files with absolute paths")
	}
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		if line := lineOfSecret(string(b.Files[name]), &known); line > 0 {
			return nil, nil, fmt.Errorf("%s:%d: this line contains a sensitive value, which everyone with access to the store could read: read it on each engine with env(\"…\"), or with file(\"/…\") and an absolute path", name, line)
		}
	}
	return b, local, nil
}

// lineOfSecret returns the number of the first line of a text that contains a known secret, or 0 if there is none.
func lineOfSecret(text string, known *redact.Redactor) int {
	shown := known.Text(text)
	if shown == text {
		return 0
	}
	same := 0
	for same < min(len(text), len(shown)) && text[same] == shown[same] {
		same++
	}
	return 1 + strings.Count(text[:same], "\n")
}

// pushed returns the part of the Inputs that is pushed.
func (in *Inputs) pushed() *revision.Bundle {
	b := &revision.Bundle{Files: map[string][]byte{}}
	for _, s := range in.Sources {
		if name, isOfFleet := inFleet(s.Name); isOfFleet {
			b.Sources = append(b.Sources, name)
			b.Files[name] = s.Bytes
		}
	}
	for path, content := range in.Files {
		if name, isOfFleet := inFleet(path); isOfFleet && content != nil { // nil content: the file does not exist
			b.Files[name] = content
		}
	}
	return b
}

// OfEngine returns the Inputs without the pushed files. The watch of the engine's own files uses it.
func (in *Inputs) OfEngine() *Inputs {
	own := in.Clone()
	own.Sources = slices.DeleteFunc(slices.Clone(in.Sources), func(s config.Source) bool { return IsOfFleet(s.Name) })
	maps.DeleteFunc(own.Files, func(path string, _ []byte) bool { return IsOfFleet(path) })
	maps.DeleteFunc(own.Regular, func(path string, _ bool) bool { return IsOfFleet(path) })
	maps.DeleteFunc(own.failed, func(path string, _ bool) bool { return IsOfFleet(path) })
	return own
}
