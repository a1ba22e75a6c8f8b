package process

import (
	"os"
	"path/filepath"
)

// Directory is where the instances that outlive an engine are found: their guards keep their
// files there. One engine has it at a time.
type Directory struct {
	path      string
	survivors Survivors
	permanent bool     // on the disk of the state file
	lock      *os.File // the directory itself
}

// Path returns the directory for Config.AdoptDir. It is "" for nil.
func (d *Directory) Path() string {
	if d == nil {
		return ""
	}
	return d.path
}

// Survivors returns the instances that the directory had when it was opened.
func (d *Directory) Survivors() Survivors {
	if d == nil {
		return nil
	}
	return d.survivors
}

// Close releases the directory for the next engine, and removes it if no instance needs it. It
// does not wait for the disk of the state file, on which a symbolic link to it stays.
func (d *Directory) Close() {
	if d == nil {
		return
	}
	if !d.permanent {
		removeEmpty(d.path)
	}
	_ = d.lock.Close()
}

// nameLink is a symbolic link in a directory in memory: to the name that it was opened with.
const nameLink = "name"

// removeEmpty removes a directory unless it has files of guards.
func removeEmpty(path string) {
	entries, _ := os.ReadDir(path)
	if len(entries) == 1 && entries[0].Name() == nameLink {
		_ = os.Remove(filepath.Join(path, nameLink))
	}
	_ = os.Remove(path)
}
