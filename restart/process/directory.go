package process

import "os"

// Directory is the directory in which guards keep the files of instances that outlive an engine. It belongs to one
// engine at a time.
type Directory struct {
	path      string
	survivors Survivors
	permanent bool     // it is on the disk of the state file
	lock      *os.File // the directory itself
}

// Path returns the directory for Config.AdoptDir, or "" for a nil Directory.
func (d *Directory) Path() string {
	if d == nil {
		return ""
	}
	return d.path
}

// Survivors returns the instances that were in the directory when it was opened.
func (d *Directory) Survivors() Survivors {
	if d == nil {
		return nil
	}
	return d.survivors
}

// Close releases the directory for the next engine, and removes it if no instance needs it. A directory on the disk of
// the state file is not removed, since that disk may hang.
func (d *Directory) Close() {
	if d == nil {
		return
	}
	if !d.permanent {
		_ = os.Remove(d.path) // fails if it has files of guards
	}
	_ = d.lock.Close()
}
